// SPDX-License-Identifier: Apache-2.0
#include "qos/loads.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace ctxbroker::bench {
namespace {
namespace neighbour {

// A stream with at most two pieces of work in it: enough to keep the device busy, and over soon
// after the end is asked for.
class Queue {
 public:
  explicit Queue(const CheckedDriver& driver) : driver_(driver) {
    CTXB_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : ends_) CTXB_CALL(driver_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  ~Queue() {
    driver_.cuStreamSynchronize(stream_);
    for (const CUevent event : ends_) driver_.cuEventDestroy_v2(event);
    driver_.cuStreamDestroy_v2(stream_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  CUstream stream() const noexcept { return stream_; }
  // After each piece; waits for the one before it.
  void next() {
    CTXB_CALL(driver_, cuEventRecord, ends_[count_ % 2], stream_);
    ++count_;
    if (count_ > 1) CTXB_CALL(driver_, cuEventSynchronize, ends_[count_ % 2]);
  }

 private:
  const CheckedDriver& driver_;
  CUstream stream_ = nullptr;
  std::array<CUevent, 2> ends_ = {};
  std::uint64_t count_ = 0;
};

class Buffer {
 public:
  Buffer(const CheckedDriver& driver, std::uint64_t bytes) : driver_(driver) {
    CTXB_CALL(driver_, cuMemAlloc_v2, &address_, bytes);
    CTXB_CALL(driver_, cuMemsetD8_v2, address_, 0, bytes);
  }
  ~Buffer() { driver_.cuMemFree_v2(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  float* data() const noexcept { return reinterpret_cast<float*>(address_); }

 private:
  const CheckedDriver& driver_;
  CUdeviceptr address_ = 0;
};

void hog(LoadContext& context, double block_microseconds) {
  const Module module(context.driver, kernel_image());
  const CUfunction work = module.function("work");
  Queue queue(context.driver);
  unsigned rounds = context.pace->rounds(block_microseconds);
  const double waves = std::max(1.0, context.settings.hog_milliseconds * 1000 / block_microseconds);
  const auto blocks = static_cast<unsigned>(waves * context.multiprocessors * Pace::blocks_at_once);
  float* sink = nullptr;
  void* arguments[] = {&rounds, &sink};
  while (!context.stop.load(std::memory_order_relaxed)) {
    context.driver.check(
        launch(context.driver, work, {blocks, Pace::threads}, queue.stream(), arguments),
        "cuLaunchKernel");
    context.begun.store(true);
    queue.next();
    ++context.done;
  }
}

void hog_10us(LoadContext& context) {
  hog(context, 10);
}

void hog_100us(LoadContext& context) {
  hog(context, 100);
}

void hog_2ms(LoadContext& context) {
  hog(context, 2000);
}

void bandwidth(LoadContext& context) {
  const Module module(context.driver, kernel_image());
  const CUfunction triad = module.function("triad");
  const std::uint64_t bytes = context.settings.triad_bytes;
  const Buffer a(context.driver, bytes), b(context.driver, bytes), c(context.driver, bytes);
  Queue queue(context.driver);
  float *to = a.data(), *from = b.data(), *other = c.data();
  auto count = static_cast<unsigned>(bytes / sizeof(float));
  unsigned rounds = 1;
  void* arguments[] = {&to, &from, &other, &count, &rounds};
  const Grid grid{context.multiprocessors * Pace::blocks_at_once, Pace::threads};
  while (!context.stop.load(std::memory_order_relaxed)) {
    context.driver.check(launch(context.driver, triad, grid, queue.stream(), arguments),
                         "cuLaunchKernel");
    context.begun.store(true);
    queue.next();
    ++context.done;
  }
}

void launch_flood(LoadContext& context) {
  constexpr unsigned between_waits = 500;
  const Module module(context.driver, kernel_image());
  const CUfunction nothing = module.function("nothing");
  Queue queue(context.driver);
  while (!context.stop.load(std::memory_order_relaxed)) {
    for (unsigned i = 0; i < between_waits; ++i) {
      context.driver.check(launch(context.driver, nothing, {}, queue.stream(), nullptr),
                           "cuLaunchKernel");
      context.begun.store(true, std::memory_order_relaxed);
    }
    queue.next();
    context.done += between_waits;
  }
}

void allocation(LoadContext& context) {
  while (!context.stop.load(std::memory_order_relaxed)) {
    CUdeviceptr address = 0;
    CTXB_CALL(context.driver, cuMemAlloc_v2, &address, 1 << 20);
    CTXB_CALL(context.driver, cuMemFree_v2, address);
    ++context.done;
    context.begun.store(true, std::memory_order_relaxed);
  }
}

void pinned(LoadContext& context) {
  while (!context.stop.load(std::memory_order_relaxed)) {
    void* memory = nullptr;
    CTXB_CALL(context.driver, cuMemAllocHost_v2, &memory, context.settings.pinned_bytes);
    CTXB_CALL(context.driver, cuMemFreeHost, memory);
    ++context.done;
    context.begun.store(true, std::memory_order_relaxed);
  }
}

void module(LoadContext& context) {
  while (!context.stop.load(std::memory_order_relaxed)) {
    { const Module loaded(context.driver, kernel_image()); }
    ++context.done;
    context.begun.store(true, std::memory_order_relaxed);
  }
}

// What cudaDeviceReset comes to. While a shield stands the driver refuses.
void reset(LoadContext& context) {
  while (!context.stop.load(std::memory_order_relaxed)) {
    const CUresult status = context.driver.cuDevicePrimaryCtxReset_v2(0);
    if (status == CUDA_ERROR_NOT_PERMITTED) {
      ++context.refused;
    } else {
      context.driver.check(status, "cuDevicePrimaryCtxReset_v2");
    }
    ++context.done;
    context.begun.store(true, std::memory_order_relaxed);
  }
}

}  // namespace neighbour

const Load load_table[] = {
    {"none", "no neighbour", nullptr},
    {"hog_10us", "fills its multiprocessors with blocks of 10 us", neighbour::hog_10us, true},
    {"hog_100us", "the same, 100 us", neighbour::hog_100us, true},
    {"hog_2ms", "the same, 2 ms", neighbour::hog_2ms, true},
    {"bandwidth", "reads and writes device memory as fast as it can", neighbour::bandwidth},
    {"launch_flood", "launches empty kernels without a pause", neighbour::launch_flood},
    {"allocation", "cuMemAlloc and cuMemFree of 1 MiB in a loop", neighbour::allocation, false,
     Takes::device_memory},
    {"pinned", "pinned host memory, 16 MiB, allocated and freed in a loop", neighbour::pinned,
     false, Takes::pinned_memory},
    {"module", "loads and unloads a module in a loop", neighbour::module},
    {"reset", "calls cuDevicePrimaryCtxReset in a loop", neighbour::reset},
};

}  // namespace

std::span<const Load> loads() noexcept {
  return load_table;
}

}  // namespace ctxbroker::bench
