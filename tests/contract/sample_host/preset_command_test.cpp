// SPDX-License-Identifier: Apache-2.0
// Parameters of every type on the command line, and in presets.
#include <fstream>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PresetCommand : public CommandTest {
 protected:
  // Runs the command with `more`, and returns the values that the first plug-in's parameters had in
  // the end.
  json parameters(const std::vector<std::string>& more) {
    std::vector<std::string> all{"image",       at("in.png"), "-o",
                                 at("out.png"), "--json",     at("report.json")};
    all.insert(all.end(), more.begin(), more.end());
    run_well(all);
    return json_at("report.json")["plugins"][0]["parameters"];
  }
  Start image(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"image", at("in.png"), "-o", at("out.png")};
    all.insert(all.end(), more.begin(), more.end());
    Start start;
    start.arguments = all;
    return start;
  }
  void SetUp() override { png("in.png", 8, 6); }
};

TEST_F(PresetCommand, APointAndAColourAreGivenInOneWord) {
  const json set = parameters({"--plugin", "vignette:centre=0.25:1,colour=1:0.5:0,radius=0.125"});
  EXPECT_EQ(set["centre"], json({0.25, 1.0}));
  EXPECT_EQ(set["colour"], json({1.0, 0.5, 0.0, 1.0}));
  EXPECT_EQ(set["radius"], 0.125);
  expect_error(image({"--plugin", "vignette:centre=0.5"}), ExitCode::usage,
               {"vignette:centre=0.5", "two numbers, x and y, from 0 to 1"});
}

TEST_F(PresetCommand, TheListShowsTypesGroupsAndRanges) {
  const json list = json::parse(run_well({"list", "--json"}).output);
  json vignette;
  for (const json& plugin : list["plugins"]) {
    if (plugin["short_name"] == "vignette") vignette = plugin["parameters"];
  }
  ASSERT_EQ(vignette.size(), 4U);
  const json &centre = vignette[0], &radius = vignette[1], &softness = vignette[2],
             &colour = vignette[3];
  EXPECT_EQ(centre["type"], "point");
  EXPECT_EQ(centre["group"], "Place");
  EXPECT_EQ(centre["default"], json({0.5, 0.5}));
  EXPECT_EQ(radius["skew"], 2.0);
  EXPECT_FALSE(radius.contains("advanced"));
  EXPECT_EQ(softness["advanced"], true);
  EXPECT_FALSE(softness.contains("skew"));
  EXPECT_EQ(colour["type"], "colour");
  EXPECT_EQ(colour["maximum"], 1.0);
  EXPECT_EQ(colour["default"], json({0.0, 0.0, 0.0, 1.0}));
  const std::string text = run_well({"list"}).output;
  for (const char* part :
       {"point, 0 .. 1", "colour, 0 .. 1", "default 0.5 0.5", "Place: ", "(advanced)"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(PresetCommand, SeveralNumbersAreNotAutomated) {
  std::ofstream(folder / "moves.csv") << "0, vignette.radius, 1\n1, vignette.centre, 1:1\n";
  expect_error(image({"--plugin", "vignette", "--automation", at("moves.csv")}), ExitCode::usage,
               {"moves.csv", "\"centre\" of vignette has several numbers"});
}

TEST_F(PresetCommand, SavedPresetIsLoaded) {
  const json set = parameters(
      {"--plugin", "vignette:centre=0.25:1,softness=0.7", "--save-preset", at("soft.json")});
  const json preset = json_at("soft.json");
  EXPECT_EQ(preset["schema"], "ctxbroker.preset/1");
  EXPECT_EQ(preset["plugin"], "org.ctxbroker.sample.vignette");
  EXPECT_EQ(preset["values"], set);
  EXPECT_EQ(parameters({"--plugin", "vignette", "--preset", at("soft.json")}), set);
  const json changed =
      parameters({"--preset", at("soft.json"), "--plugin", "vignette:softness=0.1"});
  EXPECT_EQ(changed["softness"], 0.1) << "the command line is stronger";
  EXPECT_EQ(changed["centre"], set["centre"]);
}

TEST_F(PresetCommand, EachPresetFindsItsPlugin) {
  parameters({"--plugin", "blur:radius=2", "--save-preset", at("blur.json")});
  parameters({"--plugin", "exposure:stops=3", "--save-preset", at("bright.json")});
  parameters({"--plugin", "exposure", "--plugin", "blur", "--plugin", "exposure:gamma=2",
              "--preset", at("blur.json"), "--preset", at("bright.json")});
  const json report = json_at("report.json");
  EXPECT_EQ(report["plugins"][0]["parameters"]["stops"], 3.0);
  EXPECT_EQ(report["plugins"][1]["parameters"]["radius"], 2.0);
  EXPECT_EQ(report["plugins"][2]["parameters"]["stops"], 3.0);
  EXPECT_EQ(report["plugins"][2]["parameters"]["gamma"], 2.0);
}

// The file is at fault, and not the plug-in, which is right to look at its state.
TEST_F(PresetCommand, StateThatThePluginRefusesIsTheFilesFault) {
  const std::string library =
      (program_folder().parent_path() / "test_plugins/behaviours.so#com.example.test.affine")
          .string();
  parameters({"--plugin", library, "--save-preset", at("good.json")});
  json preset = json_at("good.json");
  ASSERT_TRUE(preset.contains("state"));
  preset["state"] = "AAAAAAA=";
  std::ofstream(folder / "bad.json") << preset;
  for (const bool isolate : {false, true}) {
    Start start;
    start.arguments = {"image",    at("in.png"), "-o",       at("out2.png"),
                       "--plugin", library,      "--preset", at("bad.json")};
    if (isolate) start.arguments.emplace_back("--isolate");
    expect_error(
        start, ExitCode::usage,
        {"bad.json\": $.state: ", "affine", "this state is not mine", "the file is damaged"});
  }
}

TEST_F(PresetCommand, PresetValuesThatDoNotFitAreWarnings) {
  std::ofstream(folder / "old.json") << R"({"schema": "ctxbroker.preset/1",
      "plugin": "org.ctxbroker.sample.exposure", "version": "0.9.0",
      "values": {"stops": 99, "contrast": 2}})";
  const Ended ended = run({"image", at("in.png"), "-o", at("out.png"), "--plugin", "exposure",
                           "--preset", at("old.json")});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* part : {"version 0.9.0", "\"stops\" cannot be 99", "16 EV was taken",
                           "no parameter \"contrast\"", "no parameter \"gamma\""}) {
    EXPECT_THAT(ended.errors, HasSubstr(part));
  }
}

