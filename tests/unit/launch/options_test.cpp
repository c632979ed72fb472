// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <gmock/gmock.h>

#include "exit_code.hpp"

namespace ctxbroker::launch::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options parse(std::vector<const char*> words) {
  words.insert(words.begin(), "ctxb-run");
  return parse_options(static_cast<int>(words.size()), words.data()).value();
}

void expect_refused(const std::vector<const char*>& words, const std::string& why) {
  try {
    parse(words);
    ADD_FAILURE() << "accepted; expected: " << why;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::failed);
    EXPECT_THAT(failure.what(), HasSubstr(why));
  }
}

TEST(LaunchOptionsTest, EveryOptionIsTaken) {
  const Options options =
      parse({"--policy", "p.json", "--tenant", "a=*/a.so", "--tenant=b=*/b.so@green:16", "--each",
             "--report", "r.json", "--trace=t.json", "--log", "info", "--driver", "software",
             "--children", "no", "-v", "--check", "program", "x"});
  EXPECT_EQ(options.policy, "p.json");
  ASSERT_EQ(options.tenants.size(), 2);
  EXPECT_EQ(options.tenants[0].name, "a");
  EXPECT_EQ(options.tenants[0].glob, "*/a.so");
  EXPECT_FALSE(options.tenants[0].lease);
  EXPECT_EQ(options.tenants[1].glob, "*/b.so");
  EXPECT_EQ(options.tenants[1].lease, LeaseChoice(LeaseKind::green, 16));
  EXPECT_TRUE(options.each);
  EXPECT_EQ(options.report, "r.json");
  EXPECT_EQ(options.trace, "t.json");
  EXPECT_EQ(options.log, Severity::info);
  EXPECT_EQ(options.driver, DriverChoice::software);
  EXPECT_FALSE(options.children);
  EXPECT_TRUE(options.verbose);
  EXPECT_TRUE(options.check);
  EXPECT_THAT(options.command, ElementsAre("program", "x"));
}

TEST(LaunchOptionsTest, EverythingBehindTheProgramIsTheProgramsOwn) {
  EXPECT_THAT(parse({"program", "--each", "-v", "--help"}).command,
              ElementsAre("program", "--each", "-v", "--help"));
  EXPECT_FALSE(parse({"program", "--each"}).each);
  EXPECT_THAT(parse({"-v", "--", "--program", "--"}).command, ElementsAre("--program", "--"));
  EXPECT_THAT(parse({"program", "--", "-x"}).command, ElementsAre("program", "--", "-x"));
}

TEST(LaunchOptionsTest, SlipsAreRefusedWithAGuess) {
  expect_refused({"--reprot", "r", "program"}, "--reprot (did you mean \"--report\"?)");
  expect_refused({"--driver=nvida", "program"}, "(did you mean \"nvidia\"?)");
  expect_refused({"--log=warn", "program"}, "is not a level");
  expect_refused({"--children=never", "program"}, "write yes or no");
  expect_refused({"-v"}, "a program is missing");
  expect_refused({"--report"}, "--report");
}

TEST(LaunchOptionsTest, TenantWithoutAPartIsRefused) {
  expect_refused({"--tenant", "torch", "program"}, "has no \"=\"");
  expect_refused({"--tenant", "torch=", "program"}, "no pattern");
  expect_refused({"--tenant", "=*/a.so", "program"}, "is not a tenant's name");
  expect_refused({"--tenant", "a b=*/a.so", "program"}, "is not a tenant's name");
  expect_refused({"--tenant", "a..b=*/a.so", "program"}, "is not a tenant's name");
  expect_refused({"--tenant", "*=*/a.so", "program"}, "is not a tenant's name");
  expect_refused({"--tenant", "host=*/a.so", "program"}, "use another name");
}

TEST(LaunchOptionsTest, PatternThatCanMatchNothingIsRefused) {
  expect_refused({"--tenant", "a=liba.so", "program"}, "write \"*/liba.so\"");
}

TEST(LaunchOptionsTest, LeaseIsToldFromAPathWithAnAtSign) {
  EXPECT_EQ(parse_tenant("a=*/a.so@private").lease, LeaseChoice(LeaseKind::private_own));
  EXPECT_EQ(parse_tenant("a=/opt/python@3.12/*").glob, "/opt/python@3.12/*");
  EXPECT_EQ(parse_tenant("a=/opt/python@3.12/*@shared").glob, "/opt/python@3.12/*");
  expect_refused({"--tenant", "a=*/a.so@privat", "program"}, "(did you mean \"private\"?)");
  expect_refused({"--tenant", "a=*/a.so@green:0", "program"}, "is not a lease");
}

}  // namespace
}  // namespace ctxbroker::launch::test
