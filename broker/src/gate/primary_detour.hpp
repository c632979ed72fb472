// SPDX-License-Identifier: Apache-2.0
// Work that the driver does not take in streams of a green context: it is done in a stream of the
// primary, on which the green context stands.
#pragma once

#include <utility>

#include "context/hung_work.hpp"
#include "context/lease.hpp"

namespace ctxbroker::detail {

// Makes `call(other)`, which enqueues work, with a stream of the lease's memory context. The work
// has its place in `stream`: it comes after what is enqueued there now, and before what comes
// later. The caller is in the lease, and the stream is not being captured. Returns the first error.
template <typename Call>
CUresult call_in_primary(const Lease& lease, CUstream stream, Call&& call) noexcept {
  const DriverTable& table = lease.table();
  CUstream other = nullptr;
  CUevent reached = nullptr;
  CUresult status = call_in(table, lease.memory_context(), [&] {
    const CUresult made = table.event_create(&reached, CU_EVENT_DISABLE_TIMING);
    return made == CUDA_SUCCESS ? table.stream_create(&other, CU_STREAM_NON_BLOCKING) : made;
  });
  const auto then = [&](auto&& step) {
    if (status == CUDA_SUCCESS) status = step();
  };
  then([&] { return table.event_record(reached, stream); });
  then([&] { return table.stream_wait_event(other, reached, 0); });
  then([&] { return std::forward<Call>(call)(other); });
  then([&] { return table.event_record(reached, other); });
  then([&] { return table.stream_wait_event(stream, reached, 0); });
  // Both end when the work has.
  if (other != nullptr) table.stream_destroy(other);
  if (reached != nullptr) table.event_destroy(reached);
  return status;
}

}  // namespace ctxbroker::detail
