// SPDX-License-Identifier: Apache-2.0
// What the gate costs code that calls the driver itself: the same call through the function that
// the driver's name gives out, which is the gate's, and through the driver's own. By lease kind:
//   - guarded, on a thread inside a guard: allocate and free, make a stream and end it, make the
//     primary context current; "allocate_free" from a block that the driver already has, as most
//     allocations are, "allocate_free_block" with a block that comes and goes with it; "allocate"
//     and "free" one without the other, of many in a row;
//     "record_wait": an event is recorded in one stream, and another stream waits for it;
//     "current", "of_stream" and "of_memory": which context is current, or has the stream or the
//     memory, which a tenant knows by another handle than the driver;
//   - unguarded: a launch, and a copy of 4 KiB to the device, by the address that a look-up gives
//     (the driver's own) and by the exported name (one jump);
//   - unowned: what the host pays for the same calls on a thread of its own.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "support/benchmark_main.hpp"
#include "support/driver_by_name.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

using SetCurrent = CUresult (*)(CUcontext);

// The driver as code finds it by name: behind the gate.
template <typename Function>
Function by_name(const char* symbol) {
  void* const address = driver_function_by_name(symbol);
  if (address == nullptr) throw std::runtime_error(std::string(symbol) + " is not there");
  return reinterpret_cast<Function>(address);
}

template <typename Function>
Function by_look_up(const char* base) {
  using LookUp = CUresult (*)(const char*, void**, int, cuuint64_t, int*);
  void* address = nullptr;
  by_name<LookUp>("cuGetProcAddress_v2")(base, &address, 12000, 0, nullptr);
  if (address == nullptr) throw std::runtime_error(std::string(base) + " is not found");
  return reinterpret_cast<Function>(address);
}

void must(CUresult status) {
  if (status != CUDA_SUCCESS) throw std::runtime_error("a call failed: " + std::to_string(status));
}

template <typename Work>
double per_call(unsigned count, Work&& work) {
  const auto start = Clock::now();
  for (unsigned i = 0; i < count; ++i) work();
  return nanoseconds_since(start) / count;
}

template <typename Raw, typename Gated>
double measure(Session& session, benchmark::State& state, Raw&& raw, Gated&& gated) {
  raw();
  gated();
  // A round is long enough to be timed, and short enough for the sides to meet the same machine.
  const double once = per_call(3, raw);
  const unsigned count =
      session.quick() ? 5 : static_cast<unsigned>(std::clamp(2e6 / once, 5., 500.));
  return report(state, compare(
                           session.rounds(40), [&] { return per_call(count, raw); },
                           [&] { return per_call(count, gated); }));
}

double allocations(Session& session, benchmark::State& state, bool from_held_block) {
  const CheckedDriver& raw = session.raw();
  auto const alloc = by_name<decltype(raw.cuMemAlloc_v2)>("cuMemAlloc_v2");
  auto const free = by_name<decltype(raw.cuMemFree_v2)>("cuMemFree_v2");
  const auto pair = [](auto allocate, auto release) {
    CUdeviceptr address = 0;
    must(allocate(&address, 4096));
    must(release(address));
  };
  CUdeviceptr held = 0;
  if (from_held_block) must(raw.cuMemAlloc_v2(&held, 4096));
  const double time = measure(
      session, state, [&] { pair(raw.cuMemAlloc_v2, raw.cuMemFree_v2); },
      [&] { pair(alloc, free); });
  if (from_held_block) must(raw.cuMemFree_v2(held));
  return time;
}

// Allocations alone, or their ends alone, in one block that the driver has.
double one_half(Session& session, benchmark::State& state, bool allocating) {
  const CheckedDriver& raw = session.raw();
  auto const alloc = by_name<decltype(raw.cuMemAlloc_v2)>("cuMemAlloc_v2");
  auto const free = by_name<decltype(raw.cuMemFree_v2)>("cuMemFree_v2");
  std::vector<CUdeviceptr> addresses(session.quick() ? 5 : 256);
  const auto round = [&](auto allocate, auto release) {
    const auto begin = Clock::now();
    for (CUdeviceptr& address : addresses) must(allocate(&address, 4096));
    const auto between = Clock::now();
    for (const CUdeviceptr address : addresses) must(release(address));
    const auto took = allocating ? between - begin : Clock::now() - between;
    return std::chrono::duration<double, std::nano>(took).count() /
           static_cast<double>(addresses.size());
  };
  CUdeviceptr held = 0;
  must(raw.cuMemAlloc_v2(&held, 4096));
  const double time = report(
      state, compare(
                 session.rounds(100), [&] { return round(raw.cuMemAlloc_v2, raw.cuMemFree_v2); },
                 [&] { return round(alloc, free); }));
  must(raw.cuMemFree_v2(held));
  return time;
}

