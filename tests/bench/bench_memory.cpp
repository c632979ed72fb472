// SPDX-License-Identifier: Apache-2.0
// Measures what memory costs a tenant: an allocation and its free, through the gate and with the
// driver's own functions ("raw"), on one thread inside a guard. A benchmark's name has these parts:
//   - "device" (cuMemAlloc and cuMemFree) or "pinned" (cuMemHostAlloc and cuMemFreeHost);
//   - the size. Sizes that do not fit are left out;
//   - the tenant's MemorySource. "pool" is left out if the driver has no memory pools;
//   - the lease. A private lease is left out, because no free there waits for a neighbour;
//   - "alone", or "beside" a neighbour in a partition, which always runs a kernel of about 5 ms.
// The counters also show the allocation and the free apart, because only the free waits for the
// neighbour. "kept" is the number of bytes that the tenant's pool keeps unused at the end. Another
// allocation exists in the context all the time, so that the driver need not make a new block for
// each small one.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "qos/running_load.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {
namespace {

enum class MemoryKind { device, pinned };

struct MemoryCase {
  MemoryKind kind;
  std::size_t bytes;
  MemorySource source;
  LeaseKind lease;
  bool beside;
};

constexpr std::size_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30;
constexpr std::size_t sizes[] = {4 * kib, 64 * kib, mib, 16 * mib, 256 * mib, gib};
constexpr std::size_t most_when_quick = mib;
constexpr unsigned neighbours_part = 16;  // of the multiprocessors

std::string text_of(std::size_t bytes) {
  if (bytes >= gib) return std::to_string(bytes / gib) + "GiB";
  if (bytes >= mib) return std::to_string(bytes / mib) + "MiB";
  return std::to_string(bytes / kib) + "KiB";
}

std::string name_of(const MemoryCase& one) {
  return std::string(one.kind == MemoryKind::device ? "device/" : "pinned/") + text_of(one.bytes) +
         "/" + to_string(one.source) + "/" + to_string(one.lease) +
         (one.beside ? "/beside" : "/alone");
}

void check_memory_call(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " returned " + std::to_string(status));
}

// The times of an allocation and of its free, in nanoseconds.
struct Halves {
  double alloc = 0, free = 0;
  double sum() const { return alloc + free; }
};

Halves allocate_and_free(const DriverFunctions& driver, MemoryKind kind, std::size_t bytes) {
  CUdeviceptr device = 0;
  void* host = nullptr;
  const bool on_device = kind == MemoryKind::device;
  const auto begin = Clock::now();
  check_memory_call(
      on_device ? driver.cuMemAlloc_v2(&device, bytes) : driver.cuMemHostAlloc(&host, bytes, 0),
      "an allocation");
  const auto between = Clock::now();
  check_memory_call(on_device ? driver.cuMemFree_v2(device) : driver.cuMemFreeHost(host), "a free");
  return {std::chrono::duration<double, std::nano>(between - begin).count(),
          nanoseconds_since(between)};
}

// One side of the comparison.
class Side {
 public:
  Side(const DriverFunctions& driver, const MemoryCase& one) : driver_(driver), case_(one) {}

  // Returns what one allocation and its free take on average.
  double round(unsigned count) {
    Halves all;
    for (unsigned i = 0; i < count; ++i) {
      const Halves halves = allocate_and_free(driver_, case_.kind, case_.bytes);
      all.alloc += halves.alloc;
      all.free += halves.free;
    }
    allocs_.push_back(all.alloc / count);
    frees_.push_back(all.free / count);
    return all.sum() / count;
  }
  void forget() {
    allocs_.clear();
    frees_.clear();
  }
  void show(benchmark::State& state, const std::string& prefix) {
    state.counters[prefix + "alloc_ns"] = percentile(allocs_, 0.5);
    state.counters[prefix + "free_ns"] = percentile(frees_, 0.5);
  }

 private:
  const DriverFunctions& driver_;
  const MemoryCase& case_;
  std::vector<double> allocs_, frees_;  // of each round
};

