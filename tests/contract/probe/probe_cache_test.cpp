// SPDX-License-Identifier: Apache-2.0
// What is kept between runs, and what a damaged or missing cache does: nothing but a note.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "ctxbroker/error.hpp"
#include "probe_fixture.hpp"

namespace ctxbroker::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Answers everything of every probe with 1: quicker than measuring.
constexpr const char* answers_all =
    "for n in shield.control shield.reset_refused shield.primary_survives fault.primary "
    "fault.private fault.other_device fault.recovery memory.copy memory.kernel stream.shared "
    "stream.private stream.green partition.multiprocessors partition.smallest "
    "partition.alignment partition.groups; do echo \"ctxbroker-probe-value $n 1\"; done; "
    "for k in shared private green; do for n in synchronize free device_synchronize cuda_free; do "
    "echo \"ctxbroker-probe-value waits.$k.$n 1.5\"; done; done";

class ProbeCache : public ProbeTest {
 protected:
  ProbeReport first() const { return probe(script(answers_all)); }
  // Returns options that name a program that does not exist. A probe that needs a process fails
  // with them.
  ProbeOptions without_processes() const {
    ProbeOptions options = this->options();
    options.program = folder / "nobody";
    return options;
  }
};

TEST_F(ProbeCache, TheSecondRunReadsWhatTheFirstKept) {
  const ProbeReport before = first();
  EXPECT_FALSE(before.from_cache);
  EXPECT_EQ(before.cache_file, only_file());
  const ProbeReport after = probe(without_processes());
  EXPECT_TRUE(after.from_cache);
  EXPECT_EQ(after.measured, before.measured);
  EXPECT_EQ(after.gpu, before.gpu);
  EXPECT_EQ(after.driver.version, before.driver.version);
  ASSERT_EQ(after.answers.size(), before.answers.size());
  for (std::size_t i = 0; i < after.answers.size(); ++i) {
    EXPECT_EQ(after.answers[i].name, before.answers[i].name);
    EXPECT_EQ(after.answers[i].outcome, ProbeOutcome::measured) << after.answers[i].name;
    EXPECT_EQ(after.answers[i].value, before.answers[i].value);
  }
  const auto kept = cached_probe(without_processes());
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->measured, before.measured);
}

TEST_F(ProbeCache, CacheIsEmptyBeforeTheFirstRun) {
  EXPECT_FALSE(cached_probe(options()).has_value());
  EXPECT_EQ(files(), 0U);
}

TEST_F(ProbeCache, AgainOptionMeasuresAndReplacesTheCache) {
  first();
  ProbeOptions again = script("kill -SEGV $$");
  again.again = true;
  EXPECT_FALSE(probe(again).from_cache);
  expect_all(probe(without_processes()), ProbeOutcome::crashed, "signal 11");
  EXPECT_EQ(files(), 1U);
}

TEST_F(ProbeCache, DamagedCacheIsNotedAndMeasuredAnew) {
  const std::string good = read_text(first().cache_file);
  const std::filesystem::path file = only_file();
  std::vector<std::string> damaged = {"", "{", "[]", "null", "no JSON at all", "\xff\xfe{}"};
  // The line feed at the end is not missed.
  for (std::size_t cut = 1; cut + 1 < good.size(); cut += good.size() / 40) {
    damaged.push_back(good.substr(0, cut));
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    damaged.push_back(text.replace(at, from.size(), to));
  };
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  with("\"measured\": \"2", "\"x\": " + deep + ", \"measured\": \"2");
  with("\"measured\": \"2", "\"measured\": 4, \"x\": \"2");
  with("\"answers\": [", "\"answers\": {}, \"x\": [");
  with("\"shield.control\"", "\"shield.unheard_of\"");
  with("\"outcome\": \"measured\"", "\"outcome\": \"guessed\"");
  with("\"value\": true", "\"value\": \"true\"");
  for (const std::string& text : damaged) {
    write_text(file, text);
    EXPECT_FALSE(cached_probe(options()).has_value()) << text;
    const ProbeReport report = probe(script("exit 3"));
    expect_all(report, ProbeOutcome::failed, "status 3");
    ASSERT_EQ(report.notes.size(), 2U) << text;
    EXPECT_THAT(report.notes[0], HasSubstr(file.string()));
    EXPECT_EQ(read_text(file), text) << "a run that failed replaces nothing";
  }
  EXPECT_TRUE(first().notes.size() == 1 && probe(without_processes()).from_cache);
}

