// SPDX-License-Identifier: Apache-2.0
#include "api/array.hpp"

#include <algorithm>
#include <new>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

std::size_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      break;
  }
  // Block-compressed, video and normalised formats: they matter to textures, which are not built.
  check_value(static_cast<unsigned>(format) > CU_AD_FORMAT_FLOAT);
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

std::size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  check_value(d.NumChannels == 1 || d.NumChannels == 2 || d.NumChannels == 4);
  return channel_bytes(d.Format) * d.NumChannels;
}

// Checked before anything is computed from the sizes: none of the products can overflow.
const CUDA_ARRAY3D_DESCRIPTOR& checked(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  constexpr unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST;
  check_that((d.Flags & ~known) == 0, CUDA_ERROR_NOT_SUPPORTED);
  bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  check_value(d.Width != 0 && (d.Depth == 0 || d.Height != 0 || layered));
  check_value(!layered || d.Depth != 0);
  bool fits = d.Height == 0 && !layered ? d.Width <= device_limits::max_array_1d
              : d.Depth == 0 || layered ? d.Width <= device_limits::max_array_2d[0] &&
                                              d.Height <= device_limits::max_array_2d[1] &&
                                              d.Depth <= device_limits::max_array_3d
                                        : d.Width <= device_limits::max_array_3d &&
                                              d.Height <= device_limits::max_array_3d &&
                                              d.Depth <= device_limits::max_array_3d;
  check_value(fits);
  return d;
}

}  // namespace

Array::Array(Context& of, const CUDA_ARRAY3D_DESCRIPTOR& its_description)
    : context(of),
      description(checked(its_description)),
      element(element_bytes(description)),
      width(description.Width * element),
      height(std::max<std::size_t>(1, description.Height)),
      depth(std::max<std::size_t>(1, description.Depth)) {
  std::size_t bytes = width * height * depth;
  check_that(context.device.reserve(bytes), CUDA_ERROR_OUT_OF_MEMORY);
  data.reset(new (std::nothrow) std::byte[bytes]);
  if (data != nullptr) return;
  context.device.give_back(bytes);
  fail(CUDA_ERROR_OUT_OF_MEMORY);
}

Array::~Array() {
  if (data != nullptr) context.device.give_back(width * height * depth);
}

std::shared_ptr<Array> find_array(CUarray handle) {
  std::shared_ptr<Array> array = Process::instance().arrays.find(handle);
  array->context.check_alive();
  return array;
}

}  // namespace ctxbroker::software
