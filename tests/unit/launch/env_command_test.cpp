// SPDX-License-Identifier: Apache-2.0
#include "env_command.hpp"

#include <gmock/gmock.h>

namespace ctxbroker::launch::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EnvCommandTest, OptionsAndVariablesStandBeforeTheProgram) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"python", "-u", "x=y"},
           {"A=b", "python", "-u", "x=y"},
           {"-u", "A", "python", "-u", "x=y"},
           {"-uA", "--unset=B", "--unset", "C", "--", "python", "-u", "x=y"},
           {"-v0uA", "--block-signal", "--default-signal=INT", "python", "-u", "x=y"},
           {"--uns", "A", "B=c", "D=e", "python", "-u", "x=y"},
           {"-S", "-u A python -u", "x=y"},
           {"-S -u A python -u", "x=y"},
           {"-vSpython -u", "x=y"},
           {"--split-string=B=c python -u", "x=y"}}) {
    const EnvCommand env = read_env_command(arguments);
    EXPECT_THAT(env.command, ElementsAre("python", "-u", "x=y")) << arguments.front();
    EXPECT_EQ(env.lost, "") << arguments.front();
  }
}

TEST(EnvCommandTest, TextIsSplitAsEnvSplitsIt) {
  EXPECT_THAT(read_env_command({R"(-Sa 'b c' "d \"e" f\_g h\ti# '' # no word)"}).command,
              ElementsAre("a", "b c", "d \"e", "f", "g", "h\ti#", ""));
  EXPECT_THAT(read_env_command({R"(-S a${NO_SUCH_VARIABLE}b '${C}' d\c e)"}).command,
              ElementsAre("ab", "${C}", "d"));
}

TEST(EnvCommandTest, LostVariablesAreTold) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"-i", "python"},
                                             {"-", "python"},
                                             {"--ignore-environment", "A=b", "python"},
                                             {"--ignore-e", "python"},
                                             {"-vi", "python"},
                                             {"-S", "-i python"},
                                             {"-u", "LD_PRELOAD", "python"},
                                             {"-uLD_LIBRARY_PATH", "python"},
                                             {"--unset=CTXBROKER_RUN", "python"},
                                             {"LD_PRELOAD=/a.so", "python"},
                                             {"A=b", "LD_LIBRARY_PATH=", "python"}}) {
    const EnvCommand env = read_env_command(arguments);
    EXPECT_NE(env.lost, "") << arguments.front();
    EXPECT_THAT(env.command, ElementsAre("python")) << arguments.front();
  }
}

TEST(EnvCommandTest, OtherFoldersAreTold) {
  EXPECT_EQ(read_env_command({"-C", "/a", "./b"}).folder, "/a");
  EXPECT_EQ(read_env_command({"--chdir=/a", "./b"}).folder, "/a");
  EXPECT_TRUE(read_env_command({"PATH=/a", "b"}).changes_path);
  EXPECT_TRUE(read_env_command({"-u", "PATH", "b"}).changes_path);
  EXPECT_FALSE(read_env_command({"-u", "A", "b"}).changes_path);
}

TEST(EnvCommandTest, EnvThatRunsNoProgramHasNoCommand) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"A=b"},
                                             {"-u"},
                                             {"--help", "python"},
                                             {"--no-such", "python"},
                                             {"-Z", "python"},
                                             {"--i", "python"}}) {
    EXPECT_THAT(read_env_command(arguments).command, IsEmpty());
  }
}

}  // namespace
}  // namespace ctxbroker::launch::test
