// SPDX-License-Identifier: Apache-2.0
/// @file
/// A CUDA stream with an owner.
#pragma once

#include <memory>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
class TenantImpl;
}
class Tenant;

/// A stream that a tenant holds. The destructor destroys the stream. Work in the stream still
/// completes.
///
/// The object may outlive the tenant. Closing the tenant destroys the stream, and the destructor
/// then does nothing. The handle is dead after that, and after a loss of the lease. The class is
/// move-only, and a moved-from object holds nothing.
///
/// Do not give its handle to Tenant::destroy_stream; call reset, or take it out with detach.
///
/// Threads: the rules of Tenant::create_stream and Tenant::destroy_stream.
class CTXB_API Stream {
 public:
  /// Holds nothing.
  Stream() noexcept = default;
  /// Creates a stream, as Tenant::create_stream does.
  ///
  /// @param tenant  the tenant that holds it. The object keeps no reference to `tenant` itself.
  /// @param device  CUDA device ordinal.
  /// @throws Error  as Tenant::create_stream.
  [[nodiscard]] explicit Stream(Tenant& tenant, int device = 0);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream() { reset(); }

  /// The stream, or null when it holds nothing.
  [[nodiscard]] CUstream get() const& noexcept { return stream_; }
  CUstream get() const&& = delete;  // The stream ends with the object: keep it.
  /// Whether it holds a stream. It does not tell whether the tenant was closed.
  [[nodiscard]] explicit operator bool() const noexcept { return stream_ != nullptr; }

  /// Destroys the stream, as Tenant::destroy_stream does. The object then holds nothing. After the
  /// tenant's close, it makes no driver call.
  void reset() noexcept;
  /// Leaves the stream to the tenant, which destroys it at close or in Tenant::destroy_stream.
  ///
  /// @return the stream. The object then holds nothing.
  [[nodiscard]] CUstream detach() noexcept;

 private:
  std::weak_ptr<detail::TenantImpl> tenant_;
  CUstream stream_ = nullptr;
};

}  // namespace ctxbroker
