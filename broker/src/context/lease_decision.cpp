// SPDX-License-Identifier: Apache-2.0
#include "context/lease_decision.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "observe/enum_names.hpp"

namespace ctxbroker {
namespace {

// In the order of the enumerations.
constexpr std::array lease_kind_names{"auto", "shared", "private", "green", "worker"};
constexpr std::array lease_state_names{"ready", "lost", "ended", "hung"};

}  // namespace

const char* to_string(LeaseKind kind) noexcept {
  return detail::name_of(lease_kind_names, kind);
}

const char* to_string(LeaseState state) noexcept {
  return detail::name_of(lease_state_names, state);
}

std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept {
  const auto kind = detail::value_of<LeaseKind>(lease_kind_names, text);
  return kind == LeaseKind::worker ? std::nullopt : kind;
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
  if (kind == LeaseKind::private_own) return 3;
  if (kind == LeaseKind::green) return 2;
  return kind == LeaseKind::shared ? 1 : 0;
}

LeaseDecision wanted(const LeaseRequest& request) {
  if (request.asked.kind == LeaseKind::worker) {
    return {LeaseChoice(),
            request.asked_by + " asked for worker, which a WorkerGraph grants; taken as auto here"};
  }
  if (request.asked.kind != LeaseKind::automatic) {
    return {request.asked, request.asked_by + " asked for " + to_string(request.asked)};
  }
  const std::string wisher = request.wished_by.empty() ? "the plug-in" : request.wished_by;
  if (request.wish.kind == LeaseKind::worker) {
    return {LeaseChoice(),
            wisher + " wishes worker, which a WorkerGraph grants; taken as auto here"};
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
  if (kind == LeaseKind::automatic && !offer.hung.empty()) {
    decision.choice = LeaseChoice(LeaseKind::private_own);
    decision.reason += "; private, because " + offer.hung +
                       ", and the driver loads no module in a shared or green lease before that "
                       "work ends";
    return decision;
  }
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
