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
[[gnu::noinline]] void Guard::begin(Tenant& tenant, detail::Lease& lease, const char* doing) {
  const detail::GuardTarget target = lease.target();
  if (!detail::is_known(target) || detail::timeline_observed()) {
    return begin_full(tenant, lease, doing);
  }
  const detail::Pushed done = detail::push_known(target);
  if (done.status != CUDA_SUCCESS) return begin_anew(tenant, lease, doing, done.status);
  // Written behind the driver's call, which would wait for what was written before it.
  detail::note_known(
      *new (frame_) detail::Frame(detail::Frame::Bare{}, target, &lease.tenant(), doing), done);
  entered_ = true;
}

[[gnu::noinline]] void Guard::begin_full(Tenant& tenant, detail::Lease& lease, const char* doing) {
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

[[gnu::noinline]] void Guard::begin_after_look(Tenant& tenant, int device, const char* doing) {
  detail::Lease& lease = alive(tenant.impl_).lease(device);
  if (detail::is_inside_already(lease.generation(), &lease.tenant())) return;
  begin(tenant, lease, doing);
}

// A life that was lost and ends just now lets nobody in; there is a next one.
[[gnu::cold]] void Guard::begin_anew(Tenant& tenant, detail::Lease& lease, const char* doing,
                                     int status) {
  if (!lease.lost()) refuse_entry(lease, static_cast<CUresult>(status));
  begin(tenant, tenant.impl_->lease(lease.device_ordinal()), doing);
}

Guard::Guard(Tenant& tenant, int device, const char* doing) {
  const detail::TenantImpl* const impl = tenant.impl_.get();
  detail::Lease* const lease = impl != nullptr ? impl->sound_lease(device) : nullptr;
  if (lease == nullptr) {
    begin_after_look(tenant, device, doing);
  } else if (!detail::is_inside_already(lease->generation(), &lease->tenant())) {
    begin(tenant, *lease, doing);
  }
}

Guard::~Guard() {
  if (!entered_) return;
  auto& frame = *std::launder(reinterpret_cast<detail::Frame*>(frame_));
  if (frame.bare && detail::leave_known(frame)) return;
  detail::leave(frame);
}

}  // namespace ctxbroker
