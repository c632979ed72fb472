// SPDX-License-Identifier: Apache-2.0
// cuMemcpy and its relatives, of one row of memory. A synchronous call works in the legacy stream,
// or, as _ptds, in the thread's own; then the null stream means that one too.
#include <cstdint>

#include "api/context.hpp"
#include "api/copy.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

Surface host(const void* pointer) {
  return {Side::host, reinterpret_cast<std::uintptr_t>(pointer)};
}
Surface on_device(CUdeviceptr address) {
  return {Side::device, address};
}
Surface unified(CUdeviceptr address) {
  return {Side::unified, address};
}

CUresult copy_now(CUstream stream, Surface to, Surface from, std::size_t bytes) {
  return initialised([&] {
    return copy(find_stream(stream), to, from, {bytes, 1}, Waiting::done);
  });
}

// Within device memory even the synchronous form returns before the copy is done.
CUresult copy_on_device(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return initialised([&] {
    return copy(find_stream(stream), on_device(to), on_device(from), {bytes, 1},
                Waiting::unless_on_device);
  });
}

CUresult copy_later(CUstream stream, Surface to, Surface from, std::size_t bytes) {
  return initialised([&] {
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    return copy(find_stream(stream), to, from, {bytes, 1}, Waiting::as_driver);
  });
}

// Null stands for the current one.
void check_contexts(CUcontext to, CUcontext from) {
  if (to != nullptr) living_context(to);
  if (from != nullptr) living_context(from);
}

CUresult copy_peer(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                   CUcontext from_context, std::size_t bytes, Waiting waiting) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    check_contexts(to_context, from_context);
    return copy(found, on_device(to), on_device(from), {bytes, 1}, waiting);
  });
}

}  // namespace

// Synchronous.

CTXB_EXPORT_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                 copy_now(stream, unified(to), unified(from), bytes))
CTXB_EXPORT_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, std::size_t bytes),
                 copy_now(stream, on_device(to), host(from), bytes))
CTXB_EXPORT_PTDS(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, std::size_t bytes),
                 copy_now(stream, host(to), on_device(from), bytes))
CTXB_EXPORT_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                 copy_on_device(stream, to, from, bytes))
CTXB_EXPORT_PTDS(cuMemcpyPeer,
                 (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  std::size_t bytes),
                 copy_peer(stream, to, to_context, from, from_context, bytes,
                           Waiting::unless_on_device))
// Asynchronous.

CTXB_EXPORT_PTSZ(cuMemcpyAsync,
                 (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                 copy_later(stream, unified(to), unified(from), bytes))
CTXB_EXPORT_PTSZ(cuMemcpyHtoDAsync_v2,
                 (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream),
                 copy_later(stream, on_device(to), host(from), bytes))
CTXB_EXPORT_PTSZ(cuMemcpyDtoHAsync_v2,
                 (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                 copy_later(stream, host(to), on_device(from), bytes))
CTXB_EXPORT_PTSZ(cuMemcpyDtoDAsync_v2,
                 (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                 copy_later(stream, on_device(to), on_device(from), bytes))
CTXB_EXPORT_PTSZ(cuMemcpyPeerAsync,
                 (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  std::size_t bytes, CUstream stream),
                 copy_peer(stream, to, to_context, from, from_context, bytes, Waiting::as_driver))
