// SPDX-License-Identifier: Apache-2.0
// Work in streams that counts as failed, because a function of a tenant's code in the stream, which
// the driver called, has thrown an exception or ended its thread. The driver itself has no way to
// fail a stream's work from such a function.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// Who is told of failed work: the tenant's code, when it waits, and the host, when a job is done.
enum class FailureReader : std::uint8_t { code, job };

// A function of the tenant's code in this stream has failed; null: it is not known in which stream.
void add_failed_work(TenantId tenant, CUstream stream) noexcept;
// Returns whether a function in this stream has failed since the reader was last told, which counts
// as telling it. For the code, CU_STREAM_LEGACY means any stream of the tenant, for waits for a
// whole context. Takes no lock if nothing has failed. Any thread.
bool take_failed_work(TenantId tenant, CUstream stream, FailureReader reader) noexcept;
// Returns how many functions have failed so far.
std::uint64_t failed_work_count() noexcept;
// The stream has ended, or is new: its handle may have been another's. Where it has ended, it may
// be another's again, so `count` is what failed_work_count returned before the driver's call: what
// has failed since is not forgotten.
void forget_failed_work(CUstream stream, std::uint64_t count = UINT64_MAX) noexcept;

}  // namespace ctxbroker::detail
