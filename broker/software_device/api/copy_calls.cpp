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
    require(Process::fault() == CUDA_SUCCESS, Process::fault());
    return copy(find_stream(stream), to, from, {bytes, 1}, Waiting::as_driver);
  });
}

// Null stands for the current one.
void require_contexts(CUcontext to, CUcontext from) {
  if (to != nullptr) living_context(to);
  if (from != nullptr) living_context(from);
}

CUresult copy_peer(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                   CUcontext from_context, std::size_t bytes, Waiting waiting) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    require(Process::fault() == CUDA_SUCCESS, Process::fault());
    require_contexts(to_context, from_context);
    return copy(found, on_device(to), on_device(from), {bytes, 1}, waiting);
  });
}

}  // namespace

// Synchronous.

CTXB_EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_LEGACY, unified(to), unified(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_PER_THREAD, unified(to), unified(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_LEGACY, on_device(to), host(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_PER_THREAD, on_device(to), host(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_LEGACY, host(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_now(CU_STREAM_PER_THREAD, host(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_on_device(CU_STREAM_LEGACY, to, from, bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_on_device(CU_STREAM_PER_THREAD, to, from, bytes);
}
CTXB_EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_peer(CU_STREAM_LEGACY, to, to_context, from, from_context, bytes,
                   Waiting::unless_on_device);
}
CTXB_EXPORT CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                       CUcontext from_context, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_peer(CU_STREAM_PER_THREAD, to, to_context, from, from_context, bytes,
                   Waiting::unless_on_device);
}
// Asynchronous.

CTXB_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                   CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(stream, unified(to), unified(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                        CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(per_thread(stream), unified(to), unified(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                                          CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(stream, on_device(to), host(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, std::size_t bytes,
                                               CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(per_thread(stream), on_device(to), host(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes,
                                          CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(stream, host(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, std::size_t bytes,
                                               CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(per_thread(stream), host(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                          CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(stream, on_device(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                               CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_later(per_thread(stream), on_device(to), on_device(from), bytes);
}
CTXB_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                       CUcontext from_context, std::size_t bytes, CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_peer(stream, to, to_context, from, from_context, bytes, Waiting::as_driver);
}
CTXB_EXPORT CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                            CUcontext from_context, std::size_t bytes,
                                            CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_peer(per_thread(stream), to, to_context, from, from_context, bytes,
                   Waiting::as_driver);
}
