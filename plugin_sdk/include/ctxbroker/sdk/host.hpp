// What the host offers one instance.
#pragma once

#include <string>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"

namespace ctxbroker::sdk {

// A borrowed handle; cheap to copy, valid as long as the instance.
class Host {
 public:
  explicit Host(const ctxb_host* raw) noexcept : raw_(raw) {}

  const char* name() const noexcept { return raw_->name; }
  const char* version() const noexcept { return raw_->version; }

  // One line to the host's log. Not from [audio].
  void debug(const std::string& text) const { raw_->log(raw_, CTXB_LOG_DEBUG, text.c_str()); }
  void info(const std::string& text) const { raw_->log(raw_, CTXB_LOG_INFO, text.c_str()); }
  void warning(const std::string& text) const { raw_->log(raw_, CTXB_LOG_WARNING, text.c_str()); }
  void error(const std::string& text) const { raw_->log(raw_, CTXB_LOG_ERROR, text.c_str()); }

  // Asks for Callback::on_main_thread soon.
  void request_callback() const { raw_->request_callback(raw_); }

  // The host's side of an extension, or null when it has none or only a shorter struct.
  template <class Extension>
  const Extension* find(const char* id) const noexcept {
    const auto* found = static_cast<const Extension*>(raw_->get_extension(raw_, id));
    return found != nullptr && found->size >= sizeof(Extension) ? found : nullptr;
  }

  // The same; throws Failure (unsupported) instead of returning null.
  template <class Extension>
  const Extension& require(const char* id) const {
    if (const auto* found = find<Extension>(id)) {
      return *found;
    }
    throw Failure(CTXB_ERROR_UNSUPPORTED, std::string("the host '") + raw_->name +
                                              "' does not offer the extension \"" + id +
                                              "\" that this plug-in needs; use a newer host");
  }

  const ctxb_host* raw() const noexcept { return raw_; }

 private:
  const ctxb_host* raw_;
};

}  // namespace ctxbroker::sdk
