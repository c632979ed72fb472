// The one way by which the broker's rooms say something to the host.
#pragma once

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

  bool listening() const noexcept { return static_cast<bool>(sink_); }

 private:
  RecordSink sink_;
};

}  // namespace ctxbroker::detail
