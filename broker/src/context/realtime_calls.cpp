// SPDX-License-Identifier: Apache-2.0
#include "context/realtime_calls.hpp"

#include <cstdio>
#include <new>

#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t between_news = 1'000'000'000;  // ns

}  // namespace

struct RealtimeCalls::Table {
  using Counter = std::atomic<std::uint64_t>;
  struct Counters {
    Counter count{0}, nanoseconds{0}, longest{0}, refused{0};
  };
  std::array<Counters, realtime_call_count> calls;
  std::mutex told_mutex;
  std::array<RealtimeFigures, realtime_call_count> told;  // in the texts so far
};

RealtimeCalls::~RealtimeCalls() {
  delete table_.load(std::memory_order_acquire);
}

RealtimeCalls::Table* RealtimeCalls::table() noexcept {
  Table* known = table_.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  std::unique_ptr<Table> made(new (std::nothrow) Table{});
  if (made == nullptr ||
      !table_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return known;
  }
  return made.release();
}

bool RealtimeCalls::is_news_due() const noexcept {
  return timeline_now() >= next_news_.load(std::memory_order_relaxed);
}

void RealtimeCalls::count(std::size_t call, std::uint64_t nanoseconds) noexcept {
  Table* const counted = table();
  if (counted == nullptr) return;
  Table::Counters& counters = counted->calls[call];
  counters.count.fetch_add(1, std::memory_order_relaxed);
  counters.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
  std::uint64_t longest = counters.longest.load(std::memory_order_relaxed);
  while (nanoseconds > longest &&
         !counters.longest.compare_exchange_weak(longest, nanoseconds, std::memory_order_relaxed)) {
  }
}

void RealtimeCalls::count_refused(std::size_t call) noexcept {
  if (Table* const counted = table()) {
    counted->calls[call].refused.fetch_add(1, std::memory_order_relaxed);
  }
}

RealtimeFigures RealtimeCalls::figures(std::size_t call) const noexcept {
  const Table* const counted = table_.load(std::memory_order_acquire);
  if (counted == nullptr) return {};
  const Table::Counters& counters = counted->calls[call];
  return {counters.count.load(std::memory_order_relaxed),
          counters.nanoseconds.load(std::memory_order_relaxed),
          counters.longest.load(std::memory_order_relaxed),
          counters.refused.load(std::memory_order_relaxed)};
}

RealtimeCalls::News RealtimeCalls::news(bool at_once) {
  Table* const counted = table_.load(std::memory_order_acquire);
  if (counted == nullptr) return {};
  const std::unique_lock lock(counted->told_mutex, std::try_to_lock);
  if (!lock.owns_lock() || (!at_once && !is_news_due())) return {};
  News news;
  std::string& text = news.text;
  for (std::size_t call = 0; call < realtime_call_count; ++call) {
    const RealtimeFigures now = figures(call);
    const RealtimeFigures before = counted->told[call];
    const std::uint64_t made = now.count - before.count, refused = now.refused - before.refused;
    if (made == 0 && refused == 0) continue;
    char figures_text[96];
    std::snprintf(figures_text, sizeof figures_text, " %llu (%.3f ms)",
                  static_cast<unsigned long long>(made),
                  static_cast<double>(now.nanoseconds - before.nanoseconds) / 1e6);
    text += (text.empty() ? "" : ", ") + std::string(realtime_calls[call].name) + figures_text;
    if (refused != 0) text += ", refused " + std::to_string(refused);
    news.any_refused = news.any_refused || refused != 0;
    counted->told[call] = now;
  }
  if (text.empty()) return {};
  next_news_.store(timeline_now() + between_news, std::memory_order_relaxed);
  text = "calls in a real-time session that hold up neighbours: " + text;
  return news;
}

}  // namespace ctxbroker::detail
