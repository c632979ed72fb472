// SPDX-License-Identifier: Apache-2.0
// What a launch through the broker costs, against cuLaunchKernel and against <<<>>>, by lease kind
// and with 1, 8 and 64 plug-ins, each a library and so a tenant and a lease of its own:
//   - launch/WAY/LEASE/N: the same kernel with five arguments on the same stream in the same call
//     of process; a few launches of one way by one plug-in, then of the next, and so on, so that
//     what disturbs the machine disturbs all;
//   - chain_of_eight: eight dependent launches and a wait, against the same eight as a graph;
//   - job_of_eight: the same as a plug-in's job, enqueued and as the graph that the broker makes.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "launch/control.hpp"
#include "support/allocation_count.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

namespace files = std::filesystem;

constexpr unsigned most_plugins = 64;
constexpr unsigned launches_at_once = 16;  // of one way, before the next has its turn

files::path beside_plugins(const char* name) {
  const files::path bin = files::canonical("/proc/self/exe").parent_path();
  return bin.parent_path() / "test_plugins" / name;
}

LaunchControl control;
const CheckedDriver* raw_driver = nullptr;  // for functions that take no pointer of ours

void* load_five(const void* image) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CTXB_CALL(*raw_driver, cuModuleLoadData, &module, image);  // goes with its context
  CTXB_CALL(*raw_driver, cuModuleGetFunction, &function, module, "five");
  return function;
}

int launch_raw(void* function, void* stream, void** arguments) {
  return raw_driver->cuLaunchKernel(static_cast<CUfunction>(function), 1, 1, 1, 32, 1, 1, 0,
                                    static_cast<CUstream>(stream), arguments, nullptr);
}

// On NVIDIA's driver alone, and where the toolkit had its runtime library.
void find_runtime_launch(Session& session) {
  if (session.broker().driver().kind != DriverChoice::nvidia) return;
  void* const library = dlopen(beside_plugins("runtime_launch.so").c_str(), RTLD_NOW);
  if (library == nullptr) return;
  control.runtime_launch =
      reinterpret_cast<decltype(control.runtime_launch)>(dlsym(library, "runtime_launch"));
}

// So many instances, each of a library of its own, kept from one benchmark to the next.
class Plugins {
 public:
  Plugins(Session& session, LeaseKind kind, unsigned count, bool job_graphs = false) {
    const files::path folder =
        files::temp_directory_path() / ("bench_launch_" + std::to_string(getpid()));
    files::create_directory(folder);
    ActivationSizes sizes;
    sizes.max_width = 16;
    sizes.sample_rate = 48000;
    for (unsigned i = 0; i < count; ++i) {
      const files::path copy =
          folder / (std::string(to_string(kind)) + "_" + std::to_string(i) + ".so");
      files::copy_file(beside_plugins("launching.so"), copy);
      InstanceOptions options;
      options.lease = LeaseChoice(kind);
      options.job_graphs = job_graphs;
      instances_.push_back(std::make_unique<PluginInstance>(
          session.broker().create(session.broker().load(copy), "launching", options)));
      instances_.back()->activate(sizes);
      graphs_.push_back(std::make_unique<Graph>(
          session.broker(), std::vector<PluginInstance*>{instances_.back().get()}, sizes));
    }
    files::remove_all(folder);
  }

  // Nanoseconds of one launch by that plug-in; adds what it allocated to `allocations`.
  double launch(unsigned plugin, Way way, std::uint64_t* allocations = nullptr) {
    control.way = way;
    float samples[16] = {};
    JobInfo job;
    job.width = 16;
    job.sample_rate = 48000;
    graphs_[plugin]->process(samples, samples, job);
    if (control.failure != nullptr) throw std::runtime_error(control.failure);
    if (allocations != nullptr) *allocations += control.allocations;
    return control.nanoseconds;
  }

  std::uint64_t graph_jobs() const { return instances_[0]->metrics().graph_jobs; }

 private:
  std::vector<std::unique_ptr<PluginInstance>> instances_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

double compare_ways(Session& session, Plugins& plugins, Way way, unsigned plugin_count,
                    benchmark::State& state) {
  control.count = session.quick() ? 2 : launches_at_once;
  for (unsigned plugin = 0; plugin < plugin_count; ++plugin) {  // warm
    plugins.launch(plugin, Way::raw);
    plugins.launch(plugin, way);
  }
  Comparison times;
  std::uint64_t raw_allocations = 0, allocations = 0;
  const unsigned rounds = session.rounds(1000 / std::clamp(plugin_count, 1U, 1000U));
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned plugin = 0; plugin < plugin_count; ++plugin) {
      const bool raw_first = (round + plugin) % 2 == 0;
      double raw = raw_first ? plugins.launch(plugin, Way::raw, &raw_allocations) : 0;
      const double other = plugins.launch(plugin, way, &allocations);
      if (!raw_first) raw = plugins.launch(plugin, Way::raw, &raw_allocations);
      times.raw.push_back(raw);
      times.broker.push_back(other);
    }
  }
  if (allocations_are_counted()) {
    state.counters["raw_allocations"] = static_cast<double>(raw_allocations);
    state.counters["allocations"] = static_cast<double>(allocations);
  }
  return report(state, std::move(times));
}

