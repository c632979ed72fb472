// SPDX-License-Identifier: Apache-2.0
// One image in one lease. It can be unloaded when memory is short, and loaded again.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "context/resources.hpp"
#include "module/module_image.hpp"
#include "module/stored_image.hpp"

namespace ctxbroker::detail {

class LoadedCode {
 public:
  // `known` says that an earlier generation of the lease had it loaded.
  LoadedCode(std::shared_ptr<Lease> lease, std::shared_ptr<const StoredImage> image,
             const JitOptions& options, bool known);
  ~LoadedCode() { unload(); }
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  const StoredImage& image() const noexcept { return *image_; }
  bool is_of(const StoredImage& image, const JitOptions& options) const noexcept {
    return image_.get() == &image && options_ == options;
  }

  // Loads the image unless it is loaded. `module` has the name and the kernels that it promises.
  // Throws Error: kernel_image with the JIT log, out_of_memory, context_lost, driver_call.
  CUmodule load(const ModuleImage& module);
  // Unloads the image. None of its kernels may be running or about to be launched.
  void unload() noexcept;
  // Returns null while it is not loaded. Waits while another thread loads it.
  CUmodule handle() const noexcept {
    const std::lock_guard lock(loading_);
    return module_.get();
  }

 private:
  Module load_now(const ModuleImage& module);
  void tell(const ModuleImage& module, const class JitCall& call, double milliseconds) const;

  const std::shared_ptr<Lease> lease_;
  const std::shared_ptr<const StoredImage> image_;
  const JitOptions options_;
  mutable std::mutex loading_;
  bool known_;
  Module module_;
};

}  // namespace ctxbroker::detail
