// cuMemcpy and its relatives, of linear memory. A synchronous call works in the legacy stream, or,
// as _ptds, in the thread's own; then the null stream means that one too.
#include <cstdint>

#include "api/context.hpp"
#include "api/copy.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

Surface host(const void* pointer) {
  return {Side::host, reinterpret_cast<std::uintptr_t>(pointer), 0};
}
Surface on_device(CUdeviceptr address) {
  return {Side::device, address, 0};
}
Surface unified(CUdeviceptr address) {
  return {Side::unified, address, 0};
}

CUresult copy_now(CUstream stream, Surface to, Surface from, std::size_t bytes) {
  return initialised([&] {
    return copy(find_stream(stream), to, from, {bytes, 1}, Waiting::done);
  });
}

// Between device addresses even the synchronous form returns before the copy is done.
CUresult copy_on_device(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return initialised([&] {
    return copy(find_stream(stream), on_device(to), on_device(from), {bytes, 1},
                Waiting::as_driver);
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
                   CUcontext from_context, std::size_t bytes) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    require(Process::fault() == CUDA_SUCCESS, Process::fault());
    require_contexts(to_context, from_context);
    return copy(found, on_device(to), on_device(from), {bytes, 1}, Waiting::as_driver);
  });
}

// One side of a two-dimensional copy.
Surface surface_of(CUmemorytype type, const void* pointer, CUdeviceptr address, std::size_t pitch,
                   std::size_t x, std::size_t y, std::size_t width) {
  if (pitch == 0) pitch = x + width;
  require_value(x <= SIZE_MAX - width && pitch >= x + width);
  Surface surface;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      surface = host(pointer);
      break;
    case CU_MEMORYTYPE_DEVICE:
      surface = on_device(address);
      break;
    case CU_MEMORYTYPE_UNIFIED:
      surface = unified(address);
      break;
    case CU_MEMORYTYPE_ARRAY:
      fail(CUDA_ERROR_NOT_SUPPORTED);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  std::size_t skipped = 0;
  require_value(!__builtin_mul_overflow(y, pitch, &skipped) && skipped <= SIZE_MAX - x);
  require_value(surface.address <= UINTPTR_MAX - skipped - x);
  surface.address += skipped + x;
  surface.pitch = pitch;
  return surface;
}

CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D* request, Waiting waiting) {
  return initialised([&] {
    require_value(request != nullptr);
    const CUDA_MEMCPY2D& r = *request;
    std::shared_ptr<Stream> found = find_stream(stream);
    require(Process::fault() == CUDA_SUCCESS, Process::fault());
    Surface from = surface_of(r.srcMemoryType, r.srcHost, r.srcDevice, r.srcPitch, r.srcXInBytes,
                              r.srcY, r.WidthInBytes);
    Surface to = surface_of(r.dstMemoryType, r.dstHost, r.dstDevice, r.dstPitch, r.dstXInBytes,
                            r.dstY, r.WidthInBytes);
    return copy(found, to, from, {r.WidthInBytes, r.Height}, waiting);
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
  return copy_peer(CU_STREAM_LEGACY, to, to_context, from, from_context, bytes);
}
CTXB_EXPORT CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                       CUcontext from_context, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return copy_peer(CU_STREAM_PER_THREAD, to, to_context, from, from_context, bytes);
}
CTXB_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* request) {
  CTXB_COUNT_CALL();
  return copy_2d(CU_STREAM_LEGACY, request, Waiting::done);
}
CTXB_EXPORT CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* request) {
  CTXB_COUNT_CALL();
  return copy_2d(CU_STREAM_PER_THREAD, request, Waiting::done);
}
CTXB_EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* request) {
  CTXB_COUNT_CALL();
  return copy_2d(CU_STREAM_LEGACY, request, Waiting::done);
}
CTXB_EXPORT CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* request) {
  CTXB_COUNT_CALL();
  return copy_2d(CU_STREAM_PER_THREAD, request, Waiting::done);
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
  return copy_peer(stream, to, to_context, from, from_context, bytes);
}
CTXB_EXPORT CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                            CUcontext from_context, std::size_t bytes,
                                            CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_peer(per_thread(stream), to, to_context, from, from_context, bytes);
}
CTXB_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* request, CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_2d(stream, request, Waiting::as_driver);
}
CTXB_EXPORT CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* request, CUstream stream) {
  CTXB_COUNT_CALL();
  return copy_2d(per_thread(stream), request, Waiting::as_driver);
}
