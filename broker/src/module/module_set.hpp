// SPDX-License-Identifier: Apache-2.0
// The modules of one activation: loaded with it or when they are first used, brought back after
// they were unloaded, exchanged when a file has changed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "module/image_maker.hpp"
#include "module/kernel.hpp"
#include "module/module_service.hpp"

namespace ctxbroker::detail {

// One module in it.
struct ModuleUse {
  const ModuleImage* module = nullptr;    // the descriptor's
  std::shared_ptr<LoadedCode> code = {};  // null until it is first needed
  bool address_given = false;             // of a variable: it has to stay where it is
  FileStamp stamp = {};                   // of its file, when it was last looked at

  const std::string& name() const noexcept { return module->name; }
};

// Used by one thread at a time, inside the gate of its lease's modules.
class ModuleSet {
 public:
  // Everything is borrowed and outlives the set. A real-time one is never unloaded.
  ModuleSet(ModuleService& service, std::shared_ptr<LeaseModules> at,
            const std::vector<ModuleImage>& modules, std::vector<Kernel>& kernels, bool real_time);
  ~ModuleSet();
  ModuleSet(const ModuleSet&) = delete;
  ModuleSet& operator=(const ModuleSet&) = delete;

  // Loads those that do not wait for their first use. In a real-time set and in a real-time
  // session, loads all. Throws Error.
  void load();
  // Called, inside the lease, before functions that kernels have are no longer good.
  void set_before_forget(std::function<void()> call) { before_forget_ = std::move(call); }
  // The stream whose work uses the modules.
  void set_stream(CUstream stream) noexcept { stream_ = stream; }

  // The module with this name, or the only one when `name` is null; null when there is none.
  ModuleUse* find(const char* name) noexcept;
  // Its handle, loaded now unless it is. Throws Error.
  CUmodule load_module(ModuleUse& use);
  // True when the kernel can be handed out although its module is not loaded yet.
  bool can_wait(ModuleUse& use, const char* kernel);

  // Finds the kernel's function, for the first time or again. Throws Error when the module cannot
  // be loaded; otherwise the driver's status. The kernel's other members are made anew.
  CUresult find_function(Kernel& kernel);
  // Says that there is no such kernel, and which there are. Its module is loaded.
  std::string no_such_kernel(const Kernel& kernel);

  // Loads what the kernels at hand are in, where that can be done; what cannot be is said when such
  // a kernel is launched.
  void bring_all() noexcept;

  // Looks at the files of development modules, if there are any and it is time, and exchanges what
  // has changed; what cannot be used is said. True when the plug-in has to be activated again to
  // see what changed. `end_timeout`: how long work that still runs is waited for.
  bool look_at_files(std::chrono::milliseconds end_timeout);

  // For LeaseModules.
  CUstream stream() const noexcept { return stream_; }
  bool is_real_time() const noexcept { return real_time_; }
  bool needs_where_it_is(const LoadedCode& code) const noexcept;
  void forget_functions(const LoadedCode& code) noexcept;

 private:
  const std::shared_ptr<Lease>& lease() const noexcept { return at_->lease(); }
  std::shared_ptr<LoadedCode> code_of(const ModuleUse& use, bool again = false);
  void make_code(ModuleUse& use);
  CUresult find_function(Kernel& kernel, CUmodule module) const;
  CUresult load_kernel(const Kernel& kernel) const;
  bool exchange(ModuleUse& use, std::chrono::milliseconds end_timeout);

  ModuleService& service_;
  const std::shared_ptr<LeaseModules> at_;
  std::vector<Kernel>& kernels_;
  std::vector<ModuleUse> uses_;
  const bool real_time_;
  bool watches_ = false;  // a file of one
  CUstream stream_ = nullptr;
  std::function<void()> before_forget_ = {};
  std::chrono::steady_clock::time_point looked_ = {};
};

}  // namespace ctxbroker::detail
