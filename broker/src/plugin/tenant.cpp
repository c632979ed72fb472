// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/tenant.hpp"

#include <utility>

#include "context/guard_frame.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/library_file.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {
namespace {

detail::TenantImpl& alive(const std::shared_ptr<detail::TenantImpl>& impl) {
  if (impl == nullptr || impl->is_closed()) {
    throw Error(ErrorKind::wrong_state, "the tenant is closed");
  }
  return *impl;
}

}  // namespace

const std::shared_ptr<detail::TenantImpl>& detail::Access::of(Tenant& tenant) {
  static_cast<void>(alive(tenant.impl_));
  return tenant.impl_;
}

const std::filesystem::path& AdoptedLibrary::path() const& noexcept {
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

const std::string& Tenant::name() const& noexcept {
  return identity_->name;
}

AdoptedLibrary Tenant::adopt(const std::filesystem::path& library, const AdoptOptions& options) {
  detail::TenantImpl& tenant = alive(impl_);
  // What stays after the close stays from now on. So a neighbour that closes it once too often
  // changes nothing.
  return AdoptedLibrary(
      tenant.adopt(detail::canonical_library(library), options, !tenant.unloads_at_close()));
}

LeaseInfo Tenant::lease(int device) {
  return alive(impl_).lease(device).info();
}

LeaseState Tenant::report_status(int device, int driver_status) noexcept {
  return impl_ == nullptr || impl_->is_closed()
             ? LeaseState::lost
             : impl_->report_status(static_cast<CUresult>(driver_status), device);
}

std::uint64_t Tenant::allocate(std::uint64_t bytes, int device) {
  return alive(impl_).allocate(bytes, device);
}

void Tenant::release(std::uint64_t address) {
  alive(impl_).release(address);
}

CUstream Tenant::create_stream(int device) {
  return alive(impl_).create_stream(device);
}

void Tenant::destroy_stream(CUstream stream) {
  alive(impl_).destroy_stream(stream);
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
  if (impl_ == nullptr || !impl_->broker().is_in_its_process()) return;
  const bool is_kept = impl_->broker().keeps(*impl_);
  if (is_kept || (identity_->id == host_tenant && impl_.use_count() > 1)) {
    impl_.reset();  // the other handles of it go on
  } else {
    impl_->close();
  }
}

// The storage is not cleared: a nested guard uses one byte of it. "flatten" puts `enter` into this
// function, which saves a guard about 2 ns.
[[gnu::flatten]] Guard::Guard(Tenant& tenant, int device, const char* function) {
  storage_.entered = false;
  if (tenant.impl_ == nullptr) alive(tenant.impl_);  // throws
  detail::TenantImpl& impl = *tenant.impl_;
  detail::Lease* lease = &impl.lease(device);  // throws when the tenant is closed
  if (detail::is_inside(lease->generation(), &lease->tenant())) return;
  for (;;) {
    detail::GuardFrame* const guard = detail::take_guard_frame();
    if (guard == nullptr) throw detail::no_guard_frame();
    const CUresult status = detail::enter(&guard->frame, lease->target(),
                                          {.tenant = &lease->tenant(),
                                           .function = function != nullptr ? function : "guard",
                                           .calls_plugin = false});
    if (status == CUDA_SUCCESS) {
      guard->frame.is_hosts = true;
      storage_.frame = guard;
      storage_.entered = true;
      return;
    }
    detail::leave(guard->frame);
    detail::give_back_guard_frame(*guard);
    lease = &impl.lease_after_refusal(*lease, status);
  }
}

void Guard::leave() noexcept {
  detail::end_guard(*storage_.frame);
}

}  // namespace ctxbroker
