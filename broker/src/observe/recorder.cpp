// SPDX-License-Identifier: Apache-2.0
#include "observe/recorder.hpp"

#include <array>
#include <thread>

#include "observe/enum_names.hpp"

namespace ctxbroker {

const char* to_string(Severity severity) noexcept {
  constexpr std::array names{"debug", "info", "warning", "error"};
  return detail::name_of(names, severity);
}

namespace detail {

void Recorder::record(Severity severity, TenantId tenant, const std::string& tenant_name,
                      const char* topic, std::string text) const noexcept {
  if (!has_sink_) return;
  const struct Speaking {
    explicit Speaking(std::atomic<int>& count) noexcept : all(count) { ++all; }
    ~Speaking() { --all; }
    std::atomic<int>& all;
  } speaking(speaking_);
  if (closed_) return;
  try {
    for (char& c : text) {
      if (c == '\n' || c == '\r') c = ' ';  // one record is one line
    }
    sink_({.time = std::chrono::system_clock::now(),
           .severity = severity,
           .tenant = tenant,
           .tenant_name = tenant_name,
           .topic = topic,
           .text = std::move(text)});
  } catch (...) {  // NOLINT(bugprone-empty-catch): a host's logging must not end a plug-in's work
  }
}

void Recorder::close() noexcept {
  closed_ = true;
  while (speaking_ != 0) std::this_thread::yield();
  sink_ = nullptr;
}

}  // namespace detail
}  // namespace ctxbroker
