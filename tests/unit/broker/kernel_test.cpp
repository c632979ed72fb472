// SPDX-License-Identifier: Apache-2.0
#include "module/kernel.hpp"

#include <gmock/gmock.h>

namespace ctxbroker::detail {
namespace {

TEST(KernelHandleTest, OnlyHandlesOfThisActivationAreKnown) {
  const ctxb_kernel* handle = kernel_handle(5, 2);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(kernel_index(handle, 5, 3), 2);
  EXPECT_EQ(kernel_index(handle, 5, 2), -1) << "an index that was never given";
  EXPECT_EQ(kernel_index(handle, 6, 3), -1) << "another activation";
  EXPECT_EQ(kernel_index(nullptr, 5, 3), -1);
  const int local = 0;
  EXPECT_EQ(kernel_index(reinterpret_cast<const ctxb_kernel*>(&local), 5, 3), -1);
}

}  // namespace
}  // namespace ctxbroker::detail
