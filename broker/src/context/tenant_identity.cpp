// SPDX-License-Identifier: Apache-2.0
#include "context/tenant_identity.hpp"

#include <array>
#include <cstdio>

#include "context/hung_work.hpp"
#include "observe/crash_report.hpp"
#include "observe/enum_names.hpp"
#include "observe/span.hpp"

namespace ctxbroker {
namespace {

// In the order of the enumeration.
constexpr std::array memory_source_names{"auto", "driver", "pool"};

}  // namespace

const char* to_string(MemorySource source) noexcept {
  return detail::name_of(memory_source_names, source);
}

std::optional<MemorySource> parse_memory_source(std::string_view text) noexcept {
  return detail::value_of<MemorySource>(memory_source_names, text);
}

}  // namespace ctxbroker

namespace ctxbroker::detail {
namespace {

// Global because ids are promised to be unique in the process, whatever the number of brokers.
std::atomic<std::uint32_t> last_tenant{0};
std::atomic<std::uint64_t> last_generation{0};

}  // namespace

void HungFamilies::add(int device, const std::shared_ptr<HungWork>& family) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(families_, [&](const auto& one) {
    const auto known = one.second.lock();
    return known == nullptr || known == family || known->idle();
  });
  try {
    families_.emplace_back(device, family);
    any_.store(true, std::memory_order_release);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): 16 bytes
  }
}

void HungFamilies::refuse(int device) noexcept {
  refused_.fetch_or(std::uint64_t{1} << (device % 64), std::memory_order_acq_rel);
}

bool HungFamilies::is_refused(int device) const noexcept {
  return ((refused_.load(std::memory_order_acquire) >> (device % 64)) & 1) != 0;
}

std::shared_ptr<HungWork> HungFamilies::on_other_device(int device,
                                                        const HungWork* here) const noexcept {
  if (!any_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const auto& [where, weak] : families_) {
    auto family = weak.lock();
    const bool is_other = where != device || (here != nullptr && family.get() != here);
    if (is_other && family != nullptr && family->has_to_be_awaited()) return family;
  }
  return nullptr;
}

void TenantIdentity::log(Severity severity, const char* topic, std::string text) const noexcept {
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
  const std::uint64_t count = tenant.repeats.count(function, what);
  if (!is_told(count)) return;
  tenant.log(Severity::warning, "strike",
             [&] { return std::string(function) + ": " + what + repeats_text(count); });
}

void say_replaced_handlers(const TenantIdentity& tenant) noexcept {
  while (const char* const name = replaced_signal_handler()) {
    tenant.log(Severity::warning, "crash", [&] {
      return std::string("code of the library has replaced the handler of ") + name +
             ". A crash is named only if the new handler calls the one that it replaced";
    });
  }
}

}  // namespace ctxbroker::detail
