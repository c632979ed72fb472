// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/stream.hpp"

#include <utility>

#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {

Stream::Stream(Tenant& tenant, int device)
    : tenant_(detail::Access::of(tenant)),
      stream_(detail::Access::of(tenant)->create_stream(device)) {}

Stream::Stream(Stream&& other) noexcept
    : tenant_(std::move(other.tenant_)), stream_(std::exchange(other.stream_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  reset();
  tenant_ = std::move(other.tenant_);
  stream_ = std::exchange(other.stream_, nullptr);
  return *this;
}

void Stream::reset() noexcept {
  CUstream const stream = detach();
  if (stream == nullptr) return;
  try {
    const auto tenant = tenant_.lock();
    if (tenant != nullptr && tenant->broker().is_in_its_process()) tenant->destroy_stream(stream);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the tenant has destroyed it already
  }
}

CUstream Stream::detach() noexcept {
  return std::exchange(stream_, nullptr);
}

}  // namespace ctxbroker