double streams(Session& session, benchmark::State& state) {
  const CheckedDriver& raw = session.raw();
  auto const create = by_name<decltype(raw.cuStreamCreate)>("cuStreamCreate");
  auto const destroy = by_name<decltype(raw.cuStreamDestroy_v2)>("cuStreamDestroy_v2");
  const auto pair = [](auto make, auto end) {
    CUstream stream = nullptr;
    must(make(&stream, CU_STREAM_NON_BLOCKING));
    must(end(stream));
  };
  return measure(
      session, state, [&] { pair(raw.cuStreamCreate, raw.cuStreamDestroy_v2); },
      [&] { pair(create, destroy); });
}

// What cudaSetDevice comes down to. The raw side makes the lease's own context current, so that
// both do the same to the thread.
double set_current(Session& session, benchmark::State& state) {
  void* const driver = dlopen(session.broker().driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto const own = reinterpret_cast<SetCurrent>(dlsym(driver, "cuCtxSetCurrent"));
  auto const gated = by_name<SetCurrent>("cuCtxSetCurrent");
  CUcontext here = nullptr;
  must(session.raw().cuCtxGetCurrent(&here));
  const CUcontext primary = session.host().lease().context;
  return measure(
      session, state, [&] { must(own(here)); }, [&] { must(gated(primary)); });
}

double current_question(Session& session, benchmark::State& state) {
  const CheckedDriver& raw = session.raw();
  auto const gated = by_name<decltype(raw.cuCtxGetCurrent)>("cuCtxGetCurrent");
  CUcontext found = nullptr;
  return measure(
      session, state, [&] { must(raw.cuCtxGetCurrent(&found)); }, [&] { must(gated(&found)); });
}

double stream_question(Session& session, benchmark::State& state) {
  const CheckedDriver& raw = session.raw();
  void* const driver = dlopen(session.broker().driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  using Ask = CUresult (*)(CUstream, CUcontext*);
  auto const own = reinterpret_cast<Ask>(dlsym(driver, "cuStreamGetCtx"));
  auto const gated = by_name<Ask>("cuStreamGetCtx");
  CUstream stream = nullptr;
  CUcontext found = nullptr;
  must(raw.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const double time = measure(
      session, state, [&] { must(own(stream, &found)); }, [&] { must(gated(stream, &found)); });
  must(raw.cuStreamDestroy_v2(stream));
  return time;
}

double memory_question(Session& session, benchmark::State& state) {
  const CheckedDriver& raw = session.raw();
  void* const driver = dlopen(session.broker().driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  using Ask = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
  auto const own = reinterpret_cast<Ask>(dlsym(driver, "cuPointerGetAttribute"));
  auto const gated = by_name<Ask>("cuPointerGetAttribute");
  CUdeviceptr memory = 0;
  CUcontext found = nullptr;
  must(raw.cuMemAlloc_v2(&memory, 4096));
  const auto ask = [&](Ask one) { must(one(&found, CU_POINTER_ATTRIBUTE_CONTEXT, memory)); };
  const double time = measure(
      session, state, [&] { ask(own); }, [&] { ask(gated); });
  must(raw.cuMemFree_v2(memory));
  return time;
}

// As programs with several streams do at every step.
double record_and_wait(Session& session, benchmark::State& state) {
  const CheckedDriver& raw = session.raw();
  void* const driver = dlopen(session.broker().driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto own = [&](const char* symbol) { return dlsym(driver, symbol); };
  using Create = CUresult (*)(CUevent*, unsigned);
  using Record = CUresult (*)(CUevent, CUstream);
  using Wait = CUresult (*)(CUstream, CUevent, unsigned);
  using Destroy = CUresult (*)(CUevent);
  CUstream streams[2] = {};
  CUevent event = nullptr;
  for (CUstream& stream : streams)
    must(by_name<decltype(raw.cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  must(by_name<Create>("cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING));
  const auto pair = [&](Record record, Wait wait) {
    must(record(event, streams[0]));
    must(wait(streams[1], event, 0));
  };
  const auto record = reinterpret_cast<Record>(own("cuEventRecord"));
  const auto wait = reinterpret_cast<Wait>(own("cuStreamWaitEvent"));
  const auto gated_record = by_name<Record>("cuEventRecord");
  const auto gated_wait = by_name<Wait>("cuStreamWaitEvent");
  const double time = measure(
      session, state, [&] { pair(record, wait); }, [&] { pair(gated_record, gated_wait); });
  must(by_name<Destroy>("cuEventDestroy_v2")(event));
  for (CUstream stream : streams)
    must(by_name<decltype(raw.cuStreamDestroy_v2)>("cuStreamDestroy_v2")(stream));
  return time;
}

double launches(Session& session, benchmark::State& state, bool looked_up) {
  const CheckedDriver& raw = session.raw();
  auto const gated = looked_up ? by_look_up<decltype(raw.cuLaunchKernel)>("cuLaunchKernel")
                               : by_name<decltype(raw.cuLaunchKernel)>("cuLaunchKernel");
  const Module module(raw, kernel_image());
  CUfunction const nothing = module.function("nothing");
  CUstream stream = nullptr;
  must(raw.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto launch = [&](auto function) {
    must(function(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    must(raw.cuStreamSynchronize(stream));
  };
  const double time = measure(
      session, state, [&] { launch(raw.cuLaunchKernel); }, [&] { launch(gated); });
  must(raw.cuStreamDestroy_v2(stream));
  return time;
}

double copies(Session& session, benchmark::State& state, bool looked_up) {
  const CheckedDriver& raw = session.raw();
  auto const gated = looked_up
                         ? by_look_up<decltype(raw.cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync")
                         : by_name<decltype(raw.cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2");
  const std::vector<char> bytes(4096);
  CUdeviceptr device = 0;
  CUstream stream = nullptr;
  must(raw.cuMemAlloc_v2(&device, bytes.size()));
  must(raw.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto copy = [&](auto function) {
    must(function(device, bytes.data(), bytes.size(), stream));
    must(raw.cuStreamSynchronize(stream));
  };
  const double time = measure(
      session, state, [&] { copy(raw.cuMemcpyHtoDAsync_v2); }, [&] { copy(gated); });
  must(raw.cuStreamDestroy_v2(stream));
  must(raw.cuMemFree_v2(device));
  return time;
}

void enrol(Session& session) {
  if (!session.broker().gate().in_force) {
    throw std::runtime_error("the gate is not in force: " + session.broker().gate().reason);
  }
  for (const LeaseKind kind : lease_kinds) {
    const auto guarded = [&session, kind](auto body) {
      return [&session, kind, body](benchmark::State& state) {
        const Guard guard(session.tenant(kind, 0));
        return body(session, state);
      };
    };
    const std::string name = to_string(kind);
    for (const bool held : {true, false}) {
      measure_once(std::string("guarded/allocate_free") + (held ? "/" : "_block/") + name,
                   benchmark::kNanosecond, guarded([held](Session& s, benchmark::State& state) {
                     return allocations(s, state, held);
                   }));
    }
    for (const bool allocating : {true, false}) {
      measure_once((allocating ? "guarded/allocate/" : "guarded/free/") + name,
                   benchmark::kNanosecond,
                   guarded([allocating](Session& s, benchmark::State& state) {
                     return one_half(s, state, allocating);
                   }));
    }
    measure_once("guarded/stream/" + name, benchmark::kNanosecond, guarded(streams));
    measure_once("guarded/set_current/" + name, benchmark::kNanosecond, guarded(set_current));
    measure_once("guarded/record_wait/" + name, benchmark::kNanosecond, guarded(record_and_wait));
    measure_once("guarded/current/" + name, benchmark::kNanosecond, guarded(current_question));
    measure_once("guarded/of_stream/" + name, benchmark::kNanosecond, guarded(stream_question));
    measure_once("guarded/of_memory/" + name, benchmark::kNanosecond, guarded(memory_question));
    for (const bool looked_up : {true, false}) {
      measure_once(
          std::string("unguarded/launch_") + (looked_up ? "looked_up/" : "by_name/") + name,
          benchmark::kNanosecond, guarded([looked_up](Session& s, benchmark::State& state) {
            return launches(s, state, looked_up);
          }));
      measure_once(std::string("unguarded/copy_") + (looked_up ? "looked_up/" : "by_name/") + name,
                   benchmark::kNanosecond,
                   guarded([looked_up](Session& s, benchmark::State& state) {
                     return copies(s, state, looked_up);
                   }));
    }
  }
  measure_once("unowned/allocate_free", benchmark::kNanosecond, [&](benchmark::State& state) {
    const CheckedDriver& raw = session.raw();
    CUcontext popped = nullptr;
    must(raw.cuCtxPushCurrent_v2(session.host().lease().context));
    const double time = allocations(session, state, true);
    must(raw.cuCtxPopCurrent_v2(&popped));
    return time;
  });
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_gate", ctxbroker::bench::enrol);
}
