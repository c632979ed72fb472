// SPDX-License-Identifier: Apache-2.0
#include "plugin_argument.hpp"

#include <gtest/gtest.h>

#include "failure_matcher.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(PluginArgument, NamesAndPathsAreToldApart) {
  const PluginArgument plain = parse_plugin_argument("exposure");
  EXPECT_EQ(plain.plugin, "exposure");
  EXPECT_TRUE(plain.library.empty());
  EXPECT_THAT(plain.settings, IsEmpty());

  const PluginArgument id = parse_plugin_argument("org.example.blur:radius=6");
  EXPECT_EQ(id.plugin, "org.example.blur");
  EXPECT_THAT(id.settings, ElementsAre(Pair("radius", "6")));

  const PluginArgument path = parse_plugin_argument("./x.so:gain_db=3");
  EXPECT_EQ(path.library, "./x.so");
  EXPECT_EQ(path.plugin, "");
  EXPECT_THAT(path.settings, ElementsAre(Pair("gain_db", "3")));

  const PluginArgument one = parse_plugin_argument("dir/x.so#gain:gain_db=-1e1,mute=on");
  EXPECT_EQ(one.library, "dir/x.so");
  EXPECT_EQ(one.plugin, "gain");
  EXPECT_THAT(one.settings, ElementsAre(Pair("gain_db", "-1e1"), Pair("mute", "on")));

  EXPECT_EQ(parse_plugin_argument("x.so").library, "x.so");
  EXPECT_EQ(parse_plugin_argument("dir/odd_name").library, "dir/odd_name");
}

TEST(PluginArgument, ValuesMayHoldEqualsAndColons) {
  EXPECT_THAT(parse_plugin_argument("p:a=b=c,d=e:f").settings,
              ElementsAre(Pair("a", "b=c"), Pair("d", "e:f")));
}

struct Bad {
  const char* text;
  const char* part;
};

std::ostream& operator<<(std::ostream& stream, const Bad& bad) {
  return stream << (*bad.text == 0 ? "nothing" : bad.text);
}

class BadPluginArgument : public testing::TestWithParam<Bad> {};

TEST_P(BadPluginArgument, BadArgumentIsQuotedAndExplained) {
  const auto call = [] { parse_plugin_argument(GetParam().text); };
  expect_failure(call, ExitCode::usage, GetParam().part);
  expect_failure(call, ExitCode::usage, "\"" + std::string(GetParam().text) + "\"");
}

INSTANTIATE_TEST_SUITE_P(Texts, BadPluginArgument,
                         testing::Values(Bad{"", "name is missing"},
                                         Bad{":stops=1", "name is missing"},
                                         Bad{"exposure:", "a parameter is missing"},
                                         Bad{"exposure:stops", "\"stops\" has no value; write"},
                                         Bad{"stamp:title=a,b", "\"b\" has no value (a comma "},
                                         Bad{"exposure:stops=2,5", "decimals with a point: 2.5"},
                                         Bad{"exposure:stops=", "value of \"stops\" is empty"},
                                         Bad{"exposure:=1", "name is missing before"},
                                         Bad{"exposure:stops=1,", "a parameter is missing"},
                                         Bad{"exposure:stops=1,,gamma=2", "a parameter is missing"},
                                         Bad{"exposure:stops=1,stops=2", "\"stops\" is set twice"},
                                         Bad{"./x.so#", "name is missing behind \"#\""}));

}  // namespace
}  // namespace ctxbroker::sample_host::test
