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

// What begins a guard where it was not quick to begin. Functions that end by calling the next one,
// so that none saves registers for what it does not do itself.
namespace {

void begin_anew(detail::GuardRoom& room, detail::TenantImpl& tenant, detail::Lease& lease,
                CUresult status);

[[gnu::noinline]] void begin_full(detail::GuardRoom& room, detail::TenantImpl& tenant,
                                  detail::Lease& lease) {
  auto& frame = *new (room.frame) detail::Frame(
      lease.target(),
      {.tenant = &lease.tenant(), .function = room.doing, .look_when_nested = false});
  const CUresult status = detail::enter(frame);
  if (status == CUDA_SUCCESS) return;
  detail::leave(frame);
  begin_anew(room, tenant, lease, status);
}

[[gnu::noinline]] void begin(detail::GuardRoom& room, detail::TenantImpl& tenant,
                             detail::Lease& lease) {
  const detail::Wanted wanted{&tenant, lease.device_ordinal(), lease.sound_at()};
  if (detail::timeline_observed() || !detail::enter_lean(room, lease.place(), wanted)) {
    begin_full(room, tenant, lease);
  }
}

// A life that was lost and ends just now lets nobody in; there is a next one.
[[gnu::cold]] void begin_anew(detail::GuardRoom& room, detail::TenantImpl& tenant,
                              detail::Lease& lease, CUresult status) {
  if (!lease.lost()) refuse_entry(lease, status);
  begin(room, tenant, tenant.lease(lease.device_ordinal()));
}

[[gnu::noinline]] void begin_elsewhere(detail::GuardRoom& room, detail::TenantImpl* tenant,
                                       int device, const char* doing) {
  if (tenant == nullptr) refuse_closed();
  detail::Lease& lease = tenant->lease(device);
  if (detail::is_inside_already(lease.generation(), &lease.tenant())) {
    detail::stay_right(lease.sound_at());
    room.doing = nullptr;
    return;
  }
  room.doing = doing;
  begin(room, *tenant, lease);
}

// Inside a guard that is not lean there is nearly always nothing to do.
[[gnu::noinline]] void begin_anywhere(detail::GuardRoom& room, detail::TenantImpl* tenant,
                                      int device, const char* doing) {
  detail::Lease* const sound = tenant != nullptr ? tenant->sound_lease(device) : nullptr;
  if (sound != nullptr && detail::is_inside_already(sound->generation(), &sound->tenant())) {
    detail::stay_right(sound->sound_at());
    room.doing = nullptr;
    return;
  }
  begin_elsewhere(room, tenant, device, doing);
}

// The thread knows the room, and whose guard it is to be: that need not be kept over the driver's
// call.
[[gnu::cold, gnu::noinline]] void begin_after_all(detail::GuardRoom& room) {
  detail::ThreadNotes& thread = detail::thread_notes;
  thread.innermost.clear();
  begin_anywhere(room, static_cast<detail::TenantImpl*>(thread.tenant), thread.device, room.doing);
}

}  // namespace

void Guard::begin(Tenant& tenant, int device, const char* doing) {
  detail::TenantImpl* const impl = tenant.impl_.get();
  if (detail::is_where_it_was(impl, device)) [[likely]] {
    const detail::Innermost::Look innermost = detail::thread_notes.innermost.look();
    if (innermost.none()) [[likely]] {
      room_.doing = doing;
      if (detail::enter_lean_again(room_)) [[likely]]
        return;
      return begin_after_all(detail::thread_notes.innermost.room());
    }
    if (innermost.is_lean() && detail::is_right_there()) [[likely]] {
      room_.doing = nullptr;  // that one does for both
      return;
    }
  }
  begin_anywhere(room_, impl, device, doing);
}

void Guard::end() noexcept {
  if (detail::thread_notes.innermost.is_lean(room_)) [[likely]]
    return detail::leave_lean();
  detail::leave(*std::launder(reinterpret_cast<detail::Frame*>(room_.frame)));
}

}  // namespace ctxbroker