// Eight dependent launches, then a wait: one by one, and as one graph made beforehand.
class ChainOfEight {
 public:
  // In the current context.
  explicit ChainOfEight(const CheckedDriver& driver)
      : driver_(driver), module_(driver_, kernel_image()) {
    CTXB_CALL(driver_, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    CTXB_CALL(driver_, cuMemAlloc_v2, &memory_, 4096);
    function_ = module_.function("work");
    CUgraph graph = nullptr;
    CTXB_CALL(driver_, cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch_all();
    CTXB_CALL(driver_, cuStreamEndCapture, stream_, &graph);
    CTXB_CALL(driver_, cuGraphInstantiateWithFlags, &exec_, graph, 0);
    CTXB_CALL(driver_, cuGraphDestroy, graph);
  }
  ~ChainOfEight() {
    driver_.cuGraphExecDestroy(exec_);
    driver_.cuMemFree_v2(memory_);
    driver_.cuStreamDestroy_v2(stream_);
  }
  ChainOfEight(const ChainOfEight&) = delete;
  ChainOfEight& operator=(const ChainOfEight&) = delete;

  void launches() {
    launch_all();
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
  }
  void graph() {
    CTXB_CALL(driver_, cuGraphLaunch, exec_, stream_);
    CTXB_CALL(driver_, cuStreamSynchronize, stream_);
  }

 private:
  void launch_all() {
    unsigned rounds = 1;
    void* arguments[] = {&rounds, &memory_};
    for (int i = 0; i < 8; ++i) {
      driver_.check(launch(driver_, function_, {1, 32}, stream_, arguments), "cuLaunchKernel");
    }
  }

  const CheckedDriver& driver_;
  Module module_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUgraphExec exec_ = nullptr;
};

double chain_of_eight(Session& session, LeaseKind kind, benchmark::State& state) {
  const Guard guard(session.tenant(kind, 0));
  ChainOfEight graph(session.raw());
  const unsigned count = session.quick() ? 2 : 50;
  const auto timed = [count](auto&& once) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < count; ++i) once();
    return nanoseconds_since(start) / count;
  };
  graph.launches();
  graph.graph();
  return report(state, compare(
                           session.rounds(40), [&] { return timed([&] { graph.launches(); }); },
                           [&] { return timed([&] { graph.graph(); }); }));
}

// A job of eight launches from a plug-in, from host memory to host memory: enqueued one by one, and
// as the graph that the broker makes of it, whose capture and update are in the time.
double job_of_eight(Session& session, LeaseKind kind, benchmark::State& state) {
  Plugins plain(session, kind, 1, false), graphed(session, kind, 1, true);
  control.count = 8;
  const unsigned count = session.quick() ? 2 : 50;
  const auto timed = [count](Plugins& plugins) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < count; ++i) plugins.launch(0, Way::typed);
    return nanoseconds_since(start) / count;
  };
  timed(plain);
  timed(graphed);
  const double time = report(
      state, compare(
                 session.rounds(40), [&] { return timed(plain); }, [&] { return timed(graphed); }));
  if (graphed.graph_jobs() == 0) throw std::runtime_error("no job was a graph");
  return time;
}

struct WayName {
  Way way;
  const char* name;
};
constexpr WayName ways[] = {{Way::runtime, "runtime"},
                            {Way::gpu, "gpu_1"},
                            {Way::extension, "extension"},
                            {Way::packed, "packed"},
                            {Way::typed, "typed"}};

// Made at the first benchmark that needs them, ended with the last.
using AllPlugins = std::map<LeaseKind, std::unique_ptr<Plugins>>;

void enrol(Session& session) {
  raw_driver = &session.raw();
  control.load = load_five;
  control.raw_launch = launch_raw;
  control.allocations_so_far = allocations_of_this_thread;
  find_runtime_launch(session);
  if (control.runtime_launch == nullptr) {
    std::fprintf(stderr,
                 "bench_launch: <<<>>> is left out: it needs NVIDIA's driver, and nvcc when "
                 "this was built\n");
  }
  setenv(launch_control_variable,
         std::to_string(reinterpret_cast<std::uintptr_t>(&control)).c_str(), 1);
  auto plugins = std::make_shared<AllPlugins>();
  const unsigned most = session.quick() ? 8 : most_plugins;
  for (const LeaseKind kind : lease_kinds) {
    for (const unsigned count : {1U, 8U, most_plugins}) {
      // 64 private contexts take 33 GB and ten seconds: as many say the same.
      if (count > most || (kind == LeaseKind::private_own && count > 8)) continue;
      for (const WayName& way : ways) {
        if (way.way == Way::runtime && control.runtime_launch == nullptr) continue;
        const unsigned made = kind == LeaseKind::private_own ? std::min(most, 8U) : most;
        measure_once(
            std::string("launch/") + way.name + "/" + to_string(kind) + "/" + std::to_string(count),
            benchmark::kNanosecond,
            [&session, plugins, kind, count, made, way](benchmark::State& state) {
              if (plugins->count(kind) == 0) {
                plugins->clear();  // of the kind before
                (*plugins)[kind] = std::make_unique<Plugins>(session, kind, made);
              }
              return compare_ways(session, *(*plugins)[kind], way.way, count, state);
            });
      }
    }
  }
  for (const LeaseKind kind : lease_kinds) {
    measure_once(std::string("chain_of_eight/") + to_string(kind), benchmark::kNanosecond,
                 [&session, plugins, kind](benchmark::State& state) {
                   plugins->clear();
                   return chain_of_eight(session, kind, state);
                 });
    measure_once(std::string("job_of_eight/") + to_string(kind), benchmark::kNanosecond,
                 [&session, plugins, kind](benchmark::State& state) {
                   plugins->clear();
                   return job_of_eight(session, kind, state);
                 });
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_launch", ctxbroker::bench::enrol);
}
