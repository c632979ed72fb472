// SPDX-License-Identifier: Apache-2.0
#include "api/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "api/logs.hpp"
#include "api/multiprocessors.hpp"

namespace ctxbroker::software {
namespace {

// Also to stderr: at this time hardly anybody reads the driver's log.
void report(const std::string& text) {
  log_error(text);
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::uint64_t number(const char* name, std::uint64_t least, std::uint64_t most,
                     std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  std::uint64_t value = 0;
  const char* end = text + std::strlen(text);
  auto result = std::from_chars(text, end, value);
  if (result.ec == std::errc() && result.ptr == end && value >= least && value <= most)
    return value;
  report(std::string(name) + "=" + text + " is not a number from " + std::to_string(least) +
         " to " + std::to_string(most) + "; " + std::to_string(otherwise) + " is used");
  return otherwise;
}

// Those that CUDA 13.0 compiles for.
constexpr std::string_view capabilities[] = {"7.5", "8.0",  "8.6",  "8.7",  "8.8",  "8.9",
                                             "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"};

int read_compute_capability() {
  constexpr const char* name = "CTXBROKER_SOFTWARE_COMPUTE";
  const char* const text = std::getenv(name);
  std::string_view chosen = text != nullptr && *text != 0 ? text : capabilities[0];
  if (std::find(std::begin(capabilities), std::end(capabilities), chosen) ==
      std::end(capabilities)) {
    std::string known;
    for (const std::string_view one : capabilities) known += " " + std::string(one);
    report(std::string(name) + "=" + text + " is not one of" + known + "; " +
           std::string(capabilities[0]) + " is used");
    chosen = capabilities[0];
  }
  std::string digits(chosen);
  std::erase(digits, '.');
  return std::stoi(digits);
}

// The engines choose by it, and report nothing.
void check_instruction_set() {
  constexpr const char* name = "CTXBROKER_SOFTWARE_CPU";
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == 0) return;
  const std::string_view wanted = text;
  if (wanted == "baseline" || wanted == "avx2" || wanted == "avx512") return;
  report(std::string(name) + "=" + text +
         " is not one of baseline avx2 avx512; the newest that the CPU has is used");
}

}  // namespace

Settings read_settings() {
  constexpr std::uint64_t gib = std::uint64_t(1) << 30;
  Settings settings;
  settings.devices = static_cast<unsigned>(number("CTXBROKER_SOFTWARE_DEVICES", 0, 16, 1));
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  settings.threads = static_cast<unsigned>(number("CTXBROKER_SOFTWARE_THREADS", 1, 1024, cores));
  settings.memory = number("CTXBROKER_SOFTWARE_MEMORY", 1 << 20, gib << 14, 8 * gib);
  const char* const name = std::getenv("CTXBROKER_SOFTWARE_NAME");
  settings.name = name != nullptr && *name != 0 ? name : "ctxbroker software device";
  settings.compute = read_compute_capability();
  check_instruction_set();
  settings.multiprocessors = static_cast<unsigned>(
      number("CTXBROKER_SOFTWARE_MULTIPROCESSORS", 1, most_multiprocessors, 132));
  const char* const server = std::getenv("CTXBROKER_SOFTWARE_MPS");
  const char* const looked_at = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  settings.mps = server != nullptr &&
                 std::string_view(server) == (looked_at != nullptr ? looked_at : "/tmp/nvidia-mps");
  return settings;
}

}  // namespace ctxbroker::software
