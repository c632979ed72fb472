// SPDX-License-Identifier: Apache-2.0
// Measures, for each kind of lease, which calls in one context wait for a kernel in another
// context.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "ctxbroker/error.hpp"
#include "driver/driver_file.hpp"
#include "probe/protocol.hpp"
#include "probe/subject.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

// NVIDIA's runtime library, where this machine has it as a shared library.
struct RuntimeLibrary {
  // Each returns the value of a cudaError_t.
  int (*device_synchronize)() = nullptr;
  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;
  std::string missing;  // why there is no such library, or empty
};

template <typename Function>
bool take(Function*& member, void* library, const char* symbol) {
  member = reinterpret_cast<Function*>(find_symbol(library, symbol));
  return member != nullptr;
}

// The runtime library works only on NVIDIA's driver; `driver` is the one that this process uses.
RuntimeLibrary find_runtime_library(DriverChoice driver) {
  RuntimeLibrary runtime;
  if (driver != DriverChoice::nvidia) {
    runtime.missing = "the runtime library works on NVIDIA's driver alone";
    return runtime;
  }
  for (const char* name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}) {
    const LoadedFile file = load_driver_file(name);
    if (file.handle == nullptr) continue;
    if (take(runtime.device_synchronize, file.handle, "cudaDeviceSynchronize") &&
        take(runtime.allocate, file.handle, "cudaMalloc") &&
        take(runtime.free, file.handle, "cudaFree")) {
      return runtime;
    }
  }
  runtime.missing = "no libcudart was found; its folder may be named in LD_LIBRARY_PATH";
  return runtime;
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kernel_runs_for{100};

// The context in which a kernel runs, and the context of the call that may wait for this kernel.
struct Neighbours {
  CUcontext busy = nullptr;
  CUcontext caller = nullptr;
};

// Measures how long a call takes in the caller's context while a kernel runs in the other context.
class Beside {
 public:
  Beside(const Subject& subject, Neighbours contexts) : subject_(subject), contexts_(contexts) {
    Inside inside(subject_, contexts_.busy);
    hold_ = subject_.kernel("hold");
    stream_ = subject_.stream();
    void* page = nullptr;
    subject_.check_call(subject_.table().mem_alloc_host(&page, sizeof(unsigned int)),
                        "cuMemAllocHost_v2");
    flag_ = static_cast<unsigned int*>(page);
    // Launch once without waiting, so that the cost of a first launch is not measured.
    set_flag(1);
    run();
    subject_.check_call(subject_.table().stream_synchronize(stream_), "cuStreamSynchronize");
  }

  double milliseconds(const std::function<void()>& call) {
    set_flag(0);
    {
      Inside inside(subject_, contexts_.busy);
      run();
    }
    std::thread later = start_own_thread([this] {
      std::this_thread::sleep_for(kernel_runs_for);
      set_flag(1);
    });
    const auto begin = Clock::now();
    std::string failure;
    try {
      Inside inside(subject_, contexts_.caller);
      call();
    } catch (const Error& error) {
      failure = error.what();
    }
    const auto end = Clock::now();
    later.join();
    Inside inside(subject_, contexts_.busy);
    subject_.check_call(subject_.table().stream_synchronize(stream_), "cuStreamSynchronize");
    if (!failure.empty()) throw Error(ErrorKind::driver_call, failure);
    return std::chrono::duration<double, std::milli>(end - begin).count();
  }

 private:
  void set_flag(unsigned int value) { std::atomic_ref<unsigned int>(*flag_).store(value); }
  void run() {
    const auto address = reinterpret_cast<CUdeviceptr>(flag_);
    subject_.check_call(subject_.launch(hold_, stream_, address), "cuLaunchKernel");
  }

  const Subject& subject_;
  Neighbours contexts_;
  CUfunction hold_ = nullptr;
  CUstream stream_ = nullptr;
  unsigned int* flag_ = nullptr;  // pinned memory, which has the same address in every context
};

void runtime_waits(const Subject& subject, Beside& beside, Neighbours contexts,
                   const std::string& name) {
  const RuntimeLibrary runtime = find_runtime_library(subject.driver().info.kind);
  if (!runtime.missing.empty()) {
    tell_missing(name + "device_synchronize", runtime.missing);
    tell_missing(name + "cuda_free", runtime.missing);
    return;
  }
  const auto check_call = [&](int status, const char* call) {
    if (status != 0) {
      throw Error(ErrorKind::driver_call,
                  std::string(call) + " failed with status " + std::to_string(status));
    }
  };
  void* memory = nullptr;
  {
    Inside inside(subject, contexts.caller);
    check_call(runtime.allocate(&memory, 1 << 20), "cudaMalloc");
    check_call(runtime.device_synchronize(), "cudaDeviceSynchronize");
  }
  tell_value(name + "device_synchronize", beside.milliseconds([&] {
    check_call(runtime.device_synchronize(), "cudaDeviceSynchronize");
  }));
  tell_value(name + "cuda_free",
             beside.milliseconds([&] { check_call(runtime.free(memory), "cudaFree"); }));
}

void measure(const Subject& subject, Neighbours contexts, const std::string& name) {
  const DriverTable& table = subject.table();
  CUdeviceptr address = 0;
  {
    Inside inside(subject, contexts.caller);
    address = subject.memory(1 << 20);
    subject.check_call(table.ctx_synchronize(), "cuCtxSynchronize");
  }
  Beside beside(subject, contexts);
  tell_value(name + "synchronize", beside.milliseconds([&] {
    subject.check_call(table.ctx_synchronize(), "cuCtxSynchronize");
  }));
  tell_value(name + "free", beside.milliseconds([&] {
    subject.check_call(table.mem_free(address), "cuMemFree_v2");
  }));
  runtime_waits(subject, beside, contexts, name);
}

}  // namespace

void probe_waits_shared(const Subject& subject) {
  measure(subject, {subject.primary(), subject.primary()}, "waits.shared.");
}

void probe_waits_private(const Subject& subject) {
  measure(subject, {subject.private_context(), subject.private_context()}, "waits.private.");
}

void probe_waits_green(const Subject& subject) {
  const std::vector<CUdevResource> groups = subject.smallest_groups(2);
  measure(subject, {subject.green(groups[0]), subject.green(groups[1])}, "waits.green.");
}

}  // namespace ctxbroker::detail
