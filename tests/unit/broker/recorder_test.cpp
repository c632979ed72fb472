#include "observe/recorder.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

#include "ctxbroker/version.hpp"

namespace ctxbroker {
namespace {

TEST(RecorderTest, HandsOverOneLine) {
  std::vector<Record> records;
  const detail::Recorder recorder([&](const Record& record) { records.push_back(record); });
  recorder.record(Severity::warning, TenantId{4}, "blur", "strike", "two\nlines");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].severity, Severity::warning);
  EXPECT_EQ(records[0].tenant, TenantId{4});
  EXPECT_EQ(records[0].tenant_name, "blur");
  EXPECT_STREQ(records[0].topic, "strike");
  EXPECT_EQ(records[0].text, "two lines");
  EXPECT_GT(records[0].time.time_since_epoch().count(), 0);
}

TEST(RecorderTest, ASinkThatThrowsHurtsNobody) {
  const detail::Recorder recorder([](const Record&) { throw std::runtime_error("full disk"); });
  recorder.record(Severity::error, host_tenant, "host", "broker", "text");
  const detail::Recorder none;
  none.record(Severity::error, host_tenant, "host", "broker", "text");
  EXPECT_FALSE(none.listening());
}

TEST(RecorderTest, SeveritiesAndVersionHaveNames) {
  EXPECT_STREQ(to_string(Severity::debug), "debug");
  EXPECT_STREQ(to_string(Severity::error), "error");
  EXPECT_EQ(std::string(version()), std::to_string(version_major) + "." +
                                        std::to_string(version_minor) + "." +
                                        std::to_string(version_patch));
}

}  // namespace
}  // namespace ctxbroker
