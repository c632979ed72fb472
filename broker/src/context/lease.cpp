#include "context/lease.hpp"

#include <string>
#include <utility>

namespace ctxbroker {

const char* to_string(LeaseKind kind) noexcept {
  switch (kind) {
    case LeaseKind::automatic:
      return "auto";
    case LeaseKind::shared:
      return "shared";
    case LeaseKind::private_own:
      return "private";
  }
  return "unknown";
}

std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept {
  for (const auto kind : {LeaseKind::automatic, LeaseKind::shared, LeaseKind::private_own}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

namespace detail {
namespace {

CUcontext make_private(const Driver& driver, CUdevice device, CallOwner owner) {
  CUcontext context = nullptr;
  // cuCtxCreate pushes what it makes; inside a guard for "no context" that is undone in any case.
  const GuardTarget nowhere{&driver.table, nullptr, 0};
  const CUresult status =
      guarded(nowhere, {}, [&] { return driver.table.ctx_create(&context, 0, device); });
  check(driver.table, status, "cuCtxCreate_v2", owner,
        [] { return "cannot make a private context"; });
  return context;
}

CUcontext retain_primary(const Driver& driver, CUdevice device, CallOwner owner) {
  CUcontext context = nullptr;
  check(driver.table, driver.table.primary_retain(&context, device), "cuDevicePrimaryCtxRetain",
        owner, [] { return "cannot retain the device's primary context"; });
  return context;
}

}  // namespace

LeaseDecision decide(const LeaseRequest& request) {
  if (request.asked != LeaseKind::automatic) {
    return {request.asked, std::string("the host asked for ") + to_string(request.asked)};
  }
  if (request.unmet_wish != nullptr) {
    return {LeaseKind::shared, std::string("the plug-in wishes ") + request.unmet_wish +
                                   ", which this version cannot grant"};
  }
  if (request.wish != LeaseKind::automatic) {
    return {request.wish, std::string("the plug-in wishes ") + to_string(request.wish)};
  }
  return {LeaseKind::shared, "neither host nor plug-in asked for another"};
}

Lease::Lease(const Driver& driver, std::shared_ptr<const Tenant> tenant,
             const LeaseRequest& request, const LeaseDecision& decision)
    : driver_(driver), tenant_(std::move(tenant)) {
  info_.tenant = tenant_->id;
  info_.device = request.device;
  info_.asked = request.asked;
  info_.granted = decision.kind;
  info_.reason = decision.reason;
  const int count = static_cast<int>(driver.handles.size());
  if (request.device < 0 || request.device >= count) {
    throw Error(ErrorKind::no_device,
                "there is no device " + std::to_string(request.device) + "; the driver has " +
                    (count == 1 ? "device 0 only" : "devices 0 to " + std::to_string(count - 1)));
  }
  const CUdevice handle = driver.handles[static_cast<std::size_t>(request.device)];
  info_.context = decision.kind == LeaseKind::private_own ? make_private(driver, handle, owner())
                                                          : retain_primary(driver, handle, owner());
  info_.generation = next_generation();
  tenant_->recorder->record(Severity::info, tenant_->id, tenant_->name, "lease",
                            std::string(to_string(info_.granted)) + " lease on device " +
                                std::to_string(info_.device) + ", generation " +
                                std::to_string(info_.generation) + ": " + info_.reason);
}

Lease::~Lease() {
  const CUdevice handle = driver_.handles[static_cast<std::size_t>(info_.device)];
  CUresult status = CUDA_SUCCESS;
  if (info_.granted == LeaseKind::private_own) {
    // Destroying a context that is current pops it: keep the caller's stack out of it.
    status = guarded({&driver_.table, nullptr, 0}, {},
                     [&] { return driver_.table.ctx_destroy(info_.context); });
  } else {
    status = driver_.table.primary_release(handle);
  }
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED || lost()) return;
  try {
    tenant_->recorder->record(
        Severity::warning, tenant_->id, tenant_->name, "lease",
        "the lease's context could not be ended: " + status_text(driver_.table, status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor; out of memory for a log line
  }
}

CUresult Lease::note(CUresult status) noexcept {
  if (loses_context(status)) mark_lost();
  return status;
}

}  // namespace detail
}  // namespace ctxbroker
