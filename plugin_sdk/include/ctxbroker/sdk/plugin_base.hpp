// SPDX-License-Identifier: Apache-2.0
/// @file
/// The classes that a plug-in derives from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/gpu.hpp"
#include "ctxbroker/sdk/host.hpp"
#include "ctxbroker/sdk/job.hpp"
#include "ctxbroker/sdk/loss.hpp"
#include "ctxbroker/sdk/rectangle.hpp"
#include "ctxbroker/sdk/state_stream.hpp"

namespace ctxbroker::sdk {

namespace detail {
template <class Derived>
struct Thunks;
}

/// What process did.
enum class Outcome : ctxb_status {
  done = CTXB_OK,  ///< It enqueued the job's work.
  /// It was not ready and wrote no output. The host waits until the work that this call has
  /// enqueued is done, and calls process once more with the same job. A second `again` fails the
  /// job.
  again = CTXB_AGAIN,
  bypass = CTXB_BYPASS,  ///< There is nothing to do. The host passes the input on as the output.
};

/// One instance of a plug-in. Derive from it, write `using Plugin::Plugin;` and a static constexpr
/// Descriptor named `descriptor`, and export the class with CTXB_EXPORT_PLUGINS.
///
/// Its functions may throw anything. The SDK catches every exception and tells the host; throw
/// Failure to choose the status.
class Plugin {
 public:
  /// @param host  the host, which outlives the instance. [main] [no-ctx]
  explicit Plugin(Host host) noexcept : host_(host), gpu_(host) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  /// The last call. The instance is not active. [main] [no-ctx]
  virtual ~Plugin() = default;

  /// Looks up kernels and allocates. After an exception, everything that it allocated is given
  /// back. [main] [ctx]
  virtual void activate(const Activation& activation) = 0;

  /// Enqueues the work of one job. It must not allocate and must not wait.
  /// [render|audio] [ctx] [no-sync]
  [[nodiscard]] virtual Outcome process(const Job& job) = 0;

  /// Gives back what the class holds besides DeviceBuffers. The SDK empties those afterwards. The
  /// device has finished every job. [main] [ctx]; after context_lost [no-ctx]
  virtual void deactivate() {}

  /// Forgets every handle of the context, which is gone. Every DeviceBuffer is already empty, and
  /// every Kernel is dead. Make no CUDA call. [main] [no-ctx]
  virtual void context_lost(const Loss& /*loss*/) {}

 protected:
  /// The host. [any]
  [[nodiscard]] const Host& host() const noexcept { return host_; }

 private:
  template <class Derived>
  friend struct detail::Thunks;

  Host host_;
  detail::Gpu gpu_;
  ctxb_plugin raw_{};  // what the host holds
};

/// A plug-in that has something to remember beyond its parameters derives from this too.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// Writes the state. The instance is not active. [main] [no-ctx]
  virtual void save(StateWriter& writer) const = 0;
  /// Reads what save wrote. If load throws, the state must be unchanged, so read everything before
  /// you change anything. The instance is not active. [main] [no-ctx]
  virtual void load(StateReader& reader) = 0;
};

/// A plug-in with a latency or a tail derives from this too. The answers are constant for one
/// activation. When one has to change, call Host::request_restart, and answer the new one after the
/// next activate.
class Latent {
 public:
  virtual ~Latent() = default;
  /// Returns the latency: by how many frames the output is late. The instance is active. [main]
  /// [no-ctx]
  [[nodiscard]] virtual std::uint64_t latency() const { return 0; }
  /// Returns the tail: for how many frames the output goes on after the input ends;
  /// CTXB_TAIL_INFINITE: for ever. The instance is active. [main] [no-ctx]
  [[nodiscard]] virtual std::uint64_t tail() const { return 0; }
};

/// A plug-in whose numbers are more to people than digits and a unit ("1/8 note", "-inf dB")
/// derives from this too. The host prints and reads everything else in its own way. Both functions
/// may be called while process runs.
class ParameterText {
 public:
  virtual ~ParameterText() = default;
  /// Returns the value as text, or an empty text to leave it to the host. [main] [no-ctx]
  ///
  /// @param parameter  the index of the parameter, which is neither a Text nor a File.
  /// @param value      its numbers.
  [[nodiscard]] virtual std::string to_text(std::uint32_t parameter,
                                            const ctxb_value& value) const = 0;
  /// Reads what a person wrote into value.numbers. Returns false to leave it to the host. Throw
  /// Failure for text that can only be a mistake; the host shows why. [main] [no-ctx]
  [[nodiscard]] virtual bool from_text(std::uint32_t parameter, std::string_view text,
                                       ctxb_value& value) const = 0;
};

/// An image plug-in that needs frames around the job's own one derives from this too.
class Temporal {
 public:
  /// Distances from the job's frame: {-1, 1} for the frame before it, itself and the one after it.
  struct Frames {
    std::int32_t first = 0;  ///< At most 0, and at least -CTXB_FRAMES_MAX.
    std::int32_t last = 0;   ///< At least 0, and at most CTXB_FRAMES_MAX.
  };
  virtual ~Temporal() = default;
  /// Returns which frames of an input each job needs. Job::input_pixels(input, distance) then finds
  /// them. The instance is active, and the answer is constant for one activation. [main] [no-ctx]
  [[nodiscard]] virtual Frames frames(std::uint32_t input) const = 0;
};

/// An image plug-in derives from this too if it can work on a part of a picture (a tile), or if its
/// output has another extent than its inputs. In process, each view then says which part it is
/// (PixelView::x and y). A plug-in whose pixels depend only on the pixels at the same place needs
/// nothing but the flag CTXB_PLUGIN_PER_PIXEL instead.
///
/// The answers depend on nothing but the question and what the plug-in knows since activate. They
/// may be asked for on the thread of process.
class Regional {
 public:
  virtual ~Regional() = default;
  /// Returns how large an output is. `usual` is the extent of the first connected input, or the
  /// job's if there is none. [main|render] [no-ctx]
  [[nodiscard]] virtual Rectangle extent(const RegionQuestion& /*question*/,
                                         std::uint32_t /*output*/, const Rectangle& usual) const {
    return usual;
  }
  /// Returns which part of a connected input process needs for the part `wanted` of an output. It
  /// lies inside the input's extent: `return within(grown(wanted, 3), question.extent(input));`.
  /// [main|render] [no-ctx]
  [[nodiscard]] virtual Rectangle region(const RegionQuestion& question, std::uint32_t output,
                                         const Rectangle& wanted, std::uint32_t input) const = 0;
};

/// A plug-in that calls Host::request_callback derives from this too.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Called some time after Host::request_callback. [main] [no-ctx]
  virtual void on_main_thread() = 0;
};

}  // namespace ctxbroker::sdk
