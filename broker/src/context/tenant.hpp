// Who a driver call, a strike or an allocation belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "ctxbroker/tenant_id.hpp"
#include "observe/recorder.hpp"

namespace ctxbroker::detail {

struct Tenant {
  TenantId id;
  std::string name;                    // the plug-in library's name, or "host"
  const Recorder* recorder = nullptr;  // borrowed; outlives the tenant
};

// The next id that no tenant of this process ever had.
TenantId next_tenant_id() noexcept;

// The next number for the life of a context, or of an activation: unique in the process, growing.
std::uint64_t next_generation() noexcept;

// Records one breach of the plug-in contract. `function` is where it happened ("process"),
// `counter` the instance's count, or null. Never throws.
void strike(const Tenant& tenant, std::atomic<std::uint64_t>* counter, const char* function,
            const char* what) noexcept;

}  // namespace ctxbroker::detail
