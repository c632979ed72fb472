#include "context/lease_decision.hpp"

#include <algorithm>
#include <charconv>

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

namespace ctxbroker::detail {
namespace {

int strength(LeaseKind kind) noexcept {
  switch (kind) {
    case LeaseKind::worker:
    case LeaseKind::automatic:
      return 0;
    case LeaseKind::shared:
      return 1;
    case LeaseKind::green:
      return 2;
    case LeaseKind::private_own:
      return 3;
  }
  return 0;
}

LeaseDecision wanted(const LeaseRequest& request) {
  if (request.asked.kind == LeaseKind::worker) {
    return {LeaseChoice(),
            request.asked_by + " asked for worker, which this version cannot grant; taken as auto"};
  }
  if (request.asked.kind != LeaseKind::automatic) {
    return {request.asked, request.asked_by + " asked for " + to_string(request.asked)};
  }
  const std::string wisher = request.wished_by.empty() ? "the plug-in" : request.wished_by;
  if (request.wish.kind == LeaseKind::worker) {
    return {LeaseChoice(),
            wisher + " wishes worker, which this version cannot grant; taken as auto"};
  }
  if (request.wish.kind != LeaseKind::automatic) {
    return {request.wish, wisher + " wishes " + to_string(request.wish)};
  }
  return {LeaseChoice(), "neither host nor plug-in asked for a kind"};
}

}  // namespace

LeaseChoice stronger(const LeaseChoice& a, const LeaseChoice& b) noexcept {
  if (strength(a.kind) != strength(b.kind)) return strength(a.kind) > strength(b.kind) ? a : b;
  LeaseChoice both = a;
  both.multiprocessors = std::max(a.multiprocessors, b.multiprocessors);
  return both;
}

LeaseDecision decide(const LeaseRequest& request, const LeaseOffer& offer) {
  LeaseDecision decision = wanted(request);
  const LeaseKind kind = decision.choice.kind;
  if (kind == LeaseKind::shared || kind == LeaseKind::private_own) return decision;
  const bool fits = offer.green && request.per_thread_stream.empty();
  if (fits) {
    if (kind == LeaseKind::automatic) decision.choice = LeaseChoice(LeaseKind::green);
    return decision;
  }
  decision.choice = LeaseChoice(LeaseKind::shared);
  decision.reason += "; shared, because ";
  decision.reason +=
      offer.green ? request.per_thread_stream +
                        " uses the per-thread default stream, which a green context does not have"
                  : offer.no_green;
  return decision;
}

}  // namespace ctxbroker::detail
