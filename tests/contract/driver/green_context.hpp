// SPDX-License-Identifier: Apache-2.0
// What the tests of green contexts share. They need the calls of CUDA 12.9 to be complete.
#pragma once

#include "driver.hpp"

#if CUDA_VERSION >= 12090
namespace ctxbroker::test {

// Kernels loaded in the primary, and a green context over the whole device, not current.
class GreenTest : public KernelTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // The device's multiprocessors as a resource.
  CUdevResource whole() const;
  // A green context made of these resources; null after a failure, which it reports.
  CUgreenCtx create(CUdevResource* resources, unsigned count) const;
  CUcontext context_of(CUgreenCtx of) const;
  // Ends the member `green`.
  void destroy_green();

  CUgreenCtx green = nullptr;
  CUcontext green_context = nullptr;
};

}  // namespace ctxbroker::test
#endif
