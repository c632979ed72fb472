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
  throw lease.entry_error(status, "the lease cannot be entered");
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

// Threads remember where a tenant stood, and not which: that one is another from here on.
Tenant::Tenant(std::shared_ptr<detail::TenantImpl> impl)
    : impl_(std::move(impl)), identity_(impl_->identity()) {
  detail::end_epoch();
}
Tenant::Tenant(Tenant&& from) noexcept
    : impl_(std::move(from.impl_)), identity_(std::move(from.identity_)) {
  detail::end_epoch();
}
Tenant& Tenant::operator=(Tenant&& from) noexcept {
  impl_ = std::move(from.impl_);
  identity_ = std::move(from.identity_);
  detail::end_epoch();
  return *this;
}
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

namespace detail {

// Begins a guard where it was not quick to begin. Functions that end by calling the next one, so
// that none saves registers for what it does not do itself.
struct LongBegin {
  [[gnu::noinline]] static void full(GuardRoom& room, Tenant& tenant, Lease& lease) {
    auto& frame = *new (room.frame) Frame(
        lease.target(),
        {.tenant = &lease.tenant(), .function = room.doing, .look_when_nested = false});
    const CUresult status = enter(frame);
    if (status == CUDA_SUCCESS) return;
    leave(frame);
    in_next_life(room, tenant, lease, status);
  }

  [[gnu::noinline]] static void lean(GuardRoom& room, Tenant& tenant, Lease& lease) {
    const Wanted wanted{&tenant, lease.device_ordinal(), lease.sound_at()};
    if (timeline_observed() || !enter_lean(room, lease.place(), wanted)) full(room, tenant, lease);
  }

  // A life that was lost and ends just now lets nobody in; there is a next one.
  [[gnu::cold]] static void in_next_life(GuardRoom& room, Tenant& tenant, Lease& lease,
                                         CUresult status) {
    if (!lease.lost()) refuse_entry(lease, status);
    lean(room, tenant, alive(tenant.impl_).lease(lease.device_ordinal()));
  }

  [[gnu::noinline]] static void in(GuardRoom& room, Tenant& tenant, Lease& lease,
                                   const char* doing) {
    const bool inside = is_inside_already(lease.generation(), &lease.tenant());
    room.doing = inside ? nullptr : doing;
    if (!inside) lean(room, tenant, lease);
  }

  // Inside a guard that is not lean there is nearly always nothing to do.
  static void in_unless_there(GuardRoom& room, Tenant& tenant, Lease& lease, const char* doing) {
    if (!is_surely_inside(lease.generation(), &lease.tenant())) {
      return in(room, tenant, lease, doing);
    }
    stay_right(&tenant, lease.sound_at());
    room.doing = nullptr;
  }

  [[gnu::noinline]] static void in_renewed(GuardRoom& room, Tenant& tenant, int device,
                                           const char* doing) {
    in_unless_there(room, tenant, alive(tenant.impl_).lease(device), doing);
  }

  [[gnu::noinline]] static void anywhere(GuardRoom& room, Tenant& tenant, int device,
                                         const char* doing) {
    const TenantImpl* const impl = tenant.impl_.get();
    Lease* const sound = impl != nullptr ? impl->sound_lease(device) : nullptr;
    if (sound == nullptr) return in_renewed(room, tenant, device, doing);
    in_unless_there(room, tenant, *sound, doing);
  }

  // The thread knows the room, and whose guard it is to be: that need not be kept over the driver's
  // call.
  [[gnu::cold, gnu::noinline]] static void after_all() {
    ThreadNotes& thread = thread_notes;
    GuardRoom& room = thread.innermost.room();
    thread.innermost.clear();
    anywhere(room, *static_cast<Tenant*>(thread.tenant), thread.device, room.doing);
  }
};

}  // namespace detail

void Guard::begin(Tenant& tenant, int device, const char* doing) {
  // Not `impl_`: a load that is done without. Another tenant at the same address is one of another
  // epoch.
  if (detail::is_where_it_was(&tenant, device)) [[likely]] {
    const detail::Innermost::Look innermost = detail::thread_notes.innermost.look();
    if (innermost.none()) [[likely]] {
      room_.doing = doing;
      if (detail::enter_lean_again(room_)) [[likely]]
        return;
      return detail::LongBegin::after_all();
    }
    if (innermost.is_lean() && detail::is_right_there()) [[likely]] {
      room_.doing = nullptr;  // that one does for both
      return;
    }
  }
  detail::LongBegin::anywhere(room_, tenant, device, doing);
}

void Guard::end() noexcept {
  if (detail::thread_notes.innermost.is_lean(room_)) [[likely]]
    return detail::leave_lean();
  detail::leave(*std::launder(reinterpret_cast<detail::Frame*>(room_.frame)));
}

}  // namespace ctxbroker
