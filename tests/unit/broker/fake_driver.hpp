// SPDX-License-Identifier: Apache-2.0
// A driver that keeps books and does nothing: a context stack per thread, and memory by number.
#pragma once

#include <future>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "driver/driver.hpp"

namespace ctxbroker::detail {

struct FakeDriver {
  std::thread::id thread;        // the test's
  std::vector<CUcontext> stack;  // of that thread; back is the top
  std::map<CUdeviceptr, std::size_t> memory;
  std::set<CUcontext> contexts;  // private ones that exist
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  int contexts_made = 0;              // private ones, so far
  std::size_t bytes_per_context = 0;  // that a private context takes
  std::size_t bytes_of_others = 0;    // taken by others while the first one is made, and kept
  int primary_retains = 0;
  int calls = 0;                        // all calls that touch a context stack
  CUresult push_status = CUDA_SUCCESS;  // what the next pushes return
  CUresult alloc_status = CUDA_SUCCESS;
  CUresult free_status = CUDA_SUCCESS;
  // Set on the tests' thread: what making a private context and retaining the primary wait for, and
  // what destroying a private context waits for.
  std::shared_future<void> create_until, destroy_until;
};

// Starts anew and returns the books. One at a time: the driver's functions have no argument for it.
FakeDriver& fresh_fake_driver();

// A driver over the books, with one device.
Driver fake_driver();

CUcontext fake_context(int number);

}  // namespace ctxbroker::detail
