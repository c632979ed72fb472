// The words for kinds and states of leases.
#include <charconv>

#include "ctxbroker/lease.hpp"

namespace ctxbroker {

const char* to_string(LeaseKind kind) noexcept {
  switch (kind) {
    case LeaseKind::automatic:
      return "auto";
    case LeaseKind::shared:
      return "shared";
    case LeaseKind::private_own:
      return "private";
    case LeaseKind::green:
      return "green";
    case LeaseKind::worker:
      return "worker";
  }
  return "unknown";
}

const char* to_string(LeaseState state) noexcept {
  switch (state) {
    case LeaseState::ready:
      return "ready";
    case LeaseState::lost:
      return "lost";
    case LeaseState::ended:
      return "ended";
    case LeaseState::hung:
      return "hung";
  }
  return "unknown";
}

std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept {
  for (const auto kind :
       {LeaseKind::automatic, LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::string to_string(const LeaseChoice& choice) {
  std::string text = to_string(choice.kind);
  if (choice.kind == LeaseKind::green && choice.multiprocessors != 0) {
    text += ":" + std::to_string(choice.multiprocessors);
  }
  return text;
}

std::optional<LeaseChoice> parse_lease_choice(std::string_view text) noexcept {
  if (const auto kind = parse_lease_kind(text)) return LeaseChoice(*kind);
  constexpr std::string_view partition = "green:";
  if (text.substr(0, partition.size()) != partition) return std::nullopt;
  const std::string_view number = text.substr(partition.size());
  unsigned multiprocessors = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), multiprocessors);
  if (error != std::errc() || end != number.data() + number.size() || multiprocessors == 0) {
    return std::nullopt;
  }
  return LeaseChoice(LeaseKind::green, multiprocessors);
}

}  // namespace ctxbroker
