// SPDX-License-Identifier: Apache-2.0
// cuMemset*: one row or several, elements of 8, 16 or 32 bits. Without "Async" it works in the
// legacy stream, or, as _ptds, in the thread's own. Then it waits where the host may read the
// memory too, pinned or managed; of device memory it does not, as with NVIDIA's driver.
#include "api/context.hpp"
#include "api/copy.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

CUresult set(CUstream stream, CUdeviceptr address, std::size_t pitch, Pattern pattern,
             std::size_t width, std::size_t height, Waiting waiting) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    check_value(width <= SIZE_MAX / pattern.bytes);
    return fill(found, address, pitch, pattern, {width * pattern.bytes, height}, waiting);
  });
}

CUresult set_now(CUstream stream, CUdeviceptr address, std::size_t pitch, Pattern pattern,
                 std::size_t width, std::size_t height) {
  return set(stream, address, pitch, pattern, width, height, Waiting::unless_on_device);
}

CUresult set_later(CUstream stream, CUdeviceptr address, std::size_t pitch, Pattern pattern,
                   std::size_t width, std::size_t height) {
  return set(stream, address, pitch, pattern, width, height, Waiting::as_driver);
}

}  // namespace

CTXB_EXPORT_PTDS(cuMemsetD8_v2, (CUdeviceptr address, unsigned char value, std::size_t count),
                 set_now(stream, address, 0, {value, 1}, count, 1))
CTXB_EXPORT_PTSZ(cuMemsetD8Async,
                 (CUdeviceptr address, unsigned char value, std::size_t count, CUstream stream),
                 set_later(stream, address, 0, {value, 1}, count, 1))
CTXB_EXPORT_PTDS(cuMemsetD2D8_v2,
                 (CUdeviceptr address, std::size_t pitch, unsigned char value, std::size_t width,
                  std::size_t height),
                 set_now(stream, address, pitch, {value, 1}, width, height))
CTXB_EXPORT_PTSZ(cuMemsetD2D8Async,
                 (CUdeviceptr address, std::size_t pitch, unsigned char value, std::size_t width,
                  std::size_t height, CUstream stream),
                 set_later(stream, address, pitch, {value, 1}, width, height))

CTXB_EXPORT_PTDS(cuMemsetD16_v2, (CUdeviceptr address, unsigned short value, std::size_t count),
                 set_now(stream, address, 0, {value, 2}, count, 1))
CTXB_EXPORT_PTSZ(cuMemsetD16Async,
                 (CUdeviceptr address, unsigned short value, std::size_t count, CUstream stream),
                 set_later(stream, address, 0, {value, 2}, count, 1))
CTXB_EXPORT_PTDS(cuMemsetD2D16_v2,
                 (CUdeviceptr address, std::size_t pitch, unsigned short value, std::size_t width,
                  std::size_t height),
                 set_now(stream, address, pitch, {value, 2}, width, height))
CTXB_EXPORT_PTSZ(cuMemsetD2D16Async,
                 (CUdeviceptr address, std::size_t pitch, unsigned short value, std::size_t width,
                  std::size_t height, CUstream stream),
                 set_later(stream, address, pitch, {value, 2}, width, height))

CTXB_EXPORT_PTDS(cuMemsetD32_v2, (CUdeviceptr address, unsigned int value, std::size_t count),
                 set_now(stream, address, 0, {value, 4}, count, 1))
CTXB_EXPORT_PTSZ(cuMemsetD32Async,
                 (CUdeviceptr address, unsigned int value, std::size_t count, CUstream stream),
                 set_later(stream, address, 0, {value, 4}, count, 1))
CTXB_EXPORT_PTDS(cuMemsetD2D32_v2,
                 (CUdeviceptr address, std::size_t pitch, unsigned int value, std::size_t width,
                  std::size_t height),
                 set_now(stream, address, pitch, {value, 4}, width, height))
CTXB_EXPORT_PTSZ(cuMemsetD2D32Async,
                 (CUdeviceptr address, std::size_t pitch, unsigned int value, std::size_t width,
                  std::size_t height, CUstream stream),
                 set_later(stream, address, pitch, {value, 4}, width, height))
