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

constinit thread_local const Recorder::Speaking* Recorder::innermost = nullptr;

Recorder::Speaking::Speaking(const Recorder& in) noexcept : recorder(in), outer(innermost) {
  ++recorder.speaking_;
  innermost = this;
}

Recorder::Speaking::~Speaking() {
  innermost = outer;
  --recorder.speaking_;
}

int Recorder::speaking_here() const noexcept {
  int count = 0;
  for (const Speaking* one = innermost; one != nullptr; one = one->outer) {
    if (&one->recorder == this) ++count;
  }
  return count;
}

void Recorder::record(Severity severity, TenantId tenant, const std::string& tenant_name,
                      const char* topic, std::string text) const noexcept {
  if (!has_sink_) return;
  const Speaking speaking(*this);
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
  const int here = speaking_here();
  while (speaking_ != here) std::this_thread::yield();
  if (here == 0) sink_ = nullptr;
}

}  // namespace detail
}  // namespace ctxbroker
