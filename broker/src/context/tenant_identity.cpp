#include "context/tenant_identity.hpp"

#include <cstdio>

#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

// Global because ids are promised to be unique in the process, whatever the number of brokers.
std::atomic<std::uint32_t> last_tenant{0};
std::atomic<std::uint64_t> last_generation{0};

}  // namespace

void EndlessWork::note(int device) noexcept {
  int before = none;
  if (device_.compare_exchange_strong(before, device, std::memory_order_acq_rel)) return;
  if (before != device) device_.store(several, std::memory_order_release);
}

void TenantIdentity::say(Severity severity, const char* topic, std::string text) const noexcept {
  if (recorder != nullptr) recorder->record(severity, id, name, topic, std::move(text));
}

TenantId next_tenant_id() noexcept {
  return {++last_tenant};
}

std::uint64_t next_generation() noexcept {
  return ++last_generation;
}

void strike(const TenantIdentity& tenant, std::atomic<std::uint64_t>* counter, const char* function,
            const char* what) noexcept {
  tenant.strikes.fetch_add(1, std::memory_order_relaxed);
  if (counter != nullptr) counter->fetch_add(1, std::memory_order_relaxed);
  if (timeline_observed()) {
    char text[256];
    std::snprintf(text, sizeof text, "%s: %s", function, what);
    mark_instant(SpanCategory::strike, "strike", text, tenant.id);
  }
  if (tenant.recorder == nullptr || !tenant.recorder->listening()) return;
  try {
    tenant.recorder->record(Severity::warning, tenant.id, tenant.name, "strike",
                            std::string(function) + ": " + what);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

}  // namespace ctxbroker::detail
