// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the host offers one instance.
#pragma once

#include <string>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"

namespace ctxbroker::sdk {

/// The host, as one instance sees it. Copies are cheap, and all of them are valid as long as the
/// instance lives. Every function may be called with or without a context, and leaves it as it is.
class Host {
 public:
  /// @param raw  the host's struct, which outlives the instance.
  explicit Host(const ctxb_host* raw) noexcept : raw_(raw) {}

  /// The host application's name. [any]
  [[nodiscard]] const char* name() const noexcept { return raw_->name; }
  /// The host application's version. [any]
  [[nodiscard]] const char* version() const noexcept { return raw_->version; }

  /// Writes one line to the host's log. The text is copied. [any], but not from [audio].
  void debug(const std::string& text) const { raw_->log(raw_, CTXB_LOG_DEBUG, text.c_str()); }
  void info(const std::string& text) const { raw_->log(raw_, CTXB_LOG_INFO, text.c_str()); }
  void warning(const std::string& text) const { raw_->log(raw_, CTXB_LOG_WARNING, text.c_str()); }
  void error(const std::string& text) const { raw_->log(raw_, CTXB_LOG_ERROR, text.c_str()); }

  /// Asks for a call of Callback::on_main_thread soon. [any]
  void request_callback() const { raw_->request_callback(raw_); }
  /// Asks the host to deactivate and activate the instance, because something that is constant for
  /// an activation has to change: the latency, for example. Go on as before until then. [any]
  void request_restart() const { raw_->request_restart(raw_); }

  /// Finds the host's side of an extension.
  ///
  /// @param id  CTXB_EXT_*.
  /// @return the host's struct, valid as long as the instance; null when the host has none, or an
  ///         older one that is shorter than Extension. [any]
  template <class Extension>
  [[nodiscard]] const Extension* find(const char* id) const noexcept {
    const auto* found = static_cast<const Extension*>(raw_->get_extension(raw_, id));
    return found != nullptr && found->size >= sizeof(Extension) ? found : nullptr;
  }

  /// Does the same, but throws instead of returning null.
  ///
  /// @throws Failure  CTXB_ERROR_UNSUPPORTED.
  template <class Extension>
  [[nodiscard]] const Extension& require(const char* id) const {
    if (const auto* found = find<Extension>(id)) {
      return *found;
    }
    throw Failure(CTXB_ERROR_UNSUPPORTED, std::string("the host '") + raw_->name +
                                              "' does not offer the extension \"" + id +
                                              "\" that this plug-in needs; use a newer host");
  }

  /// The host's struct.
  [[nodiscard]] const ctxb_host* raw() const noexcept { return raw_; }

 private:
  const ctxb_host* raw_;
};

}  // namespace ctxbroker::sdk
