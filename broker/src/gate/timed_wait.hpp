// A tenant's call during which the calling thread waits for the device.
#pragma once

#include "gate/gated_tenant.hpp"
#include "observe/span.hpp"
#include "observe/ticks.hpp"

namespace ctxbroker::detail {

// From here to the end of the scope. Two readings of a cheap clock; no lock, no allocation.
class TimedWait {
 public:
  // `function` is static text.
  TimedWait(GatedTenant& tenant, const char* function) noexcept
      : tenant_(tenant),
        span_(SpanCategory::wait, function, nullptr, tenant.id()),
        from_(ticks_now()) {}
  ~TimedWait() { tenant_.count_wait(ticks_between(from_, ticks_now())); }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;

 private:
  GatedTenant& tenant_;
  const ScopedSpan span_;
  const std::uint64_t from_;
};

}  // namespace ctxbroker::detail
