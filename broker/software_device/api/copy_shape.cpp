// SPDX-License-Identifier: Apache-2.0
// From the driver's descriptions of rows, slices and arrays to surfaces.
#include "api/copy.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

// One side of a CUDA_MEMCPY3D.
struct SideRequest {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t pitch, rows;  // of memory: bytes of a row, rows of a slice; 0: as the copy needs
  std::size_t x, y, z;      // where it begins; x in bytes
};

std::size_t sum(std::size_t a, std::size_t b) {
  std::size_t result = 0;
  check_value(!__builtin_add_overflow(a, b, &result));
  return result;
}

std::size_t product(std::size_t a, std::size_t b) {
  std::size_t result = 0;
  check_value(!__builtin_mul_overflow(a, b, &result));
  return result;
}

Surface surface_of_array(const SideRequest& side, Extent extent) {
  std::shared_ptr<Array> array = find_array(side.array);
  check_value(side.x % array->element == 0 && extent.width % array->element == 0);
  check_value(sum(side.x, extent.width) <= array->width &&
              sum(side.y, extent.height) <= array->height &&
              sum(side.z, extent.depth) <= array->depth);
  Surface surface;
  surface.side = Side::array;
  surface.pitch = array->width;
  surface.slice = array->width * array->height;
  surface.address = reinterpret_cast<std::uintptr_t>(array->data.get()) + side.z * surface.slice +
                    side.y * surface.pitch + side.x;
  surface.array = std::move(array);
  return surface;
}

Surface surface_of(const SideRequest& side, Extent extent) {
  if (side.type == CU_MEMORYTYPE_ARRAY) return surface_of_array(side, extent);
  Surface surface;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      surface.side = Side::host;
      surface.address = reinterpret_cast<std::uintptr_t>(side.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      surface.side = Side::device;
      surface.address = side.device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      surface.side = Side::unified;
      surface.address = side.device;
      break;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  surface.pitch = side.pitch != 0 ? side.pitch : sum(side.x, extent.width);
  std::size_t rows = side.rows != 0 ? side.rows : sum(side.y, extent.height);
  check_value(surface.pitch >= sum(side.x, extent.width));
  check_value(extent.depth <= 1 || rows >= sum(side.y, extent.height));
  surface.slice = product(surface.pitch, rows);
  std::size_t skipped =
      sum(sum(product(side.z, surface.slice), product(side.y, surface.pitch)), side.x);
  surface.address = sum(surface.address, skipped);
  return surface;
}

}  // namespace

ShapedCopy shaped_copy(const CUDA_MEMCPY3D& r) {
  check_value(r.srcLOD == 0 && r.dstLOD == 0 && r.reserved0 == nullptr && r.reserved1 == nullptr);
  Extent extent{r.WidthInBytes, r.Height, r.Depth};
  return {surface_of({r.dstMemoryType, r.dstHost, r.dstDevice, r.dstArray, r.dstPitch, r.dstHeight,
                      r.dstXInBytes, r.dstY, r.dstZ},
                     extent),
          surface_of({r.srcMemoryType, r.srcHost, r.srcDevice, r.srcArray, r.srcPitch, r.srcHeight,
                      r.srcXInBytes, r.srcY, r.srcZ},
                     extent),
          extent};
}

}  // namespace ctxbroker::software
