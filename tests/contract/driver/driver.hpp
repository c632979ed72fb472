// SPDX-License-Identifier: Apache-2.0
// The driver under test, called by its own names, and what the tests share. The same tests run on
// the software device and, with CTXBROKER_DRIVER=nvidia, on a GPU: they assert only what both do.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

#include "support/driver_functions.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::test {

struct Driver : DriverFunctions {
  void* library = nullptr;
  bool is_software = false;
  std::string path;     // that was opened
  std::string missing;  // why there is no driver; empty if there is one
};

// The driver that CTXBROKER_DRIVER names (software unless it says nvidia), opened once.
const Driver& driver();

// Returns the version that the driver says: 13000, for example.
int driver_version();

// The file of the software device that was built with these tests.
std::string software_device_path();

// A device, its primary context retained and current on the test's thread.
class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  const Driver& d = driver();
  CUdevice device = 0;
  CUcontext primary = nullptr;
};

// The same with the kernels above loaded.
class KernelTest : public DriverTest {
 protected:
  void SetUp() override;
  CUfunction function(const char* name) const;
  CUresult launch(const char* name, CUstream stream, void** arguments, unsigned blocks = 1,
                  unsigned threads = 1) const;
  CUresult fill(CUdeviceptr address, unsigned value, unsigned count, CUstream stream) const;

  CUmodule module = nullptr;
};

// Skips the test where there is no device to test.
#define CTXB_REQUIRE_DEVICE()                                        \
  do {                                                               \
    if (!driver().missing.empty()) GTEST_SKIP() << driver().missing; \
  } while (false)

// Keeps a stream busy with a kernel until let go, or until its end of life.
class Hold {
 public:
  // `hold` is the function of that name in `kernels_ptx`, in a module of the current context's.
  Hold(CUfunction hold, CUstream stream, unsigned blocks = 1, unsigned threads = 1);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void let_go();

 private:
  unsigned* flag_ = nullptr;  // pinned
  CUevent end_ = nullptr;
};

// Runs `body` in a process of its own, for tests that end CUDA in the process; its failures are the
// test's. The test must not have used the driver before.
void expect_in_child(const std::function<void()>& body);

// Waits up to ten seconds.
bool eventually(const std::function<bool()>& condition);

inline CUdeviceptr device_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace ctxbroker::test
