// SPDX-License-Identifier: Apache-2.0
#include "module/loaded_code.hpp"

#include <chrono>
#include <utility>

#include "module/image_error.hpp"
#include "module/image_maker.hpp"
#include "module/jit_call.hpp"
#include "module/kernel_names.hpp"
#include "observe/number_text.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

void check_promised_kernels(Lease& lease, const ModuleImage& module, const StoredImage& image,
                            CUmodule handle) {
  for (const auto& kernel : module.kernels) {
    CUfunction function = nullptr;
    const CUresult status =
        lease.report_status(lease.table().module_get_function(&function, handle, kernel.c_str()));
    if (status == CUDA_ERROR_NOT_FOUND) {
      throw Error(ErrorKind::kernel_image,
                  "its descriptor promises a kernel: " +
                      no_such_kernel(module.name, kernel, image, capability_of(lease)),
                  {.device = lease.device_ordinal(), .tenant = lease.tenant().name});
    }
    check(lease.table(), status, "cuModuleGetFunction", lease.owner(),
          [&] { return "kernel \"" + kernel + "\" cannot be looked up"; });
  }
}

}  // namespace

LoadedCode::LoadedCode(std::shared_ptr<Lease> lease, std::shared_ptr<const StoredImage> image,
                       const JitOptions& options, bool known)
    : lease_(std::move(lease)), image_(std::move(image)), options_(options), known_(known) {}

CUmodule LoadedCode::load(const ModuleImage& module) {
  const std::lock_guard lock(loading_);
  if (module_) return module_.get();
  const Clock::time_point begin = Clock::now();
  Module loaded = load_now(module);
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  module_ = std::move(loaded);
  LeaseCounters& holdings = lease_->counters();
  holdings.module_bytes.fetch_add(static_cast<std::int64_t>(image_->size),
                                  std::memory_order_relaxed);
  holdings.module_loads.fetch_add(1, std::memory_order_relaxed);
  if (known_) holdings.module_reloads.fetch_add(1, std::memory_order_relaxed);
  holdings.module_load_nanoseconds.fetch_add(static_cast<std::uint64_t>(spent.count()),
                                             std::memory_order_relaxed);
  known_ = true;
  return module_.get();
}

Module LoadedCode::load_now(const ModuleImage& module) {
  const ContextGuard guard(lease_->target());
  check(lease_->table(), lease_->report_status(guard.status()), "cuCtxPushCurrent_v2",
        lease_->owner(), [] { return "the lease's context cannot be entered"; });
  const ScopedSpan span(SpanCategory::load, "load module", module.name.c_str(), lease_->tenant().id,
                        image_->size);
  // Once more where the device was full and others could give something up.
  for (bool again = false;; again = true) {
    JitCall call(options_, lease_->driver().info.version);
    CUmodule handle = nullptr;
    const Clock::time_point begin = Clock::now();
    const CUresult status = lease_->report_status(lease_->table().module_load_data_ex(
        &handle, image_->bytes.data(), call.count(), call.names(), call.values()));
    if (status == CUDA_SUCCESS) {
      Module loaded(lease_, handle);
      check_promised_kernels(*lease_, module, *image_, handle);
      tell(module, call, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      return loaded;
    }
    if (status != CUDA_ERROR_OUT_OF_MEMORY || again || !lease_->device().relieve()) {
      throw image_error(*lease_, image_.get(),
                        {status, "cuModuleLoadDataEx", "module \"" + module.name + "\"",
                         call.error(), call.info()});
    }
  }
}

void LoadedCode::tell(const ModuleImage& module, const JitCall& call, double milliseconds) const {
  const TenantIdentity& tenant = lease_->tenant();
  if (!tenant.recorder->listening()) return;
  std::string text = "module \"" + module.name + "\"" +
                     (known_ ? " loaded again in " : " loaded in ") + fixed_text(milliseconds, 2) +
                     " ms";
  if (call.wall_time() > 0) {
    text += ", of which the compiler took " + fixed_text(static_cast<double>(call.wall_time()), 2) +
            " ms";
  }
  if (const std::string info =
          explain_log(call.info(), image_->text(), "module \"" + module.name + "\"");
      !info.empty()) {
    text += ": " + info;
  }
  tenant.log(Severity::debug, "module", text);
  if (!call.left_out().empty()) {
    tenant.log(Severity::warning, "module",
               "module \"" + module.name + "\" is loaded without " + call.left_out());
  }
}

void LoadedCode::unload() noexcept {
  const std::lock_guard lock(loading_);
  if (!module_) return;
  module_.reset();
  LeaseCounters& holdings = lease_->counters();
  holdings.module_bytes.fetch_sub(static_cast<std::int64_t>(image_->size),
                                  std::memory_order_relaxed);
  holdings.module_unloads.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ctxbroker::detail
