#include "probe/probe_cache.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>

namespace ctxbroker::detail {
namespace {

// FNV-1a: names a file, no more.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 14695981039346656037U;
  for (const char letter : text) {
    value ^= static_cast<unsigned char>(letter);
    value *= 1099511628211U;
  }
  return value;
}

std::filesystem::path from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  // The base directory specification: a path that is not absolute is to be ignored.
  if (text == nullptr || *text != '/') return {};
  return text;
}

}  // namespace

std::filesystem::path default_cache_folder() {
  const auto cache = from_environment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache / "ctxbroker";
  const auto home = from_environment("HOME");
  return home.empty() ? home : home / ".cache" / "ctxbroker";
}

std::filesystem::path cache_file(const std::filesystem::path& folder, const ProbeKey& key) {
  constexpr char digits[] = "0123456789abcdef";
  std::uint64_t number =
      hash(key.gpu + '\n' + std::to_string(key.multiprocessors) + '\n' + key.driver_file);
  std::string name = "probe-";
  for (int i = 0; i < 16; ++i, number >>= 4) name += digits[number & 15];
  return folder / (name + ".json");
}

ReadProbe read_cache(const std::filesystem::path& file, const ProbeKey& key) {
  std::error_code error;
  if (!std::filesystem::exists(file, error) && !error) return {};
  constexpr std::uintmax_t most = 1 << 20;
  const std::uintmax_t bytes = error ? 0 : std::filesystem::file_size(file, error);
  if (error) return {std::nullopt, error.message()};
  if (bytes > most) return {std::nullopt, "it is too large"};
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  if (!stream.good() && !stream.eof()) return {std::nullopt, "it cannot be read"};
  return read_probe(text, key);
}

std::string write_cache(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return error.message();
  const std::filesystem::path part = file.string() + "." + std::to_string(::getpid()) + ".part";
  {
    std::ofstream stream(part, std::ios::binary | std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream) {
      const int why = errno;
      std::filesystem::remove(part, error);
      return why != 0 ? std::generic_category().message(why) : "it cannot be written";
    }
  }
  std::filesystem::rename(part, file, error);
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  return error.message();
}

}  // namespace ctxbroker::detail
