// SPDX-License-Identifier: Apache-2.0
#include "module/module_set.hpp"

#include <algorithm>
#include <utility>

#include "context/hung_work.hpp"
#include "context/realtime_session.hpp"
#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "module/image_error.hpp"
#include "module/kernel_names.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_every{200};  // at files

}  // namespace

ModuleSet::ModuleSet(ModuleService& service, std::shared_ptr<LeaseModules> at,
                     const std::vector<ModuleImage>& modules, std::vector<Kernel>& kernels,
                     bool real_time)
    : service_(service), at_(std::move(at)), kernels_(kernels), real_time_(real_time) {
  uses_.reserve(modules.size());
  for (const ModuleImage& module : modules) {
    uses_.push_back({&module});
    watches_ = watches_ || (module.development && !real_time);
  }
  at_->add(*this);
}

ModuleSet::~ModuleSet() {
  at_->remove(*this);
}

void ModuleSet::load() {
  for (ModuleUse& use : uses_) {
    const bool has_to_be_there = real_time_ || RealtimeSession::anywhere();
    if (has_to_be_there || !use.module->on_first_use) load_module(use);
  }
}

ModuleUse* ModuleSet::find(const char* name) noexcept {
  if (name == nullptr) return uses_.size() == 1 ? &uses_.front() : nullptr;
  const auto found =
      std::find_if(uses_.begin(), uses_.end(), [&](const auto& use) { return use.name() == name; });
  return found == uses_.end() ? nullptr : &*found;
}

std::shared_ptr<LoadedCode> ModuleSet::code_of(const ModuleUse& use, bool again) {
  const Clock::time_point begin = Clock::now();
  const ContextGuard guard(lease()->target());
  lease()->check_entered(guard.status());
  const auto image = use.module->maker->make(*lease(), *use.module);
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  lease()->counters().module_load_nanoseconds.fetch_add(static_cast<std::uint64_t>(spent.count()),
                                                        std::memory_order_relaxed);
  const bool known = again || service_.was_loaded(*lease(), *image);
  return at_->code_for(image, use.module->jit, known);
}

// Makes its code, at the first need.
void ModuleSet::make_code(ModuleUse& use) {
  if (use.code != nullptr) return;
  if (use.module->development) use.stamp = stamp_of(use.module->file);
  use.code = code_of(use);
}

CUmodule ModuleSet::load_module(ModuleUse& use) {
  make_code(use);
  if (CUmodule const loaded = use.code->handle(); loaded != nullptr) return loaded;
  CUmodule const handle = use.code->load(*use.module);
  service_.record_loaded(*lease(), use.code->image());
  return handle;
}

bool ModuleSet::can_wait(ModuleUse& use, const char* kernel) {
  if (real_time_ || !use.module->on_first_use) return false;
  make_code(use);
  return use.code->handle() == nullptr &&
         use.code->image().has_kernel(kernel, capability_of(*lease()));
}

CUresult ModuleSet::find_function(Kernel& kernel, CUmodule module) const {
  Kernel found;
  found.module = kernel.module;
  found.name = kernel.name;
  const DriverTable& driver = lease()->table();
  CUresult status = driver.module_get_function(&found.function, module, found.name.c_str());
  if (status == CUDA_SUCCESS) status = load_kernel(found);
  if (status == CUDA_SUCCESS) status = describe_kernel(driver, found);
  if (status == CUDA_SUCCESS) kernel = std::move(found);
  return lease()->report_status(status);
}

// A driver that loads lazily would load the kernel's code at the first question about its
// attributes or at its first launch, and wait there for whatever runs.
CUresult ModuleSet::load_kernel(const Kernel& kernel) const {
  if (lease()->table().func_load == nullptr) return CUDA_SUCCESS;
  MakeRequest request;
  request.owner = lease()->tenant().lasting_name;
  request.perform = [lease = lease(), function = kernel.function] {
    return call_in(lease->table(), lease->memory_context(),
                   [&] { return lease->table().func_load(function); });
  };
  const auto status = lease()->family()->make(std::move(request));
  if (!status) throw not_loaded(*lease(), "kernel \"" + kernel.name + "\"", "cuFuncLoad");
  return *status == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : *status;
}

