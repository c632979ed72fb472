// SPDX-License-Identifier: Apache-2.0
#include "logging.hpp"

#include "ctxbroker/boost_log.hpp"

namespace ctxbroker::sample_host {

void start_logging(int verbosity, bool colour) {
  const Severity threshold = verbosity < 0    ? Severity::error
                             : verbosity == 0 ? Severity::warning
                             : verbosity == 1 ? Severity::info
                                              : Severity::debug;
  boost_log::add_console(threshold, colour);
}

RecordSink record_sink() {
  return boost_log::sink();
}

void log(Severity severity, const char* topic, const std::string& text) {
  Record record;
  record.time = std::chrono::system_clock::now();
  record.severity = severity;
  record.tenant = host_tenant;
  record.tenant_name = "host";
  record.topic = topic;
  record.text = text;
  record_sink()(record);
}

}  // namespace ctxbroker::sample_host
