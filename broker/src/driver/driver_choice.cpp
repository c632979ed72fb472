#include "driver/driver_choice.hpp"

#include <array>
#include <utility>

#include "ctxbroker/error.hpp"

namespace ctxbroker {
namespace {

constexpr std::array<std::pair<DriverChoice, const char*>, 3> names{{
    {DriverChoice::automatic, "auto"},
    {DriverChoice::nvidia, "nvidia"},
    {DriverChoice::software, "software"},
}};

}  // namespace

const char* to_string(DriverChoice choice) noexcept {
  for (const auto& [value, name] : names) {
    if (value == choice) return name;
  }
  return "unknown";
}

std::optional<DriverChoice> parse_driver_choice(std::string_view text) noexcept {
  for (const auto& [value, name] : names) {
    if (text == name) return value;
  }
  return std::nullopt;
}

namespace detail {

ChosenDriver choose_driver(std::optional<DriverChoice> option, const char* environment) {
  if (option) return {*option, std::string("the host asked for ") + to_string(*option)};
  if (environment == nullptr || *environment == '\0') {
    return {DriverChoice::automatic, "automatic choice"};
  }
  const auto choice = parse_driver_choice(environment);
  if (!choice) {
    throw Error(ErrorKind::driver_choice,
                std::string("CTXBROKER_DRIVER is \"") + environment +
                    "\", which names no driver; set it to auto, nvidia or software, or unset it");
  }
  return {*choice, std::string("CTXBROKER_DRIVER=") + environment};
}

}  // namespace detail
}  // namespace ctxbroker
