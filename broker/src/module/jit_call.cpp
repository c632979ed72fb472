// SPDX-License-Identifier: Apache-2.0
#include "module/jit_call.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

namespace ctxbroker::detail {
namespace {

constexpr std::size_t usual_log_bytes = 16384;
constexpr int loader_threads_since = 13010;  // CUDA 13.1
// In no header that the project is built with yet.
constexpr auto loader_thread_count = static_cast<CUjit_option>(35);

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// The next line of `rest`, without its end, which is taken off.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

std::optional<std::size_t> number_at(std::string_view text) {
  std::size_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

// The name behind ".entry" or ".func"; a function's may stand behind its result in parentheses.
std::string_view declared_name(std::string_view line, std::string_view directive) {
  const std::size_t at = line.find(directive);
  if (at == std::string_view::npos || line.find("//") < at) return {};
  std::string_view rest = trimmed(line.substr(at + directive.size()));
  if (rest.starts_with("(")) {
    const std::size_t close = rest.find(')');
    rest = close == std::string_view::npos ? std::string_view() : trimmed(rest.substr(close + 1));
  }
  return rest.substr(0, rest.find_first_of(" \t\r(,;{"));
}

struct LogLocation {
  std::string function = {};  // "kernel \"blur\""
  std::string file = {};      // of the source
  std::size_t line = 0;       // likewise
};

// What stands around line `wanted`, from 1, of PTX text.
LogLocation find_location(std::string_view ptx, std::size_t wanted) {
  LogLocation location;
  std::map<std::size_t, std::string_view> files;
  std::size_t file = 0, number = 0;
  for (std::string_view rest = ptx; !rest.empty();) {
    const std::string_view line = trimmed(take_line(rest));
    ++number;
    if (line.starts_with(".file")) {  // they stand at the end, too
      const std::string_view words = trimmed(line.substr(5));
      const std::size_t begin = words.find('"') + 1;
      const auto index = number_at(words);
      if (index && begin != 0) files[*index] = words.substr(begin, words.find('"', begin) - begin);
    }
    if (number > wanted) continue;
    if (const auto kernel = declared_name(line, ".entry"); !kernel.empty()) {
      location = {"kernel \"" + std::string(kernel) + "\""};
    } else if (const auto function = declared_name(line, ".func"); !function.empty()) {
      location = {"function \"" + std::string(function) + "\""};
    } else if (line.starts_with(".loc")) {
      const std::string_view words = trimmed(line.substr(4));
      const std::size_t blank = std::min(words.find_first_of(blanks), words.size());
      const auto index = number_at(words), row = number_at(trimmed(words.substr(blank)));
      if (index && row) {
        file = *index;
        location.line = *row;
      }
    }
  }
  if (location.line != 0 && files.contains(file)) location.file = files.at(file);
  return location;
}

std::string explain_line(std::string_view line, std::string_view ptx, const std::string& name) {
  constexpr std::string_view anonymous = "ptxas application ptx input, line ";
  const std::size_t at = line.find(anonymous);
  const auto number =
      at == std::string_view::npos ? std::nullopt : number_at(line.substr(at + anonymous.size()));
  if (!number) return std::string(line);
  const std::size_t end = line.find(';', at);
  std::string text(line.substr(0, at));
  text += name + ", PTX line " + std::to_string(*number);
  const LogLocation location = find_location(ptx, *number);
  if (!location.function.empty()) text += ", in " + location.function;
  if (!location.file.empty())
    text += " (" + location.file + ", line " + std::to_string(location.line) + ")";
  text += ": ";
  if (end != std::string_view::npos) text += trimmed(line.substr(end + 1));
  return text;
}

}  // namespace

JitCall::JitCall(const JitOptions& options, int driver_version)
    : error_(options.log_bytes == 0 ? usual_log_bytes : options.log_bytes), info_(error_.size()) {
  add(CU_JIT_ERROR_LOG_BUFFER, error_);
  add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_.size());
  add(CU_JIT_INFO_LOG_BUFFER, info_);
  add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_.size());
  wall_time_ = values_.size();
  add(CU_JIT_WALL_TIME, 0);
  if (options.max_registers != 0) add(CU_JIT_MAX_REGISTERS, options.max_registers);
  if (options.target != 0) add(CU_JIT_TARGET, options.target);
  if (options.debug_info) add(CU_JIT_GENERATE_DEBUG_INFO, 1);
  if (options.line_info) add(CU_JIT_GENERATE_LINE_INFO, 1);
  if (options.verbose) add(CU_JIT_LOG_VERBOSE, 1);
  // The compiler cannot debug what it optimised.
  if (options.optimisation != 0 || options.debug_info) {
    add(CU_JIT_OPTIMIZATION_LEVEL, options.optimisation == 0 ? 0 : options.optimisation - 1);
  }
  if (options.loader_threads != 0) {
    if (driver_version >= loader_threads_since) {
      add(loader_thread_count, options.loader_threads);
    } else {
      left_out_ = "loader_threads, which drivers know since CUDA 13.1";
    }
  }
}

// The driver takes numbers in place of pointers here.
void JitCall::add(CUjit_option name, std::size_t number) {
  names_.push_back(name);
  values_.push_back(reinterpret_cast<void*>(static_cast<std::uintptr_t>(number)));
}
void JitCall::add(CUjit_option name, std::vector<char>& buffer) {
  names_.push_back(name);
  values_.push_back(buffer.data());
}

// Written into the value's own place.
float JitCall::wall_time() const noexcept {
  float milliseconds = 0;
  std::memcpy(&milliseconds, &values_[wall_time_], sizeof milliseconds);
  return milliseconds > 0 ? milliseconds : 0;
}

std::string JitCall::text(const std::vector<char>& log) {
  const std::string_view all(log.data(), log.size());
  const std::string_view written = all.substr(0, all.find('\0'));
  return std::string(written.substr(0, written.find_last_not_of(" \t\r\n") + 1));
}

std::string explain_log(const std::string& log, std::string_view ptx, const std::string& name) {
  std::string text;
  for (std::string_view rest = log; !rest.empty();) {
    const std::string line = explain_line(take_line(rest), ptx, name);
    if (line.empty()) continue;
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

}  // namespace ctxbroker::detail