// Times both sides. A round is long enough to be timed. A slow case gets fewer rounds, so that it
// does not take too long.
double measure(Session& session, const MemoryCase& one, benchmark::State& state) {
  constexpr double round_length = 2e6, side_length = 1e9;  // ns
  Side raw(session.raw(), one), gated(session.gated(), one);
  raw.round(1);
  gated.round(1);
  const double once = std::max({raw.round(3), gated.round(3), 1.});
  const unsigned count =
      session.quick() ? 5 : static_cast<unsigned>(std::clamp(round_length / once, 1., 500.));
  const auto rounds =
      static_cast<unsigned>(std::clamp(side_length / std::max(once, round_length), 5., 40.));
  raw.forget();
  gated.forget();
  Comparison times = compare(
      session.rounds(rounds), [&] { return raw.round(count); }, [&] { return gated.round(count); });
  raw.show(state, "raw_");
  gated.show(state, "");
  return report(state, std::move(times));
}

// Memory from the driver in the current context.
class HeldMemory {
 public:
  explicit HeldMemory(const CheckedDriver& driver) : driver_(driver) {
    CTXB_CALL(driver_, cuMemAlloc_v2, &address_, 4 * kib);
  }
  ~HeldMemory() { driver_.cuMemFree_v2(address_); }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

 private:
  const CheckedDriver& driver_;
  CUdeviceptr address_ = 0;
};

const Pace& pace_of(Session& session) {
  static const Pace pace = [&] {
    const Guard guard(session.host());
    const Module module(session.raw(), kernel_image());
    return Pace(session.raw(), module.function("work"), session.device().multiprocessors);
  }();
  return pace;
}

const Load& find_hog() {
  for (const Load& one : loads()) {
    if (one.name == std::string("hog_100us")) return one;
  }
  throw std::runtime_error("there is no hog");
}

// Runs kernels until its end.
class Neighbour {
 public:
  explicit Neighbour(Session& session)
      : settings_{session.quick() ? 0.01 : 5., 0, 0},
        tenant_(session.broker().open_tenant(
            "neighbour", TenantOptions{LeaseChoice(LeaseKind::green, neighbours_part)})),
        load_(session.raw(), pace_of(session), tenant_, find_hog(), settings_) {}
  // Throws what its thread threw.
  void stop() { load_.stop(); }

 private:
  const LoadSettings settings_;
  Tenant tenant_;
  RunningLoad load_;
};

// Measures one case in a new tenant. The tenant's memory has been given back when this returns.
double run(Session& session, const MemoryCase& one, benchmark::State& state) {
  TenantOptions options{LeaseChoice(one.lease)};
  options.memory = one.source;
  double time = 0;
  {
    Tenant tenant = session.broker().open_tenant("measured", options);
    tenant.lease();
    std::optional<Neighbour> neighbour;
    if (one.beside) neighbour.emplace(session);
    {
      const Guard guard(tenant);
      const HeldMemory held(session.raw());
      time = measure(session, one, state);
    }
    if (neighbour) neighbour->stop();
    const std::uint64_t kept = session.kept_by(tenant);
    if (one.kind == MemoryKind::device && one.source == MemorySource::pool && kept < one.bytes) {
      throw std::runtime_error("the memory was not the pool's");
    }
    state.counters["kept"] = static_cast<double>(kept);
  }
  session.broker().poll();
  return time;
}

// Leaves room for both sides: a pool keeps freed memory while the driver's memory is measured.
bool fits(const Session& session, std::size_t bytes) {
  const auto on_host = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes <= std::min(session.device().memory_bytes, on_host) / 4 &&
         (!session.quick() || bytes <= most_when_quick);
}

void enrol(Session& session) {
  session.gated();  // throws if there is no gate
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned}) {
    for (const std::size_t bytes : sizes) {
      if (!fits(session, bytes)) continue;
      for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
        if (source == MemorySource::pool && !session.device().memory_pools) continue;
        for (const LeaseKind lease : {LeaseKind::shared, LeaseKind::green}) {
          for (const bool beside : {false, true}) {
            const MemoryCase one{kind, bytes, source, lease, beside};
            measure_once(
                name_of(one), benchmark::kMicrosecond,
                [&session, one](benchmark::State& state) { return run(session, one, state); });
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_memory", ctxbroker::bench::enrol);
}
