// SPDX-License-Identifier: Apache-2.0
// Frames per second of a compositing graph with 1, 2 and 4 frames in flight, against a program
// written by hand on the driver API that does the same: two pictures of 1920 x 1080 are graded, and
// merged where a mask allows it. Samples come from the host's memory and go back there.
#include <cmath>
#include <cstdint>
#include <cstring>
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

struct Picture {
  std::uint32_t width, height;
  std::size_t pixels() const { return std::size_t{width} * height; }
};

constexpr float front_stops = 1, amount = 0.75F;

// What the host has and gets: pageable memory.
struct HostFrame {
  explicit HostFrame(Picture size)
      : front(size.pixels() * 4), back(front.size()), mask(size.pixels()), result(front.size()) {
    for (std::size_t i = 0; i < front.size(); ++i) {
      front[i] = static_cast<float>(i % 1021) / 1021;
      back[i] = static_cast<float>(i % 509) / 509;
    }
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<float>(i % 5) / 4;
  }
  std::vector<float> front, back, mask, result;
};

// One frame in flight of the program written by hand.
class RawSlot {
 public:
  RawSlot(const CheckedDriver& driver, Picture size, CUfunction exposure, CUfunction merge)
      : driver_(driver),
        size_(size),
        shape_(sdk::over(size.width, size.height)),
        exposure_(exposure),
        merge_(merge) {
    for (int end = 0; end < ends; ++end) {
      CTXB_CALL(driver_, cuMemAlloc_v2, &device_[end], bytes(end));
      CTXB_CALL(driver_, cuMemAllocHost_v2, &pinned_[end], bytes(end));
    }
    CTXB_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  }
  ~RawSlot() {
    for (int end = 0; end < ends; ++end) {
      driver_.cuMemFree_v2(device_[end]);
      driver_.cuMemFreeHost(pinned_[end]);
    }
    driver_.cuStreamDestroy_v2(stream_);
  }
  RawSlot(const RawSlot&) = delete;
  RawSlot& operator=(const RawSlot&) = delete;

  void submit(const HostFrame& frame) {
    upload(front, frame.front);
    upload(back, frame.back);
    upload(mask, frame.mask);
    grade(front, std::exp2(front_stops));
    grade(back, 1);
    sdk::PixelView pictures[] = {view(front), view(back), view(mask), view(result)};
    int operation = 0;
    float weight = amount;
    launch(merge_, {&pictures[0], &pictures[1], &pictures[2], &pictures[3], &operation, &weight});
    CTXB_CALL(driver_, cuMemcpyDtoHAsync_v2, pinned_[result], device_[result], bytes(result),
              stream_);
  }
  void finish(HostFrame& frame) {
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
    std::memcpy(frame.result.data(), pinned_[result], bytes(result));
  }

 private:
  enum End { front, back, mask, result, ends };

  std::size_t bytes(int end) const {
    return size_.pixels() * (end == mask ? 1 : 4) * sizeof(float);
  }
  sdk::PixelView view(int end) const {
    const std::uint32_t channels = end == mask ? 1 : 4;
    return {device_[end],
            std::uint64_t{size_.width} * channels * sizeof(float),
            size_.width,
            size_.height,
            channels,
            0,
            0,
            0};
  }
  void upload(int end, const std::vector<float>& samples) {
    std::memcpy(pinned_[end], samples.data(), bytes(end));
    CTXB_CALL(driver_, cuMemcpyHtoDAsync_v2, device_[end], pinned_[end], bytes(end), stream_);
  }
  void grade(int end, float scale) {
    sdk::PixelView picture = view(end);
    float exponent = 1;
    launch(exposure_, {&picture, &picture, &scale, &exponent});
  }
  void launch(CUfunction function, std::vector<void*> arguments) {
    driver_.check(driver_.cuLaunchKernel(function, shape_.grid.x, shape_.grid.y, 1, shape_.block.x,
                                         shape_.block.y, 1, 0, stream_, arguments.data(), nullptr),
                  "cuLaunchKernel");
  }

  const CheckedDriver& driver_;
  Picture size_;
  sdk::LaunchShape shape_;
  CUfunction exposure_, merge_;
  CUdeviceptr device_[ends] = {};
  void* pinned_[ends] = {};
  CUstream stream_ = nullptr;
};

