// SPDX-License-Identifier: Apache-2.0
// CUDA arrays and the copies to and from them.
#include <cstring>
#include <numeric>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class ArrayTest : public DriverTest {
 protected:
  CUarray create(std::size_t width, std::size_t height, std::size_t depth = 0,
                 CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32, unsigned channels = 1) const {
    CUarray made = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR description = {width, height, depth, format, channels, 0};
    EXPECT_EQ(d.cuArray3DCreate_v2(&made, &description), CUDA_SUCCESS);
    return made;
  }
  static std::vector<unsigned> counted(std::size_t count) {
    std::vector<unsigned> values(count);
    std::iota(values.begin(), values.end(), 1u);
    return values;
  }
};

TEST_F(ArrayTest, DescriptorTellsFormatAndExtent) {
  const struct {
    std::size_t width, height, depth;
    CUarray_format format;
    unsigned channels;
  } rows[] = {{64, 0, 0, CU_AD_FORMAT_FLOAT, 1},
              {64, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4},
              {32, 8, 4, CU_AD_FORMAT_HALF, 2}};
  for (const auto& row : rows) {
    CUarray array = create(row.width, row.height, row.depth, row.format, row.channels);
    CUDA_ARRAY3D_DESCRIPTOR all = {};
    CUDA_ARRAY_DESCRIPTOR flat = {};
    EXPECT_EQ(d.cuArray3DGetDescriptor_v2(&all, array), CUDA_SUCCESS);
    EXPECT_EQ(all.Width, row.width);
    EXPECT_EQ(all.Height, row.height);
    EXPECT_EQ(all.Depth, row.depth);
    EXPECT_EQ(all.Format, row.format);
    EXPECT_EQ(all.NumChannels, row.channels);
    if (row.depth == 0) {
      EXPECT_EQ(d.cuArrayGetDescriptor_v2(&flat, array), CUDA_SUCCESS);
      EXPECT_EQ(flat.Width, row.width);
      EXPECT_EQ(flat.Height, row.height);
    }
    EXPECT_EQ(d.cuArrayDestroy(array), CUDA_SUCCESS);
  }
}

TEST_F(ArrayTest, RowsAreCopiedInAndOut) {
  CUarray array = create(8, 0), other = create(8, 0);
  std::vector<unsigned> sent = counted(8), received(8);
  CUdeviceptr memory = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&memory, 32), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyHtoA_v2(array, 0, sent.data(), 32), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyAtoA_v2(other, 0, array, 16, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyAtoD_v2(memory, other, 0, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoA_v2(array, 0, memory, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyAtoH_v2(received.data(), array, 0, 32), CUDA_SUCCESS);
  EXPECT_EQ(received, (std::vector<unsigned>{5, 6, 7, 8, 5, 6, 7, 8}));
  EXPECT_EQ(d.cuMemcpyHtoA_v2(array, 16, sent.data(), 32), CUDA_ERROR_INVALID_VALUE) << "too long";
  EXPECT_EQ(d.cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(d.cuArrayDestroy(other), CUDA_SUCCESS);
}

TEST_F(ArrayTest, PartsOfTwoDimensionsAreCopiedInAndOut) {
  CUarray array = create(4, 4);
  std::vector<unsigned> sent = counted(16), received(4);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent.data();
  copy.srcPitch = 16;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  EXPECT_EQ(d.cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  CUDA_MEMCPY2D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.srcXInBytes = 4;
  back.srcY = 1;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = received.data();
  back.dstPitch = 8;
  back.WidthInBytes = 8;
  back.Height = 2;
  EXPECT_EQ(d.cuMemcpy2D_v2(&back), CUDA_SUCCESS);
  EXPECT_EQ(received, (std::vector<unsigned>{6, 7, 10, 11}));
  back.srcY = 3;
  EXPECT_EQ(d.cuMemcpy2D_v2(&back), CUDA_ERROR_INVALID_VALUE) << "beyond the last row";
  EXPECT_EQ(d.cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(ArrayTest, PartsOfThreeDimensionsAreCopiedInAndOut) {
  constexpr std::size_t width = 4, height = 3, depth = 2;
  CUarray array = create(width, height, depth);
  std::vector<unsigned> sent = counted(width * height * depth), received(4);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent.data();
  copy.srcPitch = width * 4;
  copy.srcHeight = height;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = width * 4;
  copy.Height = height;
  copy.Depth = depth;
  EXPECT_EQ(d.cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
  CUDA_MEMCPY3D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.srcXInBytes = 8;
  back.srcY = 2;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = received.data();
  back.dstPitch = 8;
  back.dstHeight = 1;
  back.WidthInBytes = 8;
  back.Height = 1;
  back.Depth = 2;
  EXPECT_EQ(d.cuMemcpy3D_v2(&back), CUDA_SUCCESS);
  EXPECT_EQ(received, (std::vector<unsigned>{11, 12, 23, 24}));
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  back.srcY = 0;
  EXPECT_EQ(d.cuMemcpy3DAsync_v2(&back, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(received, (std::vector<unsigned>{3, 4, 15, 16}));
  EXPECT_EQ(d.cuMemcpy3D_v2(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuArrayDestroy(array), CUDA_SUCCESS);
}

// The same between pieces of plain memory, whose slices have gaps.
TEST_F(ArrayTest, CopiesOfThreeDimensionsNeedNoArray) {
  CUdeviceptr memory = 0;
  constexpr std::size_t pitch = 32, rows = 4, slices = 3;
  ASSERT_EQ(d.cuMemAlloc_v2(&memory, pitch * rows * slices), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD8_v2(memory, 0, pitch * rows * slices), CUDA_SUCCESS);
  std::vector<unsigned> sent = counted(12);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent.data();
  copy.srcPitch = 8;
  copy.srcHeight = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = pitch;
  copy.dstHeight = rows;
  copy.dstXInBytes = 4;
  copy.dstY = 1;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  copy.Depth = slices;
  EXPECT_EQ(d.cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
  std::vector<unsigned> all(pitch * rows * slices / 4);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(all.data(), memory, all.size() * 4), CUDA_SUCCESS);
  unsigned next = 1;
  for (std::size_t slice = 0; slice < slices; ++slice)
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t x = 0; x < pitch / 4; ++x) {
        bool written = (row == 1 || row == 2) && (x == 1 || x == 2);
        EXPECT_EQ(all[(slice * rows + row) * pitch / 4 + x], written ? next++ : 0u);
      }
  copy.dstY = 3;
  EXPECT_EQ(d.cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE) << "more rows than a slice has";
  EXPECT_EQ(d.cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(ArrayTest, CreateRefusesBadDescriptors) {
  CUarray none = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR rows[] = {
      {0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0},          // no width
      {4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0},          // three channels
      {4, 0, 4, CU_AD_FORMAT_FLOAT, 1, 0},          // slices without rows
      {1u << 30, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}};  // too wide
  for (const CUDA_ARRAY3D_DESCRIPTOR& row : rows)
    EXPECT_EQ(d.cuArray3DCreate_v2(&none, &row), CUDA_ERROR_INVALID_VALUE) << row.Width;
  EXPECT_EQ(d.cuArray3DCreate_v2(&none, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  const CUDA_ARRAY_DESCRIPTOR flat = {4, 4, CU_AD_FORMAT_FLOAT, 1};
  EXPECT_EQ(d.cuArrayCreate_v2(&none, &flat), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace ctxbroker::test
