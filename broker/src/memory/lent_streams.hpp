// SPDX-License-Identifier: Apache-2.0
// Streams that an instance's activation makes and lends to its plug-in with each job. The broker
// ends them itself, so they are not in the ledger.
#pragma once

#include <cuda.h>

#include <optional>
#include <utility>

#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// The stream is lent to the tenant as long as this lives.
class LentStream {
 public:
  LentStream() = default;
  // Throws std::bad_alloc.
  LentStream(CUstream stream, TenantId tenant);
  LentStream(LentStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  LentStream& operator=(LentStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~LentStream();

 private:
  CUstream stream_ = nullptr;
};

// Whom it is lent to; nothing: to nobody. Any thread.
std::optional<TenantId> borrower_of(CUstream stream) noexcept;

}  // namespace ctxbroker::detail
