// SPDX-License-Identifier: Apache-2.0
// The one way by which the broker's rooms say something to the host.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "ctxbroker/record.hpp"

namespace ctxbroker::detail {

// Thread-safe: it only reads its sink.
class Recorder {
 public:
  Recorder() = default;
  explicit Recorder(RecordSink sink) : sink_(std::move(sink)) {}

  // `topic` is static text. A sink that throws loses the record, nothing else.
  void record(Severity severity, TenantId tenant, const std::string& tenant_name, const char* topic,
              std::string text) const noexcept;

  bool listening() const noexcept { return static_cast<bool>(sink_) && !closed_; }

  // The sink is not called any more, by any thread, when this returns. Not from within the sink.
  void close() noexcept;

 private:
  RecordSink sink_;
  mutable std::atomic<int> speaking_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace ctxbroker::detail
