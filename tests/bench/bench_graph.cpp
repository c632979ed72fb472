// SPDX-License-Identifier: Apache-2.0
// Eight plug-ins one after the other over one frame, host memory to host memory, by lease kind,
// against eight raw launches of the same kernel on one stream with the same copies:
//   - audio: blocks of 64 and 256 stereo frames through the sample plug-in "gain", also without the
//     marks that name the guilty plug-in after a fault;
//   - image: 1920 x 1080 pixels through "exposure", also with 64 plug-ins.
// Each plug-in is a library file, and so a tenant, of its own.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "ctxbroker/sdk/launch_shape.hpp"
#include "ctxbroker/sdk/views.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

namespace files = std::filesystem;

struct Frame {
  const char* name;
  const char* plugin;
  std::uint32_t width, height;
  unsigned channels;   // floats of one item
  double sample_rate;  // 0: an image
  unsigned stages;
  bool name_faults;
};
constexpr Frame frames[] = {
    {"audio_64", "gain", 64, 2, 1, 48000, 8, true},
    {"audio_64_without_marks", "gain", 64, 2, 1, 48000, 8, false},
    {"audio_256", "gain", 256, 2, 1, 48000, 8, true},
    {"audio_256_without_marks", "gain", 256, 2, 1, 48000, 8, false},
    {"image_1920x1080", "exposure", 1920, 1080, 4, 0, 8, true},
    {"image_1920x1080_64_plugins", "exposure", 1920, 1080, 4, 0, 64, true},
};

std::size_t floats_of(const Frame& frame) {
  return std::size_t{frame.width} * frame.height * frame.channels;
}

// Copies of one library under names of their own, for as long as they are being loaded.
class Copies {
 public:
  Copies(const std::string& plugin, unsigned count)
      : folder_(files::temp_directory_path() / ("bench_graph_" + std::to_string(getpid()))) {
    const files::path library = sample_plugin(plugin);
    files::create_directory(folder_);
    for (unsigned i = 0; i < count; ++i) {
      paths_.push_back(folder_ / (plugin + "_" + std::to_string(i) + ".so"));
      files::copy_file(library, paths_.back());
    }
  }
  ~Copies() {
    std::error_code ignored;
    files::remove_all(folder_, ignored);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  const std::vector<files::path>& paths() const noexcept { return paths_; }

 private:
  files::path folder_;
  std::vector<files::path> paths_;
};

std::vector<PluginInstance> make_instances(Session& session, const Frame& frame, LeaseKind kind,
                                           const ActivationSizes& sizes) {
  const Copies copies(frame.plugin, frame.stages);
  std::vector<PluginInstance> instances;
  for (const files::path& path : copies.paths()) {
    InstanceOptions options;
    options.lease = LeaseChoice(kind);
    instances.push_back(
        session.broker().create(session.broker().load(path), frame.plugin, options));
    instances.back().activate(sizes);
  }
  return instances;
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
    CTXB_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  }
  ~RawGraph() {
    const Guard guard(session_.host());
    module_.reset();
    driver_.cuStreamDestroy_v2(stream_);
    driver_.cuMemFreeHost(staging_);
    for (const CUdeviceptr buffer : buffers_) driver_.cuMemFree_v2(buffer);
  }
  RawGraph(const RawGraph&) = delete;
  RawGraph& operator=(const RawGraph&) = delete;

  void process(const float* input, float* output) {
    CTXB_CALL(driver_, cuCtxPushCurrent_v2, primary_);
    std::memcpy(staging_, input, bytes_);
    const auto begin = Clock::now();
    CTXB_CALL(driver_, cuMemcpyHtoDAsync_v2, buffers_[0], staging_, bytes_, stream_);
    for (unsigned stage = 0; stage < frame_.stages; ++stage) {
      launch_stage(buffers_[stage % 2], buffers_[(stage + 1) % 2]);
    }
    CTXB_CALL(driver_, cuMemcpyDtoHAsync_v2, staging_, buffers_[frame_.stages % 2], bytes_,
              stream_);
    enqueueing_.push_back(nanoseconds_since(begin));
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
    std::memcpy(output, staging_, bytes_);
    CUcontext popped = nullptr;
    CTXB_CALL(driver_, cuCtxPopCurrent_v2, &popped);
  }
  // ns for each job, without the host's copy of the samples.
  std::vector<double>& enqueueing() noexcept { return enqueueing_; }

