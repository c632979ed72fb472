// SPDX-License-Identifier: Apache-2.0
#include "logging.hpp"

#include <mutex>
#include <set>
#include <string_view>

#include "ctxbroker/boost_log.hpp"

namespace ctxbroker::sample_host {

namespace {

// Global, as the log is. Any thread.
std::mutex strikes_mutex;
std::set<std::string> strikes_shown;  // by tenant and kind
std::vector<StrikeCount> strikes_told;
bool shows_all_strikes = false;

// The broker counts those that repeat, behind the text: " (10 times so far)".
bool is_repeated(const Record& record) {
  const std::string_view text = record.text;
  std::string kind = record.tenant_name + ": ";
  for (const char c : text.substr(0, text.rfind(" ("))) {
    if (c < '0' || c > '9') kind += c;
  }
  const std::lock_guard lock(strikes_mutex);
  return !shows_all_strikes && !strikes_shown.insert(kind).second;
}

}  // namespace

void start_logging(int verbosity, bool colour) {
  const Severity threshold = verbosity < 0    ? Severity::error
                             : verbosity == 0 ? Severity::warning
                             : verbosity == 1 ? Severity::info
                                              : Severity::debug;
  shows_all_strikes = verbosity > 0;
  boost_log::add_console(threshold, colour);
}

RecordSink record_sink() {
  return [write = boost_log::sink()](const Record& record) {
    if (std::string_view(record.topic) == "strike" && is_repeated(record)) return;
    write(record);
  };
}

void tell_strikes(const BrokerMetrics& metrics) {
  for (const TenantMetrics& tenant : metrics.tenants) {
    if (tenant.strikes == 0) continue;
    {
      const std::lock_guard lock(strikes_mutex);
      strikes_told.push_back({tenant.name, tenant.strikes});
    }
    if (tenant.strikes == 1) continue;  // the line above has said it
    log(Severity::warning, "strikes",
        "plug-in library " + tenant.name + " broke the plug-in contract " +
            std::to_string(tenant.strikes) +
            " times; report it to its author (-v shows more of them)");
  }
}

std::vector<StrikeCount> told_strikes() {
  const std::lock_guard lock(strikes_mutex);
  return strikes_told;
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
