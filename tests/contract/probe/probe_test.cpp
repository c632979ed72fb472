// SPDX-License-Identifier: Apache-2.0
// What is measured, and what becomes of probing processes that do not answer.
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "ctxbroker/error.hpp"
#include "probe_fixture.hpp"

namespace ctxbroker::test {
namespace {

using testing::HasSubstr;

TEST_F(ProbeTest, ProbeMeasuresEveryQuestionOnThisMachine) {
  const ProbeReport report = probe(options());
  EXPECT_FALSE(report.from_cache);
  EXPECT_FALSE(report.gpu.empty());
  EXPECT_EQ(report.measured.size(), std::string("2026-11-21T23:15:00Z").size());
  EXPECT_TRUE(report.notes.empty()) << report.notes.front();
  const bool software = report.driver.kind == DriverChoice::software;
  int waits_measured = 0;
  std::set<std::string> names;
  for (const ProbeAnswer& answer : report.answers) {
    EXPECT_TRUE(names.insert(answer.name).second) << answer.name;
    EXPECT_FALSE(answer.title.empty());
    if (answer.outcome == ProbeOutcome::not_measured) {
      EXPECT_FALSE(answer.reason.empty()) << answer.name;
      continue;
    }
    EXPECT_EQ(answer.outcome, ProbeOutcome::measured) << answer.name << ": " << answer.reason;
    // An answer without a figure is the same on every machine that this was run on.
    if (answer.unit == ProbeUnit::yes_no) {
      EXPECT_EQ(answer.value != 0 ? "yes" : "no", answer.reference) << answer.name;
    }
    if (answer.unit == ProbeUnit::milliseconds) {
      EXPECT_GE(answer.value, 0) << answer.name;
      ++waits_measured;
      // The software device waits where the reference does, for what is left of 100 ms of work: on
      // a busy machine that may be little.
      const bool waits = answer.reference.rfind("waits", 0) == 0;
      if (software && waits) {
        EXPECT_GE(answer.value, 1) << answer.name;
      }
    }
  }
  EXPECT_GE(waits_measured, 6) << "two calls in each kind of lease, without the runtime library";
  ASSERT_NE(report.find("partition.smallest"), nullptr);
  EXPECT_GE(report.find("partition.smallest")->value, 1);
  EXPECT_EQ(report.find("no.such.answer"), nullptr);
}

TEST_F(ProbeTest, TheReportIsJson) {
  const ProbeReport report = probe(script("kill -SEGV $$"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["schema"], "ctxbroker.probe/1");
  EXPECT_EQ(json["from_cache"], false);
  EXPECT_EQ(json["answers"].size(), report.answers.size());
  EXPECT_EQ(json["answers"][0]["name"], "shield.control");
  EXPECT_EQ(json["answers"][0]["outcome"], "crashed");
  EXPECT_EQ(json["answers"][0]["value"], nullptr);
}

TEST_F(ProbeTest, ACrashIsAResultAndIsKept) {
  const ProbeReport report = probe(script("echo last words; kill -SEGV $$"));
  expect_all(report, ProbeOutcome::crashed, "signal 11");
  expect_all(report, ProbeOutcome::crashed, "last words");
  EXPECT_EQ(files(), 1U);
  expect_all(probe(script("exit 1")), ProbeOutcome::crashed, "signal 11");
}

TEST_F(ProbeTest, AProcessThatHangsIsEndedAtItsDeadline) {
  for (const char* text : {"echo still here; exec sleep 100", "exec >&- 2>&-; exec sleep 100"}) {
    ProbeOptions hanging = script(text);
    hanging.deadline = std::chrono::milliseconds(150);
    const auto begin = std::chrono::steady_clock::now();
    const ProbeReport report = probe(hanging);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
    expect_all(report, ProbeOutcome::timed_out, "deadline");
    ASSERT_EQ(report.notes.size(), 1U);
    EXPECT_THAT(report.notes[0], HasSubstr("not kept"));
    EXPECT_EQ(files(), 0U);
  }
}

TEST_F(ProbeTest, AProcessThatSaysNothingHasFailed) {
  const ProbeReport report = probe(script("echo what is wrong; exit 3"));
  expect_all(report, ProbeOutcome::failed, "status 3");
  expect_all(report, ProbeOutcome::failed, "what is wrong");
  EXPECT_EQ(files(), 0U);
}

TEST_F(ProbeTest, OnlyGoodAnswersOfTheRightProcessAreCounted) {
  const ProbeReport report =
      probe(script("echo 'ctxbroker-probe-value shield.control banana'\n"
                   "echo 'ctxbroker-probe-value shield.reset_refused nan'\n"
                   "echo 'ctxbroker-probe-value shield.primary_survives 1 2'\n"
                   "echo 'ctxbroker-probe-value shield.unheard_of 1'\n"
                   "echo 'ctxbroker-probe-value'\n"
                   "if test $0 = fault; then echo 'ctxbroker-probe-value memory.copy 1'; fi\n"
                   "if test $0 = memory; then echo 'ctxbroker-probe-value memory.kernel 1'; fi\n"
                   "if test $0 = stream; then echo 'ctxbroker-probe-failure in words'; fi\n"));
  for (const ProbeAnswer& answer : report.answers) {
    const bool good = answer.name == "memory.kernel";
    EXPECT_EQ(answer.outcome, good ? ProbeOutcome::measured : ProbeOutcome::failed) << answer.name;
  }
  EXPECT_EQ(report.find("stream.shared")->reason, "in words");
}

TEST_F(ProbeTest, AProgramThatDoesNotStartIsAnError) {
  ProbeOptions wrong = options();
  wrong.program = folder / "nobody";
  try {
    static_cast<void>(probe(wrong));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("nobody"));
  }
}

TEST_F(ProbeTest, ADeviceThatIsNotThereIsAnError) {
  ProbeOptions wrong = options();
  for (const int device : {-1, 1000}) {
    wrong.device = device;
    try {
      static_cast<void>(probe(wrong));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::no_device);
    }
  }
}

TEST(RunProbe, RefusesWordsThatItsOwnBrokerWouldNotSay) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"shield"},
      {"shield", "software"},
      {"shield", "abacus", "0"},
      {"shield", "software", "first"},
      {"shield", "software", "0x"},
      {"shield", "software", "0", "file", "more"},
      {"horoscope", "software", "0"},
  };
  for (const auto& words : wrong) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_probe(words), 1);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("ctxbroker-probe-failure "));
  }
}

}  // namespace
}  // namespace ctxbroker::test
