// SPDX-License-Identifier: Apache-2.0
#include "module/loaded_code.hpp"

#include <chrono>
#include <new>
#include <utility>

#include "context/hung_work.hpp"
#include "context/realtime_session.hpp"
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

// Everything that a load needs. The thread that waits for it may leave, so it is shared.
struct Loading {
  Loading(std::shared_ptr<Lease> into, std::shared_ptr<const StoredImage> from,
          const JitOptions& options)
      : lease(std::move(into)),
        image(std::move(from)),
        call(options, lease->driver().info.version) {}

  const std::shared_ptr<Lease> lease;
  const std::shared_ptr<const StoredImage> image;
  JitCall call;
  CUmodule handle = nullptr;
};

// A module is the memory's, so that of a green lease is loaded in the primary: a green context is
// for one thread at a time.
MakeRequest request_for(const std::shared_ptr<Loading>& loading) {
  const Lease& lease = *loading->lease;
  MakeRequest request;
  request.owner = lease.tenant().lasting_name;
  request.perform = [loading] {
    const DriverTable& driver = loading->lease->table();
    JitCall& call = loading->call;
    return call_in(driver, loading->lease->memory_context(), [&] {
      return driver.module_load_data_ex(&loading->handle, loading->image->bytes.data(),
                                        call.count(), call.names(), call.values());
    });
  };
  request.undo = [loading] { loading->lease->unload_left_behind(loading->handle); };
  if (loading->image->may_need_compiler(capability_of(lease))) {
    // Freeing waits for the same work as loading. What takes longer after that is the compiler.
    request.longer = compiler_time;
    request.probe = [loading] {
      const DriverTable& driver = loading->lease->table();
      call_in(driver, loading->lease->memory_context(), [&] {
        CUdeviceptr smallest = 0;
        const CUresult status = driver.mem_alloc(&smallest, 1);
        if (status != CUDA_SUCCESS) return status;
        const CUresult freed = driver.mem_free(smallest);
        return freed != CUDA_SUCCESS ? driver.mem_free(smallest) : freed;  // it would be lost
      });
    };
  }
  return request;
}

void count_unload(LeaseCounters& holdings, const StoredImage& image) noexcept {
  holdings.module_bytes.fetch_sub(static_cast<std::int64_t>(image.size), std::memory_order_relaxed);
  holdings.module_unloads.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

LoadedCode::LoadedCode(std::shared_ptr<Lease> lease, std::shared_ptr<const StoredImage> image,
                       const JitOptions& options, bool known)
    : lease_(std::move(lease)), image_(std::move(image)), options_(options), known_(known) {}

CUmodule LoadedCode::load(const ModuleImage& module) {
  std::unique_lock lock(mutex_);
  if (module_) return module_.get();
  if (const auto others = loading_) {
    loaded_.wait(lock, [&] { return others->is_there; });
    if (others->error != nullptr) std::rethrow_exception(others->error);
    return module_.get();
  }
  const auto mine = loading_ = std::make_shared<Outcome>();
  lock.unlock();
  try {
    load_now(module);
  } catch (...) {
    mine->error = std::current_exception();
  }
  lock.lock();
  mine->is_there = true;
  loading_ = nullptr;
  loaded_.notify_all();
  if (mine->error != nullptr) std::rethrow_exception(mine->error);
  return module_.get();
}

void LoadedCode::load_now(const ModuleImage& module) {
  const Clock::time_point begin = Clock::now();
  Module loaded = load_by_driver(module);
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  const std::lock_guard lock(mutex_);
  module_ = std::move(loaded);
  LeaseCounters& holdings = lease_->counters();
  holdings.module_bytes.fetch_add(static_cast<std::int64_t>(image_->size),
                                  std::memory_order_relaxed);
  holdings.module_loads.fetch_add(1, std::memory_order_relaxed);
  if (known_) holdings.module_reloads.fetch_add(1, std::memory_order_relaxed);
  holdings.module_load_nanoseconds.fetch_add(static_cast<std::uint64_t>(spent.count()),
                                             std::memory_order_relaxed);
  known_ = true;
}

Module LoadedCode::load_by_driver(const ModuleImage& module) {
  const ContextGuard guard(lease_->target());
  lease_->check_entered(guard.status());
  const RealtimeWork work(lease_->tenant(), realtime_call("load module"), lease_->kind());
  const ScopedSpan span(SpanCategory::load, "load module", module.name.c_str(), lease_->tenant().id,
                        image_->size);
  const std::string who = "module \"" + module.name + "\"";
  // Once more where the device was full and others could give something up.
  for (bool again = false;; again = true) {
    const auto loading = std::make_shared<Loading>(lease_, image_, options_);
    const Clock::time_point begin = Clock::now();
    const auto made = lease_->family()->make(request_for(loading));
    if (!made) throw not_loaded(*lease_, who, "cuModuleLoadDataEx");
    const CUresult status = lease_->report_status(*made);
    if (status == CUDA_SUCCESS) {
      Module loaded(lease_, loading->handle);
      check_promised_kernels(*lease_, module, *image_, loading->handle);
      tell(module, loading->call,
           std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      return loaded;
    }
    if (status != CUDA_ERROR_OUT_OF_MEMORY || again || !lease_->device().relieve()) {
      throw image_error(
          *lease_, image_.get(),
          {status, "cuModuleLoadDataEx", who, loading->call.error(), loading->call.info()});
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

Module LoadedCode::take() noexcept {
  const std::lock_guard lock(mutex_);
  return std::move(module_);
}

void LoadedCode::unload() noexcept {
  Module module = take();
  if (!module) return;
  module.reset();
  count_unload(lease_->counters(), *image_);
}

// In a private lease, no neighbour waits. What hangs there ends with the other things of the lease.
LoadedCode::~LoadedCode() {
  if (lease_->kind() == LeaseKind::private_own || lease_->is_hung() ||
      !lease_->end_target(Home::memory)) {
    unload();
    return;
  }
  Module module = take();
  if (!module) return;
  try {
    lease_->unload_when_idle(module.get(), [of = std::weak_ptr(lease_), image = image_](CUresult) {
      const auto lease = of.lock();
      if (lease == nullptr) return;  // and its counters
      lease->counters().modules.fetch_sub(1, std::memory_order_relaxed);
      count_unload(lease->counters(), *image);
    });
    module.release();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is unloaded now
  }
}

}  // namespace ctxbroker::detail
