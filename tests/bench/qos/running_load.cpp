// SPDX-License-Identifier: Apache-2.0
#include "qos/running_load.hpp"

namespace ctxbroker::bench {

RunningLoad::RunningLoad(const CheckedDriver& driver, const Pace& pace, Tenant& neighbour,
                         const Load& load, const LoadSettings& settings) {
  if (load.run == nullptr) return;
  const unsigned multiprocessors = neighbour.lease().granted.multiprocessors;
  thread_ = std::thread([this, &driver, &pace, &neighbour, &load, &settings, multiprocessors] {
    try {
      const Guard guard(neighbour, 0, load.name);
      LoadContext context{driver, settings, &pace, stop_, begun_, done_, refused_, multiprocessors};
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
