// SPDX-License-Identifier: Apache-2.0
// What it takes to load modules:
//   - load: cuModuleLoadData against cuLibraryLoadData with cuLibraryGetModule, to the first
//     function, in turn. PTX that the driver's cache does not know (cold) and that it knows (warm),
//     machine code that the driver's linker made of it, and fatbins of nvcc (machine code for
//     sm_90, PTX), not packed and packed in two ways.
//   - plug_ins: 64 plug-ins with a module each, of which 4 get jobs: all loaded with their
//     activation, and loaded at their first use; time and device memory. "idle" is what is left
//     when the host asked for idle modules to be unloaded.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench_images_plain_kernels.hpp"
#include "bench_images_size_kernels.hpp"
#include "bench_images_speed_kernels.hpp"
#include "ctxbroker/graph.hpp"
#include "many_modules/module_text.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

constexpr double mebibyte = 1 << 20;

double load_module(const CheckedDriver& raw, const void* image, const char* kernel) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const auto start = Clock::now();
  CTXB_CALL(raw, cuModuleLoadData, &module, image);
  CTXB_CALL(raw, cuModuleGetFunction, &function, module, kernel);
  CTXB_CALL(raw, cuFuncLoad, function);
  const double taken = nanoseconds_since(start);
  CTXB_CALL(raw, cuModuleUnload, module);
  return taken;
}

double load_library(const CheckedDriver& raw, const void* image, const char* kernel) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const auto start = Clock::now();
  CTXB_CALL(raw, cuLibraryLoadData, &library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  CTXB_CALL(raw, cuLibraryGetModule, &module, library);
  CTXB_CALL(raw, cuModuleGetFunction, &function, module, kernel);
  CTXB_CALL(raw, cuFuncLoad, function);
  const double taken = nanoseconds_since(start);
  CTXB_CALL(raw, cuLibraryUnload, library);
  return taken;
}

// What the driver's linker makes of PTX: machine code on a GPU.
std::vector<char> linked(const CheckedDriver& raw, std::string text) {
  CUlinkState state = nullptr;
  void* image = nullptr;
  std::size_t bytes = 0;
  CTXB_CALL(raw, cuLinkCreate_v2, 0, nullptr, nullptr, &state);
  CTXB_CALL(raw, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "text", 0,
            nullptr, nullptr);
  CTXB_CALL(raw, cuLinkComplete, state, &image, &bytes);
  const auto* begin = static_cast<const char*>(image);
  std::vector<char> made(begin, begin + bytes);
  CTXB_CALL(raw, cuLinkDestroy, state);
  return made;
}

// `image` gives what the next load is of.
double load(Session& session, benchmark::State& state, unsigned rounds, const char* kernel,
            const std::function<const void*()>& image) {
  const Guard guard(session.host());
  const CheckedDriver& raw = session.raw();
  Comparison both = compare(
      rounds, [&] { return load_module(raw, image(), kernel); },
      [&] { return load_library(raw, image(), kernel); });
  state.counters["library_p50_us"] = percentile(both.broker, 0.5) / 1000;
  state.counters["library_p99_us"] = percentile(both.broker, 0.99) / 1000;
  const double median = percentile(both.raw, 0.5);
  state.counters["module_p50_us"] = median / 1000;
  state.counters["module_p99_us"] = percentile(both.raw, 0.99) / 1000;
  return median;
}

std::uint64_t free_memory(Session& session) {
  const Guard guard(session.host());
  std::size_t free = 0, total = 0;
  CTXB_CALL(session.raw(), cuMemGetInfo_v2, &free, &total);
  return free;
}

std::filesystem::path many_modules_library() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "test_plugins" / "many_modules.so";
}

double timed(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return nanoseconds_since(start);
}

