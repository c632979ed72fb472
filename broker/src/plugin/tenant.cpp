#include "ctxbroker/tenant.hpp"

#include <new>
#include <utility>

#include "context/quick_guard.hpp"
#include "ctxbroker/error.hpp"
#include "observe/span.hpp"
#include "plugin/library_file.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {
namespace {

// The errors stand in functions of their own, so that a guard saves no registers for them.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_closed() {
  throw Error(ErrorKind::wrong_state, "the tenant is closed");
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_entry(detail::Lease& lease, CUresult status) {
  lease.note(status);
  throw detail::driver_error(lease.table(), status, "cuCtxPushCurrent_v2",
                             "the lease cannot be entered", lease.owner());
}

detail::TenantImpl& alive(const std::shared_ptr<detail::TenantImpl>& impl) {
  if (impl == nullptr) refuse_closed();
  return *impl;
}

}  // namespace

const std::filesystem::path& AdoptedLibrary::path() const noexcept {
  return image_->path;
}

void* AdoptedLibrary::symbol(const char* name) const {
  if (!image_->library.is_loaded()) {
    throw Error(ErrorKind::wrong_state,
                "\"" + image_->path.string() + "\" ended with the tenant it was loaded for");
  }
  if (name == nullptr || !image_->library.has(name)) return nullptr;
  return &image_->library.get<char>(name);
}

Tenant::Tenant(std::shared_ptr<detail::TenantImpl> impl)
    : impl_(std::move(impl)), identity_(impl_->identity()) {}
Tenant::Tenant(Tenant&&) noexcept = default;
Tenant& Tenant::operator=(Tenant&&) noexcept = default;
Tenant::~Tenant() = default;

TenantId Tenant::id() const noexcept {
  return identity_->id;
}

const std::string& Tenant::name() const noexcept {
  return identity_->name;
}

AdoptedLibrary Tenant::adopt(const std::filesystem::path& library) {
  return AdoptedLibrary(alive(impl_).adopt(detail::canonical_library(library)));
}

LeaseInfo Tenant::lease(int device) {
  return alive(impl_).lease(device).info();
}

LeaseState Tenant::note(int driver_status, int device) noexcept {
  return impl_ == nullptr ? LeaseState::lost
                          : impl_->note(static_cast<CUresult>(driver_status), device);
}

std::uint64_t Tenant::allocate(std::uint64_t bytes, int device) {
  return alive(impl_).allocate(bytes, device);
}

void Tenant::release(std::uint64_t address) {
  alive(impl_).release(address);
}

CUstream Tenant::make_stream(int device) {
  return alive(impl_).make_stream(device);
}

void Tenant::end_stream(CUstream stream) {
  alive(impl_).end_stream(stream);
}

void Tenant::enable_peer_access(int device, int peer) {
  alive(impl_).enable_peer_access(device, peer);
}

std::uint64_t Tenant::memory_bytes() const noexcept {
  return impl_ == nullptr ? 0 : impl_->memory_bytes();
}

std::uint64_t Tenant::strikes() const noexcept {
  return identity_->strikes.load(std::memory_order_relaxed);
}

void Tenant::close() {
  if (impl_ == nullptr) return;
  impl_->close();
  impl_.reset();
}

// What begins a guard stands in functions of their own, each reached by a jump: what is quick saves
// no registers for what is not.
[[gnu::noinline]] void Guard::begin_again(const char* doing) {
  detail::ThreadNotes& thread = detail::thread_notes;
  thread.doing = doing;
  if (!detail::timeline_observed() && detail::enter_lean_again(frame_)) {
    entered_ = true;
    return;
  }
  // The thread knows whose: that need not be kept over the driver's call.
  begin_anywhere(static_cast<detail::TenantImpl*>(thread.tenant), thread.device, thread.doing);
}

[[gnu::noinline]] void Guard::begin_anywhere(detail::TenantImpl* tenant, int device,
                                             const char* doing) {
  if (tenant == nullptr) refuse_closed();
  detail::Lease* const sound = tenant->sound_lease(device);
  detail::Lease& lease = sound != nullptr ? *sound : tenant->lease(device);
  if (detail::is_inside_already(lease.generation(), &lease.tenant())) return;
  begin(*tenant, lease, doing);
}

[[gnu::noinline]] void Guard::begin(detail::TenantImpl& tenant, detail::Lease& lease,
                                    const char* doing) {
  const detail::Wanted wanted{&tenant, lease.device_ordinal(), lease.sound_at()};
  if (detail::timeline_observed() || !detail::enter_lean(frame_, lease.place(), wanted, doing)) {
    return begin_full(tenant, lease, doing);
  }
  entered_ = true;
}

[[gnu::noinline]] void Guard::begin_full(detail::TenantImpl& tenant, detail::Lease& lease,
                                         const char* doing) {
  static_assert(sizeof(detail::Frame) <= sizeof frame_ &&
                alignof(detail::Frame) <= alignof(std::max_align_t));
  auto& frame = *new (frame_) detail::Frame(
      lease.target(), {.tenant = &lease.tenant(), .function = doing, .look_when_nested = false});
  entered_ = true;
  const CUresult status = detail::enter(frame);
  if (status == CUDA_SUCCESS) return;
  detail::leave(frame);
  entered_ = false;
  begin_anew(tenant, lease, doing, status);
}

// A life that was lost and ends just now lets nobody in; there is a next one.
[[gnu::cold]] void Guard::begin_anew(detail::TenantImpl& tenant, detail::Lease& lease,
                                     const char* doing, int status) {
  if (!lease.lost()) refuse_entry(lease, static_cast<CUresult>(status));
  begin(tenant, tenant.lease(lease.device_ordinal()), doing);
}

Guard::Guard(Tenant& tenant, int device, const char* doing) {
  detail::TenantImpl* const impl = tenant.impl_.get();
  if (!detail::is_where_it_was(impl, device)) {
    begin_anywhere(impl, device, doing);
  } else if (!detail::is_in_lean_guard()) {  // which does for both
    begin_again(doing);
  }
}

void Guard::end() noexcept {
  if (detail::is_lean(frame_)) return detail::leave_lean();
  detail::leave(*std::launder(reinterpret_cast<detail::Frame*>(frame_)));
}

}  // namespace ctxbroker
