// SPDX-License-Identifier: Apache-2.0
// The ctxb_host struct that one instance gets, the functions in it, and who may still call them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

class Instance;
class StateStreams;
struct TenantIdentity;

// The handle by which a plug-in knows an instance. It is never freed, and no other instance gets
// its address: a thread of the plug-in may call at any time, also when the instance has ended. Such
// a call is refused, and counts as a strike of the plug-in. It takes about 130 bytes for each
// instance that the process has ever had.
class HostSide {
 public:
  // The texts are of lasting(). Throws std::bad_alloc.
  static HostSide& make(Instance& instance, std::weak_ptr<const TenantIdentity> tenant,
                        const char* plugin, const char* host_name, const char* host_version);

  const ctxb_host* host() const noexcept { return &host_; }

  // Refuses all later calls, and waits until other threads have left the instance. False: some
  // thread is still inside after `limit`, so the instance must stay.
  bool end(std::chrono::milliseconds limit) noexcept;
  // False: a thread is inside the instance.
  bool is_left() const noexcept;
  // Waits until other threads have left the activation. The instance's phase lets none in any more.
  // False: some thread is still inside after `limit`, so the activation must stay.
  bool wait_until_activation_is_left(std::chrono::milliseconds limit) noexcept;

  // The streams of save and load, which the plug-in may keep as well. [main]. Throws
  // std::bad_alloc.
  StateStreams& streams();

 private:
  friend class InstanceUse;
  friend class RunningSide;
  friend Instance* running_instance(const ctxb_host* host) noexcept;

  HostSide(Instance& instance, std::weak_ptr<const TenantIdentity> tenant, const char* plugin,
           const char* host_name, const char* host_version);
  void strike_late_call(const char* function) const noexcept;

  // First, so that the address which a plug-in hands back is the address of this object.
  ctxb_host host_{};
  Instance* instance_;
  std::atomic<std::uint32_t> calls_{0};  // by other threads, and the bit `ended_bit`
  std::atomic<std::uint32_t> calls_in_activation_{0};
  std::weak_ptr<const TenantIdentity> tenant_;
  const char* plugin_;  // its id
  StateStreams* streams_ = nullptr;
  HostSide* next_ = nullptr;
};

// The instance whose function runs on this thread, innermost. "initial-exec" makes it one load.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const HostSide* running_side;

// Notes that a function of the instance runs on this thread, so that it stays until the function
// returns.
class RunningSide {
 public:
  explicit RunningSide(const HostSide& side) noexcept : outer_(running_side) {
    running_side = &side;
  }
  ~RunningSide() { running_side = outer_; }
  RunningSide(const RunningSide&) = delete;
  RunningSide& operator=(const RunningSide&) = delete;

 private:
  const HostSide* outer_;
};

// Returns the instance that a host pointer belongs to if its function runs on this thread, or null.
inline Instance* running_instance(const ctxb_host* host) noexcept {
  const auto* const side = reinterpret_cast<const HostSide*>(host);
  return side != nullptr && side == running_side ? side->instance_ : nullptr;
}

// Holds the instance behind a host pointer during a call by the plug-in, and its activation if it
// is asked for that. Takes no lock, and writes nothing if a function of the instance runs on this
// thread.
class InstanceUse {
 public:
  enum class Of { instance, activation };
  // `function` is what the plug-in called, as a strike names it.
  InstanceUse(const ctxb_host* host, const char* function, Of of = Of::instance) noexcept
      : instance_(running_instance(host)) {
    if (instance_ == nullptr && host != nullptr) enter(host, function, of);
  }
  ~InstanceUse() {
    if (side_ != nullptr) leave();
  }
  InstanceUse(const InstanceUse&) = delete;
  InstanceUse& operator=(const InstanceUse&) = delete;

  // Null: the plug-in passed null, or the instance has ended, which was a strike.
  Instance* instance() const noexcept { return instance_; }

 private:
  [[gnu::cold]] void enter(const ctxb_host* host, const char* function, Of of) noexcept;
  [[gnu::cold]] void leave() noexcept;

  Instance* instance_;
  HostSide* side_ = nullptr;  // that counts this call
  bool in_activation_ = false;
};

// The tables behind get_extension: static data.
extern const ctxb_gpu_extension gpu_extension;
extern const ctxb_launch_extension launch_extension;
extern const ctxb_native_context_extension native_context_extension;
extern const ctxb_thread_check_extension thread_check_extension;

}  // namespace ctxbroker::detail