 private:
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
  const RawDriver& driver_;
  Frame frame_;
  std::vector<double> enqueueing_;
  CUcontext primary_;
  std::unique_ptr<Module> module_;
  CUfunction kernel_ = nullptr;
  std::size_t bytes_;
  CUdeviceptr buffers_[2] = {};
  void* staging_ = nullptr;
  CUstream stream_ = nullptr;
};

double graph(Session& session, const Frame& frame, LeaseKind kind, benchmark::State& state) {
  ActivationSizes sizes;
  sizes.max_width = frame.width;
  sizes.max_height = frame.height;
  sizes.sample_rate = frame.sample_rate;
  std::vector<PluginInstance> instances = make_instances(session, frame, kind, sizes);
  std::vector<PluginInstance*> stages;
  for (PluginInstance& instance : instances) stages.push_back(&instance);
  GraphOptions options;
  options.name_faults = frame.name_faults;
  Graph plugins(session.broker(), stages, sizes, options);
  JobInfo job;
  job.width = frame.width;
  job.height = frame.height;
  job.sample_rate = frame.sample_rate;
  std::vector<float> input(floats_of(frame)), output(input.size()), expected(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 1021) / 1021;

  const unsigned batch = session.quick() || frame.sample_rate == 0 ? 1 : 50;
  std::vector<double> raw_jobs, plugin_jobs, enqueueing;
  const auto timed = [&](auto&& process, std::vector<double>& jobs) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < batch; ++i) {
      const auto begin = Clock::now();
      process();
      jobs.push_back(nanoseconds_since(begin));
    }
    return nanoseconds_since(start) / batch;
  };
  RawGraph raw(session, frame);
  const JobBuffers buffers{{input.data()}, {output.data()}};
  const auto through_raw = [&] { raw.process(input.data(), expected.data()); };
  const auto through_plugins = [&] {
    const auto begin = Clock::now();
    const std::uint64_t number = plugins.submit(buffers, job);
    enqueueing.push_back(nanoseconds_since(begin));
    plugins.finish(number);
  };
  through_raw();
  through_plugins();
  if (std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)) != 0) {
    throw std::runtime_error("the plug-ins and the raw launches do not give the same bytes");
  }
  const double median =
      report(state, compare(
                        session.rounds(40), [&] { return timed(through_raw, raw_jobs); },
                        [&] { return timed(through_plugins, plugin_jobs); }));
  state.counters["raw_p99_ns"] = percentile(raw_jobs, 0.99);
  state.counters["p99_ratio"] = percentile(plugin_jobs, 0.99) / percentile(raw_jobs, 0.99);
  if (frame.sample_rate > 0) return median;
  // For an image, submit copies the samples as well; that is not a plug-in's cost.
  state.counters["submit_ns_per_plugin"] = percentile(enqueueing, 0.5) / frame.stages;
  state.counters["raw_enqueue_ns_per_plugin"] = percentile(raw.enqueueing(), 0.5) / frame.stages;
  return median;
}

void enrol(Session& session) {
  for (const Frame& frame : frames) {
    if (session.quick() && frame.sample_rate == 0) continue;
    for (const LeaseKind kind : lease_kinds) {
      measure_once(std::string(frame.name) + "/" + to_string(kind), benchmark::kMicrosecond,
                   [&session, &frame, kind](benchmark::State& state) {
                     return graph(session, frame, kind, state);
                   });
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_graph", ctxbroker::bench::enrol);
}
