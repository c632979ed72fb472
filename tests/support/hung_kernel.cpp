// SPDX-License-Identifier: Apache-2.0
#include "support/hung_kernel.hpp"

#include <atomic>
#include <utility>

namespace ctxbroker {

HungKernel::HungKernel(LookUp look_up) : look_up_(std::move(look_up)) {
  void* place = nullptr;
  constexpr unsigned portable_and_mapped = 3;
  check_call("cuCtxCreate_v2", &apart_, 0U, CUdevice{0});
  check_call("cuMemHostAlloc", &place, 3 * sizeof *flags_, portable_and_mapped);
  check_call("cuCtxPopCurrent_v2", &apart_);
  flags_ = static_cast<std::uint32_t*>(place);
  flags_[0] = flags_[1] = 0;
  flags_[2] = 1;
}

CUfunction HungKernel::load(const char* ptx) const {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  check_call("cuModuleLoadData", &module, static_cast<const void*>(ptx));
  check_call("cuModuleGetFunction", &kernel, module, "hold");
  return kernel;
}

void HungKernel::launch(CUfunction hold, CUstream stream, std::uint32_t* flag) const {
  auto at = reinterpret_cast<CUdeviceptr>(flag);
  void* arguments[] = {&at};
  constexpr void** extra = nullptr;
  check_call("cuLaunchKernel", hold, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, &arguments[0], extra);
}

bool HungKernel::is_held() const {
  return std::atomic_ref(flags_[0]).load() == 0;
}

void HungKernel::let_go(unsigned which) const {
  std::atomic_ref(flags_[which]).store(1);
}

void HungKernel::let_go_after(std::chrono::seconds time) {
  watchdog_ = std::jthread([this, time](const std::stop_token& stop) {
    for (int i = 0; i < 10 * time.count() && !stop.stop_requested(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    let_go();
  });
}

CUresult HungKernel::synchronize() const {
  CUcontext popped = nullptr;
  check_call("cuCtxPushCurrent_v2", apart_);
  const CUresult status = call("cuCtxSynchronize");
  call("cuCtxPopCurrent_v2", &popped);
  return status;
}

std::size_t HungKernel::free_memory() const {
  CUcontext popped = nullptr;
  std::size_t free = 0, total = 0;
  check_call("cuCtxPushCurrent_v2", apart_);
  check_call("cuMemGetInfo_v2", &free, &total);
  check_call("cuCtxPopCurrent_v2", &popped);
  return free;
}

}  // namespace ctxbroker
