// SPDX-License-Identifier: Apache-2.0
// The one way by which the broker's rooms say something to the host.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "ctxbroker/record.hpp"

namespace ctxbroker::detail {

// Any thread.
class Recorder {
 public:
  Recorder() = default;
  explicit Recorder(RecordSink sink) : sink_(std::move(sink)), has_sink_(sink_ != nullptr) {}

  // `topic` is static text. A sink that throws loses the record, nothing else.
  void record(Severity severity, TenantId tenant, const std::string& tenant_name, const char* topic,
              std::string text) const noexcept;

  bool listening() const noexcept { return has_sink_ && !closed_; }

  // Ends the sink: when this returns, no thread is in it, nobody will call it, and what it held is
  // given back. Within the sink, this thread is left out, and what the sink holds stays.
  void close() noexcept;
  // How often the calling thread is in the sink.
  int speaking_here() const noexcept;

 private:
  struct Speaking {
    explicit Speaking(const Recorder& in) noexcept;
    ~Speaking();
    Speaking(const Speaking&) = delete;
    Speaking& operator=(const Speaking&) = delete;
    const Recorder& recorder;
    const Speaking* const outer;
  };
  static constinit thread_local const Speaking* innermost;

  RecordSink sink_;  // read by a thread that is counted in speaking_
  bool has_sink_ = false;
  mutable std::atomic<int> speaking_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace ctxbroker::detail