CUresult ModuleSet::find_function(Kernel& kernel) {
  return find_function(kernel, load_module(*find(kernel.module.c_str())));
}

std::string ModuleSet::no_such_kernel(const Kernel& kernel) {
  return detail::no_such_kernel(kernel.module, kernel.name,
                                find(kernel.module.c_str())->code->image(),
                                capability_of(*lease()));
}

void ModuleSet::bring_all() noexcept {
  try {
    for (Kernel& kernel : kernels_) {
      if (kernel.function == nullptr) find_function(kernel);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): see above
  }
}

bool ModuleSet::needs_where_it_is(const LoadedCode& code) const noexcept {
  return std::any_of(uses_.begin(), uses_.end(), [&](const ModuleUse& use) {
    return use.code.get() == &code && use.address_given;
  });
}

void ModuleSet::forget_functions(const LoadedCode& code) noexcept {
  for (const ModuleUse& use : uses_) {
    if (use.code.get() != &code) continue;
    if (before_forget_) before_forget_();
    for (Kernel& kernel : kernels_) {
      if (kernel.module == use.name()) kernel.function = nullptr;
    }
  }
}

// True when the plug-in has to be activated again. What is wrong with the new file is said, and the
// old code stays.
bool ModuleSet::exchange(ModuleUse& use, std::chrono::milliseconds end_timeout) {
  const auto log = [&](Severity severity, const std::string& text) {
    lease()->tenant().log(severity, "module", text);
  };
  const std::string who = "module \"" + use.name() + "\": \"" + use.module->file.string() + "\"";
  ModuleUse next = use;
  try {
    next.code = code_of(next, true);
    if (&next.code->image() == &use.code->image()) return false;  // the same bytes
    CUmodule const module = load_module(next);
    std::vector<Kernel> found;
    for (const Kernel& kernel : kernels_) {
      if (kernel.module != use.name()) continue;
      found.push_back(kernel);
      check(lease()->table(), find_function(found.back(), module), "cuModuleGetFunction",
            lease()->owner(), [&] {
              return "kernel \"" + kernel.name + "\" of module \"" + use.name() +
                     "\" cannot be looked up in it";
            });
    }
    if (use.address_given) {
      log(Severity::info, who + " has changed: the plug-in is activated again");
      return true;
    }
    // Work that still runs uses the old code.
    check(lease()->table(),
          lease()->report_status(wait_for(lease()->table(), stream_, end_timeout)), "cuStreamQuery",
          lease()->owner(), [] { return "the work before has not ended"; });
    if (before_forget_) before_forget_();
    auto next_kernel = found.begin();
    for (Kernel& kernel : kernels_) {
      if (kernel.module == use.name()) kernel = std::move(*next_kernel++);
    }
    at_->forget(use.code);
    use.code = std::move(next.code);
    log(Severity::info, who + " has changed: the new code is used from now on");
  } catch (const Error& error) {
    if (next.code != use.code) at_->forget(next.code);
    log(Severity::error,
        who + " has changed and cannot be used; the old code stays: " + std::string(error.what()));
  }
  return false;
}

bool ModuleSet::look_at_files(std::chrono::milliseconds end_timeout) {
  if (!watches_) return false;
  const Clock::time_point now = Clock::now();
  if (now - looked_ < look_every) return false;
  looked_ = now;
  bool activate = false;
  for (ModuleUse& use : uses_) {
    if (!use.module->development || use.code == nullptr) continue;
    const FileStamp stamp = stamp_of(use.module->file);
    if (stamp == use.stamp) continue;
    use.stamp = stamp;
    const ContextGuard guard(lease()->target());
    if (guard.status() == CUDA_SUCCESS) activate = exchange(use, end_timeout) || activate;
  }
  return activate;
}

}  // namespace ctxbroker::detail
