// The classes that a plug-in derives from.
#pragma once

#include <cstdint>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/gpu.hpp"
#include "ctxbroker/sdk/host.hpp"
#include "ctxbroker/sdk/job.hpp"
#include "ctxbroker/sdk/loss.hpp"
#include "ctxbroker/sdk/state_stream.hpp"

namespace ctxbroker::sdk {

namespace detail {
template <class Derived>
struct Thunks;
}

enum class Outcome : ctxb_status {
  done = CTXB_OK,
  again = CTXB_AGAIN,    // not ready: the output was not written, the host may offer the job again
  bypass = CTXB_BYPASS,  // nothing to do: the host passes the input on
};

// One instance. Derive from it, write `using Plugin::Plugin;` and a static constexpr Descriptor
// named `descriptor`, and export the class with CTXB_EXPORT_PLUGINS. Any exception is caught at
// the library's border; throw Failure to choose the status.
class Plugin {
 public:
  explicit Plugin(Host host) noexcept : host_(host), gpu_(host) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  // [main] [no-ctx]
  virtual ~Plugin() = default;

  // Looks up kernels and allocates. After an exception everything allocated is given back.
  // [main] [ctx]
  virtual void activate(const Activation& activation) = 0;

  // Enqueues the work of one job; allocates nothing, waits for nothing.
  // [render|audio] [ctx] [no-sync]
  virtual Outcome process(const Job& job) = 0;

  // For what the class holds besides DeviceBuffers; those are given back after it by themselves.
  // [main] [ctx]
  virtual void deactivate() {}

  // The context is gone; every DeviceBuffer is empty by now, every Kernel dead. Call nothing.
  // [main] [no-ctx]
  virtual void context_lost(const Loss& /*loss*/) {}

 protected:
  const Host& host() const noexcept { return host_; }

 private:
  template <class Derived>
  friend struct detail::Thunks;

  Host host_;
  detail::Gpu gpu_;
  ctxb_plugin raw_{};  // what the host holds
};

// Derive from it too when there is something to remember beyond the parameters.
class Stateful {
 public:
  virtual ~Stateful() = default;
  // Both while not active. A load that throws must leave the state as it was: read all, then keep.
  // [main] [no-ctx]
  virtual void save(StateWriter& writer) const = 0;
  virtual void load(StateReader& reader) = 0;
};

// Derive from it too when the output is late or rings on. While active; constant for one
// activation; in frames.
class Latent {
 public:
  virtual ~Latent() = default;
  // [main] [no-ctx]
  virtual std::uint64_t latency() const { return 0; }
  virtual std::uint64_t tail() const { return 0; }  // CTXB_TAIL_INFINITE when it never ends
};

// Derive from it too to be called after Host::request_callback.
class Callback {
 public:
  virtual ~Callback() = default;
  // [main] [no-ctx]
  virtual void on_main_thread() = 0;
};

}  // namespace ctxbroker::sdk
