// SPDX-License-Identifier: Apache-2.0
#include "observe/recorder.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

#include "context/tenant_identity.hpp"
#include "ctxbroker/version.hpp"
#include "observe/repeats.hpp"

namespace ctxbroker {
namespace {

TEST(RecorderTest, RecordIsHandedOverAsOneLine) {
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

TEST(RepeatsTest, TextsThatDifferInNumbersAreOneKind) {
  detail::Repeats repeats;
  EXPECT_EQ(repeats.count("process", "12 bytes at 0x7fab00 for args2"), 1u);
  EXPECT_EQ(repeats.count("process", "7 bytes at 0xfe for args2"), 2u);
  EXPECT_EQ(repeats.count("process", "7 bytes at 0xfe for args3"), 1u) << "that is a name";
  EXPECT_EQ(repeats.count("activate", "7 bytes at 0xfe for args2"), 1u);
  EXPECT_EQ(repeats.count("process", "7 words at 0xfe for args2"), 1u);
}

// Every strike counts, and the log has the first three and then powers of ten.
TEST(RepeatsTest, AStrikeThatRepeatsDoesNotFillTheLog) {
  std::vector<std::string> texts;
  const detail::Recorder recorder([&](const Record& record) { texts.push_back(record.text); });
  const detail::TenantIdentity tenant(TenantId{4}, "blur", &recorder), other({5}, "fir", &recorder);
  std::atomic<std::uint64_t> counter{0};
  for (int i = 0; i < 1500; ++i) detail::strike(tenant, &counter, "process", "left a context");
  EXPECT_THAT(texts, testing::ElementsAre(
                         "process: left a context", "process: left a context",
                         "process: left a context (from now on, only the 10th, 100th, ... of these "
                         "is logged)",
                         "process: left a context (10 times so far)",
                         "process: left a context (100 times so far)",
                         "process: left a context (1000 times so far)"));
  EXPECT_EQ(counter, 1500u);
  EXPECT_EQ(tenant.strikes, 1500u);
  texts.clear();
  detail::strike(tenant, nullptr, "process", "something else");
  detail::strike(other, nullptr, "process", "left a context");
  EXPECT_EQ(texts.size(), 2u) << "another kind, and another tenant";
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