TEST_F(ProbeCache, CacheOfAnotherDriverIsNotUsed) {
  std::string text = read_text(first().cache_file);
  const std::string key = "\"driver_file\": \"";
  text.insert(text.find(key) + key.size(), "older ");
  write_text(only_file(), text);
  EXPECT_FALSE(cached_probe(options()).has_value());
  const ProbeReport report = first();
  EXPECT_FALSE(report.from_cache);
  EXPECT_TRUE(report.notes.empty()) << "that is no damage";
}

// The software device's are of one model; on NVIDIA's driver, where the second is too.
TEST_F(ProbeCache, DevicesOfOneModelShareWhatOneOfThemAnswered) {
  ::setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 1);
  ProbeOptions second = script(std::string("test \"$2\" = 1 || exit 3; ") + answers_all);
  second.device = 1;
  ProbeReport measured;
  try {
    measured = probe(second);
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), ErrorKind::no_device) << error.what();
    GTEST_SKIP() << "one device only";
  }
  EXPECT_EQ(measured.answers.front().outcome, ProbeOutcome::measured) << "device 1 was asked";
  const auto first = cached_probe(without_processes());
  if (!first && measured.driver.kind == DriverChoice::nvidia) GTEST_SKIP() << "another model";
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->measured, measured.measured);
  EXPECT_EQ(first->gpu_uuid, measured.gpu_uuid) << "of the device that was measured";
}

TEST_F(ProbeCache, CacheOfAnotherModelIsNotUsed) {
  std::string text = read_text(first().cache_file);
  const std::string key = "\"multiprocessors\": ";
  text.insert(text.find(key) + key.size(), "1");
  write_text(only_file(), text);
  EXPECT_FALSE(cached_probe(options()).has_value());
}

TEST_F(ProbeCache, AFolderThatCannotBeWrittenIsNoted) {
  write_text(folder / "cache", "a file where the folder should be");
  const ProbeReport report = first();
  ASSERT_FALSE(report.notes.empty());
  EXPECT_THAT(report.notes.back(), HasSubstr("not kept"));
  EXPECT_EQ(report.answers.front().outcome, ProbeOutcome::measured);
}

TEST_F(ProbeCache, AFolderWhereTheFileShouldBeIsNoted) {
  const std::filesystem::path file = first().cache_file;
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  const ProbeReport report = first();
  ASSERT_EQ(report.notes.size(), 2U);
  EXPECT_THAT(report.notes[0], HasSubstr("cannot be used"));
  EXPECT_THAT(report.notes[1], HasSubstr("not kept"));
  EXPECT_EQ(files(), 1U) << "no unfinished file is left";
}

// The environment of this process; one test at a time.
TEST_F(ProbeCache, CacheFolderFollowsTheEnvironment) {
  ProbeOptions request = script(answers_all);
  request.cache_folder.clear();
  ::setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  EXPECT_EQ(probe(request).cache_file.parent_path(), folder / "xdg/ctxbroker");
  ::setenv("HOME", (folder / "home").c_str(), 1);
  ::setenv("XDG_CACHE_HOME", "not/absolute", 1);
  EXPECT_EQ(probe(request).cache_file.parent_path(), folder / "home/.cache/ctxbroker");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  const ProbeReport homeless = probe(request);
  EXPECT_TRUE(homeless.cache_file.empty());
  EXPECT_THAT(homeless.notes, ElementsAre(HasSubstr("HOME")));
}

}  // namespace
}  // namespace ctxbroker::test
