// SPDX-License-Identifier: Apache-2.0
// How long it takes from "a plug-in is opened" to "its first kernel has run", and what that takes
// of the device's memory:
//   - memory: device memory per tenant, each with the module loaded and its kernel run once.
//   - first_kernel: open a tenant, get its lease, load a module, launch, wait; by lease kind. The
//     device is in use already; "cold" makes a context, "ready" finds one that was made ahead.
//     "raw" is the same module and kernel in the primary context, without a broker. The module is
//     machine code on an sm_90 device, PTX elsewhere.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

// In nanoseconds, one value per plug-in.
struct Steps {
  std::vector<double> lease, module, kernel, all;
};

TenantOptions asking_for(LeaseKind kind) {
  TenantOptions options;
  options.lease = LeaseChoice(kind);
  return options;
}

void run_kernel(const CheckedDriver& raw, const Module& module) {
  raw.check(launch(raw, module.function("nothing"), {}, nullptr, nullptr), "cuLaunchKernel");
  CTXB_CALL(raw, cuStreamSynchronize, nullptr);
}

// Leaves the tenant open.
void bring_up(Session& session, LeaseKind kind, Steps& steps, std::vector<Tenant>& tenants) {
  const CheckedDriver& raw = session.raw();
  const auto start = Clock::now();
  tenants.push_back(session.broker().open_tenant("newcomer", asking_for(kind)));
  Tenant& tenant = tenants.back();
  tenant.lease();
  steps.lease.push_back(nanoseconds_since(start));
  const Guard guard(tenant);
  const auto loading = Clock::now();
  const Module module(raw, kernel_image());
  steps.module.push_back(nanoseconds_since(loading));
  const auto running = Clock::now();
  run_kernel(raw, module);
  steps.kernel.push_back(nanoseconds_since(running));
  steps.all.push_back(nanoseconds_since(start));
}

double raw_first_kernel(Session& session) {
  const CheckedDriver& raw = session.raw();
  const auto start = Clock::now();
  const Module module(raw, kernel_image());
  run_kernel(raw, module);
  return nanoseconds_since(start);
}

void show(benchmark::State& state, const char* name, std::vector<double>& values) {
  state.counters[std::string(name) + "_p50_us"] = percentile(values, 0.5) / 1000;
  state.counters[std::string(name) + "_p99_us"] = percentile(values, 0.99) / 1000;
}

enum class Supply { cold, ready };

// A broker of its own, because contexts that one lease leaves go to the next one.
BrokerOptions broker_options(LeaseKind kind, Supply supply) {
  BrokerOptions options;
  if (supply == Supply::cold) return options;
  if (kind == LeaseKind::green) options.ready.green = 4;
  if (kind == LeaseKind::private_own) {
    options.ready.private_own = 1;
    options.ready.memory_budget = std::uint64_t{2} << 30;
  }
  return options;
}

double first_kernel(bool quick, LeaseKind kind, Supply supply, unsigned count,
                    benchmark::State& state) {
  Session session("bench_bringup", quick, broker_options(kind, supply));
  const CUcontext primary = session.host().lease().context;
  Steps steps;
  std::vector<double> raw;
  std::vector<Tenant> tenants;
  tenants.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    if (supply == Supply::ready && !session.broker().wait_until_ready()) {
      throw std::runtime_error("no contexts are made ahead");
    }
    bring_up(session, kind, steps, tenants);
    // What a green lease leaves would make the next one warm; a private context is large.
    if (supply == Supply::ready || kind == LeaseKind::private_own) tenants.clear();
    CTXB_CALL(session.raw(), cuCtxPushCurrent_v2, primary);
    raw.push_back(raw_first_kernel(session));
    CUcontext popped = nullptr;
    CTXB_CALL(session.raw(), cuCtxPopCurrent_v2, &popped);
  }
  show(state, "all", steps.all);
  show(state, "lease", steps.lease);
  show(state, "module", steps.module);
  show(state, "kernel", steps.kernel);
  show(state, "raw", raw);
  state.counters["plug_ins"] = count;
  return percentile(steps.all, 0.5);
}

std::uint64_t free_memory(Session& session) {
  const Guard guard(session.host());
  std::size_t free = 0, total = 0;
  CTXB_CALL(session.raw(), cuMemGetInfo_v2, &free, &total);
  return free;
}

// A module stays loaded until its context ends.
void run_a_kernel(Session& session, Tenant& tenant) {
  const CheckedDriver& raw = session.raw();
  const Guard guard(tenant);
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CTXB_CALL(raw, cuModuleLoadData, &module, kernel_image());
  CTXB_CALL(raw, cuModuleGetFunction, &nothing, module, "nothing");
  raw.check(launch(raw, nothing, {}, nullptr, nullptr), "cuLaunchKernel");
  CTXB_CALL(raw, cuStreamSynchronize, nullptr);
}

// Some memory is taken in chunks for many leases, so the figure depends on their number.
double memory(bool quick, LeaseKind kind, benchmark::State& state) {
  constexpr double mebibyte = 1 << 20;
  constexpr std::uint64_t room_for_one = std::uint64_t{700} << 20;  // a private context, and some
  Session session("bench_bringup", quick);
  run_a_kernel(session, session.host());  // what the first module takes is nobody's lease
  const auto start = Clock::now();
  const std::uint64_t before = free_memory(session);
  std::vector<Tenant> tenants;
  for (const unsigned count : {1U, 8U, 64U}) {
    if (quick && count > 8) break;
    if (kind == LeaseKind::private_own && before / room_for_one < count) break;
    while (tenants.size() < count) {
      tenants.push_back(session.broker().open_tenant("one of many", asking_for(kind)));
      tenants.back().lease();
      run_a_kernel(session, tenants.back());
    }
    const double taken = static_cast<double>(before) - static_cast<double>(free_memory(session));
    state.counters["mib_each_of_" + std::to_string(count)] = taken / mebibyte / count;
  }
  return nanoseconds_since(start);
}

void enrol(Session& session) {
  const bool quick = session.quick();
  for (const LeaseKind kind : lease_kinds) {
    measure_once(std::string("memory/") + to_string(kind), benchmark::kMillisecond,
                 [quick, kind](benchmark::State& state) { return memory(quick, kind, state); });
  }
  for (const LeaseKind kind : lease_kinds) {
    for (const Supply supply : {Supply::cold, Supply::ready}) {
      if (kind == LeaseKind::shared && supply == Supply::ready) continue;  // nothing is made
      // A private context takes a hundred times as long.
      const unsigned usual = kind == LeaseKind::private_own ? 20 : 400;
      const unsigned count = quick ? 2 : usual;
      measure_once(std::string("first_kernel/") + to_string(kind) +
                       (supply == Supply::cold ? "/cold" : "/ready"),
                   benchmark::kMicrosecond, [=](benchmark::State& state) {
                     return first_kernel(quick, kind, supply, count, state);
                   });
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_bringup", ctxbroker::bench::enrol);
}