// Runs frames through both, `in_flight` at a time, and returns ns for each frame.
template <typename Submit, typename Finish>
double run(unsigned frames, unsigned in_flight, Submit&& submit, Finish&& finish) {
  if (in_flight == 0) throw std::invalid_argument("no frame is in flight");
  const auto begin = Clock::now();
  for (unsigned frame = 0; frame < frames + in_flight; ++frame) {
    if (frame >= in_flight) finish(frame - in_flight);
    if (frame < frames) submit(frame);
  }
  return nanoseconds_since(begin) / frames;
}

GraphDescription compositing(PluginInstance& grade_front, PluginInstance& grade_back,
                             PluginInstance& merge) {
  GraphDescription description;
  description.inputs = {{"front"}, {"back"}, {"mask", 1}};
  description.outputs = {{"result"}};
  description.nodes = {
      {"grade_front", &grade_front}, {"grade_back", &grade_back}, {"merge", &merge}};
  description.edges = {{"front", "grade_front"},   {"back", "grade_back"},
                       {"grade_front", "merge.a"}, {"grade_back", "merge.b"},
                       {"mask", "merge.mask"},     {"merge", "result"}};
  return description;
}

double composite(Session& session, LeaseKind kind, unsigned in_flight, benchmark::State& state) {
  const Picture size = session.quick() ? Picture{64, 36} : Picture{1920, 1080};
  const unsigned frames = session.quick() ? 4 : 12;
  ActivationSizes sizes;
  sizes.max_width = size.width;
  sizes.max_height = size.height;
  InstanceOptions options;
  options.lease = LeaseChoice(kind);
  const auto create = [&](const char* plugin) {
    return session.broker().create(session.broker().load(sample_plugin(plugin)), plugin, options);
  };
  PluginInstance grade_front = create("exposure"), grade_back = create("exposure"),
                 merge = create("merge");
  grade_front.set_parameter("stops", front_stops);
  merge.set_parameter("amount", amount);
  for (PluginInstance* one : {&grade_front, &grade_back, &merge}) one->activate(sizes);
  GraphOptions graph_options;
  graph_options.jobs_in_flight = in_flight;
  Graph graph(session.broker(), compositing(grade_front, grade_back, merge), sizes, graph_options);

  const Guard guard(session.host());
  const Module exposures(session.raw(), exposure_image()), merges(session.raw(), merge_image());
  std::vector<std::unique_ptr<RawSlot>> slots;
  std::vector<HostFrame> raw_frames, graph_frames;
  for (unsigned i = 0; i < in_flight; ++i) {
    slots.push_back(std::make_unique<RawSlot>(session.raw(), size, exposures.function("exposure"),
                                              merges.function("merge")));
    raw_frames.emplace_back(size);
    graph_frames.emplace_back(size);
  }
  JobInfo job;
  job.width = size.width;
  job.height = size.height;
  const auto by_hand = [&] {
    return run(
        frames, in_flight,
        [&](unsigned frame) { slots[frame % in_flight]->submit(raw_frames[frame % in_flight]); },
        [&](unsigned frame) { slots[frame % in_flight]->finish(raw_frames[frame % in_flight]); });
  };
  std::uint64_t first = 0;
  const auto by_graph = [&] {
    return run(
        frames, in_flight,
        [&](unsigned frame) {
          HostFrame& at = graph_frames[frame % in_flight];
          const std::uint64_t number = graph.submit(
              {{at.front.data(), at.back.data(), at.mask.data()}, {at.result.data()}}, job);
          if (frame == 0) first = number;
        },
        [&](unsigned frame) { graph.finish(first + frame); });
  };
  by_hand();
  by_graph();
  for (unsigned i = 0; i < in_flight; ++i) {
    if (raw_frames[i].result != graph_frames[i].result) {
      throw std::runtime_error("the graph and the program by hand do not give the same bytes");
    }
  }
  const double median = report(state, compare(session.rounds(6), by_hand, by_graph));
  state.counters["frames_per_second"] = 1e9 / median;
  state.counters["raw_frames_per_second"] = 1e9 / state.counters["raw_ns"];
  return median;
}

void enrol(Session& session) {
  for (const LeaseKind kind : lease_kinds) {
    for (const unsigned in_flight : {1U, 2U, 4U}) {
      measure_once("composite/" + std::string(to_string(kind)) + "/" + std::to_string(in_flight),
                   benchmark::kMillisecond, [&session, kind, in_flight](benchmark::State& state) {
                     return composite(session, kind, in_flight, state);
                   });
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_frames", ctxbroker::bench::enrol);
}
