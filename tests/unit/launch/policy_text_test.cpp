// SPDX-License-Identifier: Apache-2.0
#include "policy_text.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "exit_code.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::launch::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class LaunchPolicyTest : public testing::Test {
 protected:
  json made() const { return json::parse(make_policy(options)); }
  void use_file(const std::string& text) {
    write_bytes(folder / "p.json", text);
    options.policy = (folder / "p.json").string();
  }
  void expect_refused(const std::string& why) const {
    try {
      static_cast<void>(make_policy(options));
      ADD_FAILURE() << "accepted; expected: " << why;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::failed);
      EXPECT_THAT(failure.what(), HasSubstr(why));
    }
  }
  TempFolder folder;
  Options options;
};

TEST_F(LaunchPolicyTest, WithoutOptionsItChoosesTheDriversMemory) {
  EXPECT_EQ(made(),
            json::parse(R"({"schema": "ctxbroker.policy/1", "for_all": {"memory": "driver"}})"));
}

TEST_F(LaunchPolicyTest, FileThatSaysWhereMemoryComesFromStaysAsItIs) {
  for (const char* memory : {"pool", "driver"}) {
    const std::string text =
        std::string(R"({"schema": "ctxbroker.policy/1", "for_all": {"memory": ")") + memory +
        R"("}})";
    use_file(text.c_str());
    EXPECT_EQ(made(), json::parse(text));
  }
}

TEST_F(LaunchPolicyTest, FileThatDoesNotSaySoGetsTheDriversMemory) {
  use_file(R"({"schema": "ctxbroker.policy/1", "for_all": {"lease": "shared"}})");
  EXPECT_EQ(made(), json::parse(R"({"schema": "ctxbroker.policy/1",
                                    "for_all": {"lease": "shared", "memory": "driver"}})"));
}

TEST_F(LaunchPolicyTest, WrongFileIsRefusedWithItsPlace) {
  use_file(R"({"schema": "ctxbroker.policy/1", "for_all": {"lease": "sharde"}})");
  expect_refused("p.json\": $.for_all.lease: ");
  options.policy = (folder / "none.json").string();
  expect_refused("none.json\": there is no such file");
}

TEST_F(LaunchPolicyTest, TenantWithTwoLeasesIsRefused) {
  options.tenants = {{"a", "*/a.so", LeaseChoice(LeaseKind::shared)},
                     {"a", "*/b.so", LeaseChoice(LeaseKind::private_own)}};
  expect_refused("a is given the leases shared and private");
}

TEST_F(LaunchPolicyTest, PatternsOfTheCommandLineComeFirstAndThatOfEachLast) {
  use_file(R"({"schema": "ctxbroker.policy/1",
               "libraries": [{"match": "*/c.so", "tenant": "com.c"}],
               "by_id": {"a": {"lease": "shared", "memory_budget": 5}}})");
  options.tenants = {{"a", "*/a.so", LeaseChoice(LeaseKind::private_own)}, {"b", "*/b.so", {}}};
  options.each = true;
  EXPECT_EQ(made(), json::parse(R"({"schema": "ctxbroker.policy/1",
      "for_all": {"memory": "driver"},
      "libraries": [{"match": "*/a.so", "tenant": "a"}, {"match": "*/b.so", "tenant": "b"},
                    {"match": "*/c.so", "tenant": "com.c"}, {"match": "*", "tenant": "*"}],
      "by_id": {"a": {"lease": "private", "memory_budget": 5}}})"));
}

}  // namespace
}  // namespace ctxbroker::launch::test
