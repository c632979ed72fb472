// SPDX-License-Identifier: Apache-2.0
// No file of a run is lost to another one, and output that cannot be written is an error.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class RunFilesTest : public CommandTest {
 protected:
  void SetUp() override {
    png("in.png", 8, 6);
    wav("in.wav", 500);
    write_bytes(folder / "policy.json",
                R"({"schema": "ctxbroker.policy/1", "for_all": {"lease": "shared"}})");
    write_bytes(folder / "moves.csv", "0, exposure.stops, 1\n");
    write_bytes(folder / "gains.csv", "0, gain.gain_db, 1\n");
    write_bytes(folder / "preset.json", R"({"schema": "ctxbroker.preset/1",
        "plugin": "org.ctxbroker.sample.exposure", "version": "1.0.0", "values": {"stops": 1}})");
    fs::copy_file(sample("exposure"), folder / "exposure.so");
  }
  static fs::path sample(const std::string& name) {
    return program_folder().parent_path() / "plugins" / (name + ".so");
  }
  std::vector<std::string> image(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"image",       at("in.png"), "-o",
                                 at("out.png"), "--plugin",   "exposure"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> audio(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"audio", at("in.wav"), "-o", at("out.wav"), "--plugin", "gain"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Expects that the command is refused, and that all files are what they were.
  void refuse(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    std::vector<std::pair<std::string, std::string>> before;
    for (const std::string& name : folder.names()) {
      if (fs::is_regular_file(folder / name)) before.emplace_back(name, read_bytes(folder / name));
    }
    Start start;
    start.arguments = arguments;
    expect_error(start, ExitCode::usage, parts);
    for (const auto& [name, bytes] : before) EXPECT_EQ(read_bytes(folder / name), bytes) << name;
  }
};

TEST_F(RunFilesTest, FileThatIsReadIsNotReplaced) {
  const std::string policy = at("policy.json"), preset = at("preset.json"), input = at("in.png");
  for (const char* writer : {"--json", "--trace", "--save-preset"}) {
    refuse(image({writer, input}), {std::string(writer) + " would replace \"" + input + "\""});
    refuse(image({"--policy", policy, writer, policy}), {writer, "which is read; name another"});
    refuse(image({"--preset", preset, writer, preset}), {writer, "preset.json\", which is read"});
    refuse(image({"--automation", at("moves.csv"), writer, at("moves.csv")}), {"moves.csv"});
    refuse(audio({"--automation", at("gains.csv"), writer, at("gains.csv")}), {"gains.csv"});
    refuse(audio({writer, at("in.wav")}), {"in.wav"});
  }
  // An output may be an input.
  run_well({"image", input, "-o", input, "--plugin", "exposure", "-q"});
}

TEST_F(RunFilesTest, LibraryOfAPluginIsNotReplaced) {
  const std::string library = at("exposure.so");
  refuse({"image", at("in.png"), "-o", at("out.png"), "--plugin", library, "--json", library},
         {"--json would replace \"" + library});
  // A library that is found by its name.
  const Ended ended = run(image({"--plugin-path", at(""), "--save-preset", library}));
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::usage));
  EXPECT_THAT(ended.errors, HasSubstr("--save-preset would replace \"" + library));
  EXPECT_EQ(read_bytes(library), read_bytes(sample("exposure")));
}

TEST_F(RunFilesTest, OtherNamesOfAFileAreKnown) {
  fs::create_symlink("in.png", folder / "link.png");
  fs::create_hard_link(folder / "in.png", folder / "hard.png");
  fs::create_directory_symlink(folder.path(), folder / "same");
  for (const char* name : {"link.png", "hard.png", "same/in.png", "./in.png"}) {
    refuse(image({"--save-preset", at(name)}), {"--save-preset would replace", "in.png"});
  }
}

// The report of the failure may be there afterwards.
TEST_F(RunFilesTest, TwoOutputsOfARunAreTwoFiles) {
  const auto refuse_two = [&](const std::vector<std::string>& arguments, const std::string& who) {
    Start start;
    start.wrapper = "cd \"" + at("") + "\"";
    start.arguments = arguments;
    const Ended ended = run_sample_host(start);
    EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::usage)) << ended.errors;
    EXPECT_THAT(ended.errors, AllOf(HasSubstr(who + " are the file \""),
                                    HasSubstr("; give each a file of its own")));
  };
  for (const std::string writer : {"--trace", "--save-preset", "--json"}) {
    refuse_two(image({writer, at("out.png")}), writer + " and the output \"output\"");
    refuse_two(audio({writer, at("out.wav")}), writer + " and the output \"output\"");
  }
  refuse_two(image({"--json", at("r.json"), "--save-preset", at("./r.json")}),
             "--json and --save-preset");
  // Relative names of files that are not there yet.
  refuse_two(image({"--save-preset", "new.json", "--trace", "./new.json"}),
             "--trace and --save-preset");
  EXPECT_FALSE(fs::exists(folder / "new.json"));
}

TEST_F(RunFilesTest, PresetGoesToAPipeWithAReaderAndWaitsForNone) {
  const std::string pipe = at("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Ended ended = run(image({"--save-preset", pipe}));
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::output));
  EXPECT_THAT(ended.errors, AllOf(HasSubstr(pipe), HasSubstr("a pipe that nobody reads")));
  Start start;
  start.wrapper = "cat \"" + pipe + "\" >\"" + at("got.json") + "\" & exec >/dev/null";
  start.arguments = image({"--save-preset", pipe});
  EXPECT_EQ(run_sample_host(start).exit_code, 0);
  for (int i = 0; i < 1000 && read_bytes(folder / "got.json").empty(); ++i) ::usleep(10'000);
  EXPECT_EQ(json_at("got.json")["schema"], "ctxbroker.preset/1");
}

TEST_F(RunFilesTest, StandardOutputThatCannotBeWrittenIsAnError) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"list"},
                                             {"list", "--json"},
                                             {"doctor"},
                                             {"--help"},
                                             {"--version"},
                                             {"image", "--help"},
                                             image({}),
                                             image({"--json", "-"})}) {
    Start start;
    start.wrapper = "exec >/dev/full";
    start.arguments = words;
    const Ended ended = run_sample_host(start);
    EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::output)) << words.back();
    EXPECT_THAT(ended.errors, HasSubstr("standard output cannot be written")) << words.back();
  }
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
