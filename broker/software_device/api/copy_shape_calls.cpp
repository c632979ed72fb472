// SPDX-License-Identifier: Apache-2.0
// cuMemcpy2D and 3D, and copies to and from arrays. A synchronous call works in the legacy stream,
// or, as _ptds, in the thread's own.
#include "api/context.hpp"
#include "api/copy.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D& request, Waiting waiting) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    ShapedCopy shaped = shaped_copy(request);
    return copy(found, shaped.to, shaped.from, shaped.extent, waiting);
  });
}

CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D* request, Waiting waiting) {
  return request != nullptr ? copy_3d(stream, *request, waiting) : initialised([] {
    working_context();
    return CUDA_ERROR_INVALID_VALUE;
  });
}

// Null stands for the current context.
CUresult copy_3d_peer(CUstream stream, const CUDA_MEMCPY3D_PEER* request, Waiting waiting) {
  return initialised([&] {
    working_context();
    check_value(request != nullptr);
    if (request->srcContext != nullptr) living_context(request->srcContext);
    if (request->dstContext != nullptr) living_context(request->dstContext);
    CUDA_MEMCPY3D plain = {};
    plain.srcXInBytes = request->srcXInBytes;
    plain.srcY = request->srcY;
    plain.srcZ = request->srcZ;
    plain.srcLOD = request->srcLOD;
    plain.srcMemoryType = request->srcMemoryType;
    plain.srcHost = request->srcHost;
    plain.srcDevice = request->srcDevice;
    plain.srcArray = request->srcArray;
    plain.srcPitch = request->srcPitch;
    plain.srcHeight = request->srcHeight;
    plain.dstXInBytes = request->dstXInBytes;
    plain.dstY = request->dstY;
    plain.dstZ = request->dstZ;
    plain.dstLOD = request->dstLOD;
    plain.dstMemoryType = request->dstMemoryType;
    plain.dstHost = request->dstHost;
    plain.dstDevice = request->dstDevice;
    plain.dstArray = request->dstArray;
    plain.dstPitch = request->dstPitch;
    plain.dstHeight = request->dstHeight;
    plain.WidthInBytes = request->WidthInBytes;
    plain.Height = request->Height;
    plain.Depth = request->Depth;
    return copy_3d(stream, plain, waiting);
  });
}

CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D* request, Waiting waiting) {
  if (request == nullptr) return copy_3d(stream, nullptr, waiting);
  CUDA_MEMCPY3D plain = {};
  plain.srcXInBytes = request->srcXInBytes;
  plain.srcY = request->srcY;
  plain.srcMemoryType = request->srcMemoryType;
  plain.srcHost = request->srcHost;
  plain.srcDevice = request->srcDevice;
  plain.srcArray = request->srcArray;
  plain.srcPitch = request->srcPitch;
  plain.dstXInBytes = request->dstXInBytes;
  plain.dstY = request->dstY;
  plain.dstMemoryType = request->dstMemoryType;
  plain.dstHost = request->dstHost;
  plain.dstDevice = request->dstDevice;
  plain.dstArray = request->dstArray;
  plain.dstPitch = request->dstPitch;
  plain.WidthInBytes = request->WidthInBytes;
  plain.Height = request->Height;
  plain.Depth = 1;
  return copy_3d(stream, plain, waiting);
}

// One side of a copy of one row that begins in an array, `offset` bytes into it.
struct ArraySide {
  CUarray array;
  std::size_t offset;
};
struct LinearSide {
  CUmemorytype type;
  void* host;
  CUdeviceptr device;
};

void write_source(CUDA_MEMCPY3D& request, const ArraySide& side) {
  request.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  request.srcArray = side.array;
  request.srcXInBytes = side.offset;
}
void write_source(CUDA_MEMCPY3D& request, const LinearSide& side) {
  request.srcMemoryType = side.type;
  request.srcHost = side.host;
  request.srcDevice = side.device;
}
void write_target(CUDA_MEMCPY3D& request, const ArraySide& side) {
  request.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  request.dstArray = side.array;
  request.dstXInBytes = side.offset;
}
void write_target(CUDA_MEMCPY3D& request, const LinearSide& side) {
  request.dstMemoryType = side.type;
  request.dstHost = side.host;
  request.dstDevice = side.device;
}

template <class To, class From>
CUresult copy_row(CUstream stream, const To& to, const From& from, std::size_t bytes,
                  Waiting waiting) {
  CUDA_MEMCPY3D request = {};
  write_target(request, to);
  write_source(request, from);
  request.WidthInBytes = bytes;
  request.Height = request.Depth = 1;
  return copy_3d(stream, request, waiting);
}

LinearSide host(const void* pointer) {
  return {CU_MEMORYTYPE_HOST, const_cast<void*>(pointer), 0};
}
LinearSide on_device(CUdeviceptr address) {
  return {CU_MEMORYTYPE_DEVICE, nullptr, address};
}

}  // namespace

CTXB_EXPORT_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* request),
                 copy_2d(stream, request, Waiting::done))
CTXB_EXPORT_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* request),
                 copy_2d(stream, request, Waiting::done))
CTXB_EXPORT_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* request, CUstream stream),
                 copy_2d(stream, request, Waiting::as_driver))

CTXB_EXPORT_PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* request),
                 copy_3d(stream, request, Waiting::done))
CTXB_EXPORT_PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* request, CUstream stream),
                 copy_3d(stream, request, Waiting::as_driver))
CTXB_EXPORT_PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER* request),
                 copy_3d_peer(stream, request, Waiting::unless_on_device))
CTXB_EXPORT_PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER* request, CUstream stream),
                 copy_3d_peer(stream, request, Waiting::as_driver))

CTXB_EXPORT_PTDS(cuMemcpyHtoA_v2,
                 (CUarray to, std::size_t offset, const void* from, std::size_t bytes),
                 copy_row(stream, ArraySide{to, offset}, host(from), bytes, Waiting::done))
CTXB_EXPORT_PTDS(cuMemcpyAtoH_v2, (void* to, CUarray from, std::size_t offset, std::size_t bytes),
                 copy_row(stream, host(to), ArraySide{from, offset}, bytes, Waiting::done))
CTXB_EXPORT_PTDS(cuMemcpyDtoA_v2,
                 (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes),
                 copy_row(stream, ArraySide{to, offset}, on_device(from), bytes,
                          Waiting::unless_on_device))
CTXB_EXPORT_PTDS(cuMemcpyAtoD_v2,
                 (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes),
                 copy_row(stream, on_device(to), ArraySide{from, offset}, bytes,
                          Waiting::unless_on_device))
CTXB_EXPORT_PTDS(cuMemcpyAtoA_v2,
                 (CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset,
                  std::size_t bytes),
                 copy_row(stream, ArraySide{to, to_offset}, ArraySide{from, from_offset}, bytes,
                          Waiting::unless_on_device))
CTXB_EXPORT_PTSZ(cuMemcpyHtoAAsync_v2,
                 (CUarray to, std::size_t offset, const void* from, std::size_t bytes,
                  CUstream stream),
                 copy_row(stream, ArraySide{to, offset}, host(from), bytes, Waiting::as_driver))
CTXB_EXPORT_PTSZ(cuMemcpyAtoHAsync_v2,
                 (void* to, CUarray from, std::size_t offset, std::size_t bytes, CUstream stream),
                 copy_row(stream, host(to), ArraySide{from, offset}, bytes, Waiting::as_driver))
