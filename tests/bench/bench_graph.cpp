// Eight plug-ins one after the other over one frame, host memory to host memory, by lease kind,
// against eight raw launches of the same kernel on one stream with the same copies:
//   - audio: blocks of 64 and 256 stereo frames through the sample plug-in "gain";
//   - image: 1920 x 1080 pixels through "exposure".
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

constexpr unsigned stage_count = 8;

struct Frame {
  const char* name;
  const char* plugin;
  std::uint32_t width, height;
  unsigned channels;   // floats of one item
  double sample_rate;  // 0: an image
};
constexpr Frame frames[] = {{"audio_64", "gain", 64, 2, 1, 48000},
                            {"audio_256", "gain", 256, 2, 1, 48000},
                            {"image_1920x1080", "exposure", 1920, 1080, 4, 0}};

std::size_t floats_of(const Frame& frame) {
  return std::size_t{frame.width} * frame.height * frame.channels;
}

// Copies of one library under names of their own, for as long as they are being loaded.
class Copies {
 public:
  explicit Copies(const std::string& plugin)
      : folder_(files::temp_directory_path() / ("bench_graph_" + std::to_string(getpid()))) {
    const files::path program = files::canonical("/proc/self/exe");
    const files::path library = program.parent_path().parent_path() / "plugins" / (plugin + ".so");
    files::create_directory(folder_);
    for (unsigned i = 0; i < stage_count; ++i) {
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
  const Copies copies(frame.plugin);
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
    CTXB_CALL(driver_, cuMemcpyHtoDAsync_v2, buffers_[0], staging_, bytes_, stream_);
    for (unsigned stage = 0; stage < stage_count; ++stage) {
      launch_stage(buffers_[stage % 2], buffers_[(stage + 1) % 2]);
    }
    CTXB_CALL(driver_, cuMemcpyDtoHAsync_v2, staging_, buffers_[stage_count % 2], bytes_, stream_);
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
    std::memcpy(output, staging_, bytes_);
    CUcontext popped = nullptr;
    CTXB_CALL(driver_, cuCtxPopCurrent_v2, &popped);
  }

 private:
  void launch_stage(CUdeviceptr from, CUdeviceptr to) {
    const std::uint64_t pitch = std::uint64_t{frame_.width} * frame_.channels * sizeof(float);
    sdk::AudioView sound_in{reinterpret_cast<float*>(from), pitch, frame_.width, frame_.height};
    sdk::AudioView sound_out{reinterpret_cast<float*>(to), pitch, frame_.width, frame_.height};
    sdk::ImageView image_in{reinterpret_cast<float*>(from), pitch, frame_.width, frame_.height};
    sdk::ImageView image_out{reinterpret_cast<float*>(to), pitch, frame_.width, frame_.height};
    float factor = 1, exponent = 1;
    void* sound[] = {&sound_in, &sound_out, &factor};
    void* image[] = {&image_in, &image_out, &factor, &exponent};
    const sdk::LaunchShape shape = sdk::over(frame_.width, frame_.height);
    driver_.check(
        driver_.cuLaunchKernel(kernel_, shape.grid.x, shape.grid.y, 1, shape.block.x, shape.block.y,
                               1, 0, stream_, frame_.sample_rate > 0 ? sound : image, nullptr),
        "cuLaunchKernel");
  }

  Session& session_;
  const RawDriver& driver_;
  Frame frame_;
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
  Graph plugins(session.broker(), stages, sizes);
  JobInfo job;
  job.width = frame.width;
  job.height = frame.height;
  job.sample_rate = frame.sample_rate;
  std::vector<float> input(floats_of(frame)), output(input.size()), expected(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 1021) / 1021;

  const unsigned batch = session.quick() || frame.sample_rate == 0 ? 1 : 50;
  const auto timed = [&](auto&& process) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < batch; ++i) process();
    return nanoseconds_since(start) / batch;
  };
  RawGraph raw(session, frame);
  const auto through_raw = [&] { raw.process(input.data(), expected.data()); };
  const auto through_plugins = [&] { plugins.process(input.data(), output.data(), job); };
  through_raw();
  through_plugins();
  if (std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)) != 0) {
    throw std::runtime_error("the plug-ins and the raw launches do not give the same bytes");
  }
  return report(state, compare(
                           session.rounds(40), [&] { return timed(through_raw); },
                           [&] { return timed(through_plugins); }));
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
