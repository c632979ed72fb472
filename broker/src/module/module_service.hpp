// SPDX-License-Identifier: Apache-2.0
// All modules of a broker, by generation of a lease. Idle modules are unloaded when device memory
// is short.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "context/realtime_session.hpp"
#include "context/used_device.hpp"
#include "module/loaded_code.hpp"
#include "module/use_gate.hpp"

namespace ctxbroker::detail {

class ModuleSet;

struct Unloaded {
  std::size_t modules = 0;
  std::uint64_t bytes = 0;  // of their images
};

// The modules in one generation of a lease, and the module sets that use them. Any thread. What a
// plug-in does with its modules (activate, process, deactivate) happens inside the gate.
//
// A module that an activation can share stays loaded for later activations, because the driver
// loads a module only when no kernel of a neighbour runs.
class LeaseModules {
 public:
  explicit LeaseModules(std::shared_ptr<Lease> lease) : lease_(std::move(lease)) {}

  const std::shared_ptr<Lease>& lease() const noexcept { return lease_; }
  UseGate& gate() noexcept { return gate_; }

  // An image that remembers nothing is loaded once for all who use it; of any other each gets a
  // copy of its own.
  std::shared_ptr<LoadedCode> code_for(const std::shared_ptr<const StoredImage>& image,
                                       const JitOptions& options, bool known);
  // Keeps code no longer than its users do, because no later activation will use it.
  void forget(const std::shared_ptr<LoadedCode>& code) noexcept;

  void add(ModuleSet& user);
  void remove(ModuleSet& user) noexcept;

  // Unloads what can be loaded again without a difference, when no guard of the lease is entered
  // and the work of all users is done; else nothing. Never where somebody works in real time.
  Unloaded unload_idle() noexcept;

 private:
  bool is_idle() noexcept;

  const std::shared_ptr<Lease> lease_;
  UseGate gate_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<LoadedCode>> codes_;
  std::vector<std::shared_ptr<LoadedCode>> kept_;  // those that can be shared
  std::vector<ModuleSet*> users_;
  std::atomic<int> real_time_{0};  // of the users: while there is one, the gate is never closed
};

// Any thread.
class ModuleService final : public MemoryRelief {
 public:
  // Returns the modules of this generation of the lease.
  std::shared_ptr<LeaseModules> at(const std::shared_ptr<Lease>& lease);

  // Unloads idle modules of a device.
  Unloaded unload_idle(int device) noexcept;
  bool relieve(int device) noexcept override {
    return !RealtimeSession::anywhere() && unload_idle(device).modules != 0;
  }

  // Returns whether an earlier generation of the lease had the image loaded.
  bool was_loaded(const Lease& lease, const StoredImage& image);
  void record_loaded(const Lease& lease, const StoredImage& image);

 private:
  using Key = std::tuple<std::uint32_t, int, std::uint64_t>;  // tenant, device, hash

  std::mutex mutex_;
  std::vector<std::weak_ptr<LeaseModules>> all_;
  std::map<Key, std::uint64_t> loaded_;  // the generation it was loaded in
};

}  // namespace ctxbroker::detail
