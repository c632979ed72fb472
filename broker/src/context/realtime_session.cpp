// SPDX-License-Identifier: Apache-2.0
#include "context/realtime_session.hpp"

#include <new>
#include <utility>

#include "context/tenant_identity.hpp"
#include "context/thread_state.hpp"

namespace ctxbroker::detail {

void tell_realtime_calls(const TenantIdentity& tenant, bool at_once) noexcept {
  if (!at_once && !tenant.realtime.is_news_due()) return;
  try {
    RealtimeCalls::News news = tenant.realtime.news(at_once);
    if (news.text.empty()) return;
    tenant.log(news.any_refused ? Severity::warning : Severity::info, "realtime",
               std::move(news.text));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the metrics have it
  }
}

void note_realtime_call(const TenantIdentity& tenant, std::size_t call,
                        std::uint64_t nanoseconds) noexcept {
  tenant.realtime.count(call, nanoseconds);
  tell_realtime_calls(tenant, false);
}

void RealtimeSession::begin() noexcept {
  open_.fetch_add(1, std::memory_order_acq_rel);
  open_anywhere.fetch_add(1, std::memory_order_acq_rel);
}

bool RealtimeSession::end() noexcept {
  int open = open_.load(std::memory_order_relaxed);
  do {
    if (open == 0) return false;
  } while (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel));
  open_anywhere.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

void RealtimeSession::end_all() noexcept {
  while (end()) {
  }
}

void RealtimeWork::begin(const TenantIdentity& tenant, std::size_t call) noexcept {
  tenant_ = &tenant;
  call_ = call;
  // Calls of a tenant's code inside the host's own call are not refused: the host's call would
  // fail.
  const bool is_hosts = realtime_calls[call].answer == RealtimeAnswer::host_call;
  was_hosts_call_ = thread_state.is_in_hosts_call;
  thread_state.is_in_hosts_call = was_hosts_call_ || is_hosts;
  span_.emplace(SpanCategory::realtime, realtime_calls[call].name, tenant.name.c_str(), tenant.id);
  from_ = timeline_now();
}

void RealtimeWork::end() noexcept {
  const std::uint64_t nanoseconds = timeline_now() - from_;
  span_.reset();
  thread_state.is_in_hosts_call = was_hosts_call_;
  note_realtime_call(*tenant_, call_, nanoseconds);
}

}  // namespace ctxbroker::detail
