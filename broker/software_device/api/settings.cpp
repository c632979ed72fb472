#include "api/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "api/logs.hpp"

namespace ctxbroker::software {
namespace {

std::uint64_t number(const char* name, std::uint64_t least, std::uint64_t most,
                     std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  std::uint64_t value = 0;
  const char* end = text + std::strlen(text);
  auto result = std::from_chars(text, end, value);
  if (result.ec == std::errc() && result.ptr == end && value >= least && value <= most)
    return value;
  log_error(std::string(name) + "=" + text + " is not a number from " + std::to_string(least) +
            " to " + std::to_string(most) + "; " + std::to_string(otherwise) + " is used");
  return otherwise;
}

}  // namespace

Settings read_settings() {
  constexpr std::uint64_t gib = std::uint64_t(1) << 30;
  Settings settings;
  settings.devices = static_cast<unsigned>(number("CTXBROKER_SOFTWARE_DEVICES", 0, 16, 1));
  unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  settings.threads = static_cast<unsigned>(number("CTXBROKER_SOFTWARE_THREADS", 1, 1024, cores));
  settings.memory = number("CTXBROKER_SOFTWARE_MEMORY", 1 << 20, gib << 14, 8 * gib);
  return settings;
}

}  // namespace ctxbroker::software