// A broker of its own: nothing of another measurement is loaded.
double plug_ins(bool quick, const char* name, benchmark::State& state) {
  const unsigned all = quick ? 4 : 64, used = quick ? 2 : 4;
  Session session("bench_module", quick);
  const PluginLibrary library = session.broker().load(many_modules_library());
  std::vector<PluginInstance> instances;
  for (unsigned i = 0; i < all; ++i) {
    instances.push_back(session.broker().create(library, name + std::to_string(i)));
  }
  const std::uint64_t before = free_memory(session);
  const auto taken = [&] {
    return (static_cast<double>(before) - static_cast<double>(free_memory(session))) / mebibyte;
  };
  constexpr ActivationSizes sizes{64, 64, 0, false};
  const double activation = timed([&] {
    for (PluginInstance& instance : instances) instance.activate(sizes);
  });
  state.counters["activate_each_us"] = activation / all / 1000;
  state.counters["mib_activated"] = taken();
  std::vector<float> samples(64 * 64 * 4);
  JobInfo job;
  job.width = job.height = 64;
  std::vector<double> first, next, again;
  std::vector<Graph> graphs;
  for (unsigned i = 0; i < used; ++i) {
    graphs.emplace_back(session.broker(), std::vector<PluginInstance*>{&instances[i]}, sizes);
  }
  const auto run_all = [&](std::vector<double>& times) {
    for (Graph& graph : graphs) {
      times.push_back(timed([&] { graph.process(samples.data(), samples.data(), job); }));
    }
  };
  run_all(first);
  run_all(next);
  state.counters["mib_in_use"] = taken();
  state.counters["unloaded"] = static_cast<double>(session.broker().unload_idle_modules(0));
  state.counters["mib_idle"] = taken();
  run_all(again);
  state.counters["first_job_us"] = percentile(first, 0.5) / 1000;
  state.counters["next_job_us"] = percentile(next, 0.5) / 1000;
  state.counters["job_after_idle_us"] = percentile(again, 0.5) / 1000;
  graphs.clear();
  return activation;
}

void enrol(Session& session) {
  const bool quick = session.quick();
  const many_modules::ModuleSize size{4, quick ? 20U : 1000U};
  const auto text = [size](unsigned number) { return many_modules::module_text(number, size); };
  // Numbers that nobody used, also not in an earlier run of this program.
  static auto fresh = static_cast<unsigned>(Clock::now().time_since_epoch().count());
  static std::string current;
  measure_once("load/ptx_cold", benchmark::kMicrosecond, [=, &session](benchmark::State& state) {
    return load(session, state, session.rounds(10), "run", [&] {
      current = text(++fresh);
      return current.c_str();
    });
  });
  measure_once("load/ptx_warm", benchmark::kMicrosecond, [=, &session](benchmark::State& state) {
    current = text(1);
    return load(session, state, session.rounds(200), "run", [] { return current.c_str(); });
  });
  measure_once("load/linked", benchmark::kMicrosecond, [=, &session](benchmark::State& state) {
    std::vector<char> image;
    {
      const Guard guard(session.host());
      image = linked(session.raw(), text(1));
    }
    return load(session, state, session.rounds(200), "run", [&] { return image.data(); });
  });
  const std::pair<const char*, const void*> fatbins[] = {
      {"load/fatbin_plain", bench_images_plain_kernels::images.data},
      {"load/fatbin_speed", bench_images_speed_kernels::images.data},
      {"load/fatbin_size", bench_images_size_kernels::images.data}};
  for (const auto& fatbin : fatbins) {
    const void* const image = fatbin.second;
    measure_once(fatbin.first, benchmark::kMicrosecond, [image, &session](benchmark::State& state) {
      return load(session, state, session.rounds(200), "kernel_10", [image] { return image; });
    });
  }
  if (quick) setenv("CTXB_TEST_MODULE_INSTRUCTIONS", "20", 1);  // the library reads it
  for (const char* const name : {"eager_", "lazy_"}) {
    measure_once(std::string("plug_ins/") + (*name == 'e' ? "with_activation" : "on_first_use"),
                 benchmark::kMillisecond,
                 [quick, name](benchmark::State& state) { return plug_ins(quick, name, state); });
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_module", ctxbroker::bench::enrol);
}
