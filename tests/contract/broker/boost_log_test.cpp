// SPDX-License-Identifier: Apache-2.0
// Records through Boost.Log: a channel per tenant, and nothing that the host set up is touched.
#include "ctxbroker/boost_log.hpp"

#include <gmock/gmock.h>

#include <boost/core/null_deleter.hpp>
#include <boost/log/attributes/value_extraction.hpp>
#include <boost/log/core.hpp>
#include <boost/log/expressions.hpp>
#include <boost/log/sinks/sync_frontend.hpp>
#include <boost/log/sinks/text_ostream_backend.hpp>
#include <boost/make_shared.hpp>
#include <iostream>
#include <sstream>

namespace ctxbroker {
namespace {

namespace log = boost::log;
using ::testing::HasSubstr;

Record record(Severity severity, const char* tenant, const char* text) {
  return {std::chrono::system_clock::now(), severity, TenantId{3}, tenant, "strike", text};
}

// Returns what std::clog receives while `work` runs.
template <typename Work>
std::string console_output(Work&& work) {
  std::ostringstream captured;
  std::streambuf* const before = std::clog.rdbuf(captured.rdbuf());
  work();
  std::clog.rdbuf(before);
  return captured.str();
}

TEST(BoostLogTest, RecordsCarryTheirAttributes) {
  std::ostringstream output;
  const auto backend = boost::make_shared<log::sinks::text_ostream_backend>();
  backend->add_stream(boost::shared_ptr<std::ostream>(&output, boost::null_deleter()));
  using Sink = log::sinks::synchronous_sink<log::sinks::text_ostream_backend>;
  const auto sink = boost::make_shared<Sink>(backend);
  sink->set_formatter([](const log::record_view& view, log::formatting_ostream& stream) {
    stream << log::extract_or_throw<std::string>("Channel", view) << '|'
           << to_string(log::extract_or_throw<Severity>("Severity", view)) << '|'
           << log::extract_or_throw<std::string>("Topic", view) << '|'
           << log::extract_or_throw<std::uint32_t>("TenantId", view) << '|'
           << view[log::expressions::smessage].get();
  });
  log::core::get()->add_sink(sink);
  boost_log::sink()(record(Severity::warning, "blur", "popped too much"));
  sink->flush();
  log::core::get()->remove_sink(sink);
  EXPECT_EQ(output.str(), "blur|warning|strike|3|popped too much\n");
}

TEST(BoostLogTest, TheConsoleShowsFromItsThresholdOn) {
  const std::string shown = console_output([] {
    boost_log::add_console(Severity::warning, false);
    boost_log::sink()(record(Severity::info, "blur", "quiet"));
    boost_log::sink()(record(Severity::error, "blur", "loud"));
    boost_log::remove_console();
  });
  EXPECT_EQ(shown, "[error] blur: loud\n");
}

TEST(BoostLogTest, ConsoleShowsErrorsInColourOnRequest) {
  const std::string shown = console_output([] {
    boost_log::add_console(Severity::debug, true);
    boost_log::sink()(record(Severity::error, "blur", "red"));
    boost_log::remove_console();
  });
  EXPECT_THAT(shown, HasSubstr("\x1b[31m[error] blur: red\x1b[0m"));
}

TEST(BoostLogTest, ASecondConsoleReplacesTheFirst) {
  const std::string shown = console_output([] {
    boost_log::add_console(Severity::debug, false);
    boost_log::add_console(Severity::debug, false);
    boost_log::sink()(record(Severity::info, "host", "once"));
    boost_log::remove_console();
    boost_log::remove_console();
  });
  EXPECT_EQ(shown, "[info] host: once\n");
}

}  // namespace
}  // namespace ctxbroker
