// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/boost_log.hpp"

#include <array>
#include <boost/core/null_deleter.hpp>
#include <boost/log/attributes/constant.hpp>
#include <boost/log/core.hpp>
#include <boost/log/expressions.hpp>
#include <boost/log/sinks/sync_frontend.hpp>
#include <boost/log/sinks/text_ostream_backend.hpp>
#include <boost/log/sources/record_ostream.hpp>
#include <boost/make_shared.hpp>
#include <boost/shared_ptr.hpp>
#include <cstddef>
#include <iostream>
#include <mutex>
#include <string>

namespace ctxbroker::boost_log {
namespace {

namespace log = boost::log;

using Console = log::sinks::synchronous_sink<log::sinks::text_ostream_backend>;

BOOST_LOG_ATTRIBUTE_KEYWORD(channel, "Channel", std::string)
BOOST_LOG_ATTRIBUTE_KEYWORD(severity, "Severity", ctxbroker::Severity)
BOOST_LOG_ATTRIBUTE_KEYWORD(tenant_id, "TenantId", std::uint32_t)

void write(const Record& record) {
  log::attribute_set attributes;
  using log::attributes::make_constant;
  attributes.insert(channel_type::get_name(), make_constant(record.tenant_name));
  attributes.insert(severity_type::get_name(), make_constant(record.severity));
  attributes.insert("Topic", make_constant(std::string(record.topic)));
  attributes.insert(tenant_id_type::get_name(), make_constant(record.tenant.value));
  const auto core = log::core::get();
  if (log::record opened = core->open_record(attributes)) {
    log::record_ostream stream(opened);
    stream << record.text;
    stream.flush();
    core->push_record(boost::move(opened));
  }
}

// In the order of Severity.
constexpr std::array colours{"\x1b[2m", "", "\x1b[33m", "\x1b[31m"};

void format(const log::record_view& record, log::formatting_ostream& stream, bool colour) {
  const Severity level = record[severity].get();
  const char* start = colour ? colours.at(static_cast<std::size_t>(level)) : "";
  stream << start << '[' << to_string(level) << "] " << record[channel].get() << ": "
         << record[log::expressions::smessage].get() << (*start == '\0' ? "" : "\x1b[0m");
}

// One console per process, because Boost.Log's core is one per process.
std::mutex console_mutex;
boost::shared_ptr<Console> console;

}  // namespace

RecordSink sink() {
  return write;
}

void add_console(Severity threshold, bool colour) {
  const auto backend = boost::make_shared<log::sinks::text_ostream_backend>();
  backend->add_stream(boost::shared_ptr<std::ostream>(&std::clog, boost::null_deleter()));
  backend->auto_flush(true);
  const auto made = boost::make_shared<Console>(backend);
  made->set_filter([threshold](const log::attribute_value_set& values) {
    // TenantId tells our records from those of the host and of others.
    const auto level = values[severity];
    return values[tenant_id] && level && level.get() >= threshold;
  });
  made->set_formatter([colour](const log::record_view& record, log::formatting_ostream& stream) {
    format(record, stream, colour);
  });
  remove_console();
  const std::lock_guard lock(console_mutex);
  log::core::get()->add_sink(made);
  console = made;
}

void remove_console() {
  const std::lock_guard lock(console_mutex);
  if (console == nullptr) return;
  log::core::get()->remove_sink(console);
  console->flush();
  console.reset();
}

}  // namespace ctxbroker::boost_log
