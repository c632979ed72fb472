// SPDX-License-Identifier: Apache-2.0
#include "api/process.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "api/capture.hpp"
#include "api/fault_text.hpp"

namespace ctxbroker::software {
namespace {

enum class Phase { fresh, ready, ended, forked };

// Process-wide by the driver's interface, which has no handle for itself. Trivially destructible:
// they are read while static objects are destroyed and in a forked child.
std::atomic<Phase> phase = Phase::fresh;
std::atomic<CUresult> first_fault = CUDA_SUCCESS;
std::atomic<Process*> the_process = nullptr;

// Held while a life of the driver begins or ends.
std::mutex& life_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

}  // namespace

Process::Process(const Settings& settings, const Process* before)
    : contexts(before == nullptr ? 0 : before->contexts.made()), before_(before) {
  for (unsigned ordinal = 0; ordinal < settings.devices; ++ordinal)
    devices.push_back(std::make_unique<Device>(static_cast<int>(ordinal), settings));
}

CUresult Process::initialise() {
  if (phase == Phase::forked) return CUDA_ERROR_NOT_INITIALIZED;  // no thread of ours exists here
  std::lock_guard lock(life_mutex());
  if (phase == Phase::ended) return CUDA_ERROR_DEINITIALIZED;
  if (phase == Phase::ready) return CUDA_SUCCESS;
  Settings settings = read_settings();
  if (settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  const Process* before = the_process;
  the_process = new Process(settings, before);
  if (before == nullptr) {
    std::atexit([] { end(); });
    pthread_atfork(nullptr, nullptr, [] {
      if (phase == Phase::ready) phase = Phase::forked;
    });
  }
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
    for (const auto& device : instance().devices) {
      device->executor.interrupt();
      device->executor.wake();
    }
}

Process& Process::instance() noexcept {
  return *the_process.load(std::memory_order_acquire);
}

CUresult Process::restart() noexcept {
  if (CUresult status = admission(); status != CUDA_SUCCESS) return status;
  std::lock_guard lock(life_mutex());
  Process& old = instance();
  if (context_stack::others_in_use()) return CUDA_ERROR_NOT_READY;
  for (const auto& device : old.devices)
    if (device->executor.has_waiters()) return CUDA_ERROR_NOT_READY;
  while (context_stack::pop(nullptr)) {
  }
  phase = Phase::fresh;
  for (const auto& device : old.devices) device->executor.stop();
  old.forget();
  first_fault = CUDA_SUCCESS;
  forget_fault();
  return CUDA_SUCCESS;
}

void Process::forget() {
  for (const auto& device : devices) device->executor.forget();
  auto all = [](const auto&) { return true; };
  forget_captures();
  user_objects.take_all(all);
  graph_execs.take_all(all);
  graph_nodes.take_all(all);
  graphs.take_all(all);
  links.take_all(all);
  kernels.take_all(all);
  libraries.take_all(all);
  functions.take_all(all);
  modules.take_all(all);
  events.take_all(all);
  streams.take_all(all);
  arrays.take_all(all);
  memory.remove_everything();
  virtual_memory.forget();
  pools.take_all(all);
  contexts.end_all();
  for (const auto& device : devices)
    if (Context* primary = device->primary()) primary->alive = false;
}

void Process::end() noexcept {
  if (phase != Phase::ready) return;  // a forked child has no threads to end
  phase = Phase::ended;
  for (const auto& device : instance().devices) device->executor.stop();
}

}  // namespace ctxbroker::software
