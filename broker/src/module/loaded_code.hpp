// SPDX-License-Identifier: Apache-2.0
// One image in one lease. It can be unloaded when memory is short, and loaded again.
#pragma once

#include <condition_variable>
#include <exception>
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
  // Unloads the image once nothing runs in the memory that it is in.
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  const StoredImage& image() const noexcept { return *image_; }
  bool is_of(const StoredImage& image, const JitOptions& options) const noexcept {
    return image_.get() == &image && options_ == options;
  }

  // Loads the image unless it is loaded. `module` has the name and the kernels that it promises.
  // Threads that come while one loads it share the outcome. The driver loads it on a thread that is
  // left behind when it waits for work that hangs: see HungWork::make.
  // Throws Error: kernel_image with the JIT log, out_of_memory, context_lost, driver_call;
  // lease_unavailable when the driver waits for work on the device and loads no module in time.
  CUmodule load(const ModuleImage& module);
  // Unloads the image. None of its kernels may be running or about to be launched. The driver may
  // wait for the kernels of neighbours.
  void unload() noexcept;
  // Returns null while it is not loaded.
  CUmodule handle() const noexcept {
    const std::lock_guard lock(mutex_);
    return module_.get();
  }

 private:
  struct Outcome {
    bool is_there = false;
    std::exception_ptr error;
  };
  void load_now(const ModuleImage& module);
  Module take() noexcept;  // empty: it is not loaded
  Module load_by_driver(const ModuleImage& module);
  void tell(const ModuleImage& module, const class JitCall& call, double milliseconds) const;

  const std::shared_ptr<Lease> lease_;
  const std::shared_ptr<const StoredImage> image_;
  const JitOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  std::shared_ptr<Outcome> loading_;  // of the thread that loads it now, else null
  bool known_;
  Module module_;
};

}  // namespace ctxbroker::detail