TEST_F(PresetCommand, WrongPresetsAreRefusedBeforeAnythingIsWritten) {
  parameters({"--plugin", "blur", "--save-preset", at("blur.json")});
  std::filesystem::remove(folder / "out.png");
  expect_error(image({"--plugin", "exposure", "--preset", at("blur.json")}), ExitCode::usage,
               {"blur.json", "org.ctxbroker.sample.blur", "which is not used here"});
  expect_error(image({"--plugin", "exposure", "--preset", at("none.json")}), ExitCode::usage,
               {"none.json", "there is no such file"});
  std::ofstream(folder / "half.json") << R"({"schema": "ctxbroker.preset/1", "plug)";
  expect_error(image({"--plugin", "exposure", "--preset", at("half.json")}), ExitCode::usage,
               {"half.json", "is not JSON"});
  // The text behind a null character must not be passed over.
  std::ofstream(folder / "null.json") << R"({"schema": "ctxbroker.preset/1"})" << '\0' << "}{";
  expect_error(image({"--plugin", "exposure", "--preset", at("null.json")}), ExitCode::usage,
               {"null.json", "is not JSON", "byte 32"});
  expect_error(image({"--plugin", "exposure", "--plugin", "blur", "--save-preset", at("x.json")}),
               ExitCode::usage, {"--save-preset", "one plug-in"});
  expect_error(image({"--plugin", "exposure", "--save-preset", at("no/such/x.json")}),
               ExitCode::output,
               {"no/such/x.json", "there is no folder \"" + at("no/such") + "\"; create it"});
  std::filesystem::copy_file(folder / "blur.json", folder / "again.json");
  expect_error(
      image({"--plugin", "blur", "--preset", at("blur.json"), "--preset", at("again.json")}),
      ExitCode::usage, {"again.json", "and so is \"" + at("blur.json") + "\"; give one of them"});
  EXPECT_FALSE(std::filesystem::exists(folder / "out.png"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
