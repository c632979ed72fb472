// SPDX-License-Identifier: Apache-2.0
// What the gate adds to loading a plug-in's library: a tenant is opened, the library loaded for it,
// and both end, with a broker that has the gate and ("raw") with one that does without. Alone, and
// in a process that has many libraries already, as a host has.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "ctxbroker/tenant.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {
namespace {

namespace fs = std::filesystem;

// Unloaded each time: a library that stays in the process costs nothing the next time.
double load(Broker& broker, const fs::path& library) {
  TenantOptions options;
  options.unload_at_close = true;
  const auto start = Clock::now();
  Tenant tenant = broker.open_tenant("loaded", options);
  const AdoptedLibrary adopted = tenant.adopt(library);
  if (adopted.symbol("ctxb_plugin_entry") == nullptr) throw std::runtime_error("no plug-in");
  tenant.close();
  return nanoseconds_since(start);
}

double measure(Session& session, benchmark::State& state, const fs::path& library) {
  static Broker without = [] {
    BrokerOptions options;
    options.use_gate = false;
    return Broker::open(std::move(options));
  }();
  Comparison times = compare(
      session.rounds(100), [&] { return load(without, library); },
      [&] { return load(session.broker(), library); });
  state.counters["slower_us"] = (percentile(times.broker, 0.5) - percentile(times.raw, 0.5)) / 1000;
  return report(state, std::move(times));
}

// Copies of a plug-in, never unloaded.
void crowd(unsigned count) {
  const fs::path folder =
      fs::temp_directory_path() / ("ctxb_bench_load_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  for (unsigned i = 0; i < count; ++i) {
    const fs::path copy = folder / (std::to_string(i) + ".so");
    fs::copy_file(sample_plugin("gain"), copy);
    if (dlopen(copy.c_str(), RTLD_NOW) == nullptr)
      throw std::runtime_error("a copy cannot be loaded");
  }
  fs::remove_all(folder);
}

void enrol(Session& session) {
  if (!session.broker().gate().in_force) {
    throw std::runtime_error("the gate is not in force: " + session.broker().gate().reason);
  }
  // The second carries NVIDIA's runtime library, where it was built.
  for (const char* name : {"gain", "histogram_equalisation"}) {
    if (!fs::exists(sample_plugin(name))) continue;
    measure_once(std::string("load/") + name, benchmark::kMicrosecond,
                 [&session, name](benchmark::State& state) {
                   return measure(session, state, sample_plugin(name));
                 });
  }
  measure_once("load/gain/among_300", benchmark::kMicrosecond, [&session](benchmark::State& state) {
    crowd(session.quick() ? 3 : 300);
    return measure(session, state, sample_plugin("gain"));
  });
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_load", ctxbroker::bench::enrol);
}
