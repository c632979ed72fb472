// SPDX-License-Identifier: Apache-2.0
// Plug-ins one after the other, and the same work by raw launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ctxbroker/guard.hpp"
#include "ctxbroker/sdk/launch_shape.hpp"
#include "ctxbroker/sdk/views.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {

struct Frame {
  const char* name;
  const char* plugin;
  std::uint32_t width, height;
  unsigned channels;   // floats of one item
  double sample_rate;  // 0: an image
  unsigned stages;
  bool name_faults;
};

inline std::size_t floats_of(const Frame& frame) {
  return std::size_t{frame.width} * frame.height * frame.channels;
}

// The same work without a broker, in the primary context.
class RawGraph {
 public:
  RawGraph(Session& session, const Frame& frame)
      : session_(session),
        driver_(session.raw()),
        frame_(frame),
        primary_(session.host().lease().context),
        bytes_(floats_of(frame) * sizeof(float)) {
    const Guard guard(session.host());
    module_ =
        std::make_unique<Module>(driver_, frame.sample_rate > 0 ? gain_image() : exposure_image());
    kernel_ = module_->function(frame.plugin);
    for (CUdeviceptr& buffer : buffers_) CTXB_CALL(driver_, cuMemAlloc_v2, &buffer, bytes_);
    CTXB_CALL(driver_, cuMemAllocHost_v2, &staging_, bytes_);
    CTXB_CALL(driver_, cuMemAllocHost_v2, &result_, bytes_);
    CTXB_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  }
  ~RawGraph() {
    const Guard guard(session_.host());
    module_.reset();
    driver_.cuStreamDestroy_v2(stream_);
    driver_.cuMemFreeHost(staging_);
    driver_.cuMemFreeHost(result_);
    for (const CUdeviceptr buffer : buffers_) driver_.cuMemFree_v2(buffer);
  }
  RawGraph(const RawGraph&) = delete;
  RawGraph& operator=(const RawGraph&) = delete;

  void process(const float* input, float* output) {
    CTXB_CALL(driver_, cuCtxPushCurrent_v2, primary_);
    std::memcpy(staging_, input, bytes_);
    const auto begin = Clock::now();
    enqueue(staging_, staging_);
    enqueueing_.push_back(nanoseconds_since(begin));
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
    std::memcpy(output, staging_, bytes_);
    CUcontext popped = nullptr;
    CTXB_CALL(driver_, cuCtxPopCurrent_v2, &popped);
  }
  // The same from pinned memory and to there, so that the processor copies nothing.
  void process_pinned() {
    CTXB_CALL(driver_, cuCtxPushCurrent_v2, primary_);
    enqueue(staging_, result_);
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
    CUcontext popped = nullptr;
    CTXB_CALL(driver_, cuCtxPopCurrent_v2, &popped);
  }
  float* pinned_input() const noexcept { return static_cast<float*>(staging_); }
  const float* pinned_output() const noexcept { return static_cast<const float*>(result_); }
  // ns for each job, without the host's copy of the samples.
  std::vector<double>& enqueueing() noexcept { return enqueueing_; }

 private:
  void enqueue(const void* from, void* to) {
    CTXB_CALL(driver_, cuMemcpyHtoDAsync_v2, buffers_[0], from, bytes_, stream_);
    for (unsigned stage = 0; stage < frame_.stages; ++stage) {
      launch_stage(buffers_[stage % 2], buffers_[(stage + 1) % 2]);
    }
    CTXB_CALL(driver_, cuMemcpyDtoHAsync_v2, to, buffers_[frame_.stages % 2], bytes_, stream_);
  }
  void launch_stage(CUdeviceptr from, CUdeviceptr to) {
    const std::uint64_t pitch = std::uint64_t{frame_.width} * frame_.channels * sizeof(float);
    sdk::AudioView sound_in{reinterpret_cast<float*>(from), pitch, frame_.width, frame_.height};
    sdk::AudioView sound_out{reinterpret_cast<float*>(to), pitch, frame_.width, frame_.height};
    sdk::PixelView image_in = pixels(from, pitch), image_out = pixels(to, pitch);
    float factor = 1, exponent = 1;
    void* sound[] = {&sound_in, &sound_out, &factor};
    void* image[] = {&image_in, &image_out, &factor, &exponent};
    const sdk::LaunchShape shape = sdk::over(frame_.width, frame_.height);
    driver_.check(
        driver_.cuLaunchKernel(kernel_, shape.grid.x, shape.grid.y, 1, shape.block.x, shape.block.y,
                               1, 0, stream_, frame_.sample_rate > 0 ? sound : image, nullptr),
        "cuLaunchKernel");
  }

  sdk::PixelView pixels(CUdeviceptr data, std::uint64_t pitch) const {
    return {data, pitch, frame_.width, frame_.height, 4, 0, 0, 0};
  }

  Session& session_;
  const CheckedDriver& driver_;
  Frame frame_;
  std::vector<double> enqueueing_;
  CUcontext primary_;
  std::unique_ptr<Module> module_;
  CUfunction kernel_ = nullptr;
  std::size_t bytes_;
  CUdeviceptr buffers_[2] = {};
  void *staging_ = nullptr, *result_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace ctxbroker::bench
