// SPDX-License-Identifier: Apache-2.0
#include "qos/load.hpp"

#include "qos/loads.hpp"

namespace ctxbroker::bench {
namespace {

const Load load_table[] = {
    {"none", "no neighbour", nullptr},
    {"hog_10us", "fills its multiprocessors with blocks of 10 us", neighbour::hog_10us},
    {"hog_100us", "the same, 100 us", neighbour::hog_100us},
    {"hog_2ms", "the same, 2 ms", neighbour::hog_2ms},
    {"bandwidth", "reads and writes device memory as fast as it can", neighbour::bandwidth},
    {"launch_flood", "launches empty kernels without a pause", neighbour::launch_flood},
    {"allocation", "cuMemAlloc and cuMemFree of 1 MiB in a loop", neighbour::allocation},
    {"pinned", "pinned host memory, 16 MiB, allocated and freed in a loop", neighbour::pinned},
    {"module", "loads and unloads a module in a loop", neighbour::module},
    {"reset", "calls cuDevicePrimaryCtxReset in a loop", neighbour::reset},
};

}  // namespace

std::span<const Load> loads() noexcept {
  return load_table;
}

RunningLoad::RunningLoad(Session& session, const Pace& pace, Tenant& neighbour, const Load& load,
                         const LoadSettings& settings) {
  if (load.run == nullptr) return;
  const unsigned multiprocessors = neighbour.lease().granted.multiprocessors;
  thread_ = std::thread([this, &session, &pace, &neighbour, &load, &settings, multiprocessors] {
    try {
      const Guard guard(neighbour, 0, load.name);
      LoadContext context{session.raw(), settings, pace,     stop_,
                          begun_,        done_,    refused_, multiprocessors};
      load.run(context);
    } catch (...) {
      failure_ = std::current_exception();
    }
    begun_.store(true);
  });
  while (!begun_.load()) std::this_thread::yield();
}

RunningLoad::~RunningLoad() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void RunningLoad::stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace ctxbroker::bench
