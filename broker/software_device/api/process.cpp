#include "api/process.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace ctxbroker::software {
namespace {

enum class Phase { fresh, ready, ended, forked };

// Process-wide by the driver's interface, which has no handle for itself. Trivially destructible:
// they are read while static objects are destroyed and in a forked child.
std::atomic<Phase> phase = Phase::fresh;
std::atomic<CUresult> first_fault = CUDA_SUCCESS;
std::atomic<std::uint64_t> last_id = 0;
std::atomic<Process*> the_process = nullptr;

}  // namespace

std::uint64_t next_id() noexcept {
  return ++last_id;
}

Process::Process(const Settings& settings) {
  for (unsigned ordinal = 0; ordinal < settings.devices; ++ordinal)
    devices.push_back(std::make_unique<Device>(static_cast<int>(ordinal), settings));
}

CUresult Process::initialise() {
  static std::mutex& mutex = *new std::mutex;
  if (phase == Phase::forked) return CUDA_ERROR_NOT_INITIALIZED;  // no thread of ours exists here
  std::lock_guard lock(mutex);
  if (phase == Phase::ended) return CUDA_ERROR_DEINITIALIZED;
  if (phase == Phase::ready) return CUDA_SUCCESS;
  Settings settings = read_settings();
  if (settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  the_process = new Process(settings);
  std::atexit([] { end(); });
  pthread_atfork(nullptr, nullptr, [] {
    if (phase == Phase::ready) phase = Phase::forked;
  });
  phase = Phase::ready;
  return CUDA_SUCCESS;
}

CUresult Process::admission() noexcept {
  switch (phase.load(std::memory_order_acquire)) {
    case Phase::ready:
      return in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    case Phase::ended:
      return CUDA_ERROR_DEINITIALIZED;
    case Phase::fresh:
    case Phase::forked:
      break;
  }
  return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult Process::fault() noexcept {
  return first_fault.load(std::memory_order_acquire);
}

void Process::raise_fault(CUresult status) noexcept {
  CUresult none = CUDA_SUCCESS;
  if (first_fault.compare_exchange_strong(none, status))
    for (const auto& device : instance().devices) device->executor.wake();
}

Process& Process::instance() noexcept {
  return *the_process.load(std::memory_order_acquire);
}

void Process::end() noexcept {
  if (phase != Phase::ready) return;  // a forked child has no threads to end
  phase = Phase::ended;
  for (const auto& device : instance().devices) device->executor.stop();
}

}  // namespace ctxbroker::software
