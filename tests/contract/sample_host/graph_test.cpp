// SPDX-License-Identifier: Apache-2.0
// sample_host with --graph: what a graph file connects, and how several frames run at once.
#include <sndfile.h>

#include <algorithm>

#include "command_test.hpp"
#include "fixtures/exr_fixture.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GraphCommand : public CommandTest {
 protected:
  std::string graph(const std::string& members) const {
    write_bytes(folder / "g.json", R"({"schema": "ctxbroker.graph/1", )" + members + "}");
    return at("g.json");
  }
  Start start(std::vector<std::string> arguments) const {
    Start start;
    start.arguments = std::move(arguments);
    return start;
  }
  // Front, back and mask go through `merge` to the output.
  std::string merging(const std::string& outputs = R"("comp": {"file": "comp.png"})",
                      const std::string& mask = R"("file": "mask.png", "channels": 1)",
                      const std::string& edges = "") const {
    return graph(R"("inputs": {"front": {"file": "front.png"}, "back": {"file": "back.png"},
                               "mask": {)" +
                 mask + R"(}}, "outputs": {)" + outputs + R"(},
                    "nodes": {"merge": {"plugin": "merge", "parameters": {"operation": "add"}}},
                    "edges": [{"from": "front", "to": "merge.a"}, {"from": "back", "to": "merge.b"},
                              {"from": "mask", "to": "merge.mask"}, {"from": "merge", "to": "comp"})" +
                 edges + "]");
  }
  void make_inputs(std::uint32_t width = 20, std::uint32_t height = 10) const {
    png("front.png", width, height);
    png("back.png", width, height, 8, 6);
    png("mask.png", width, height, 8, 0);
  }
};

TEST_F(GraphCommand, NodesInARowGiveTheBytesOfAPluginRow) {
  png("in.png", 40, 30);
  run_well({"image", at("in.png"), "-o", at("row.png"), "--plugin", "exposure:stops=0.5,gamma=2",
            "--plugin", "blur:radius=3"});
  run_well({"image", "--graph",
            graph(R"("inputs": {"i": {"file": "in.png"}}, "outputs": {"o": {"file": "graph.png"}},
                     "nodes": {"soft": {"plugin": "blur", "parameters": {"radius": 3}},
                               "light": {"plugin": "org.ctxbroker.sample.exposure",
                                         "parameters": {"stops": 0.5, "gamma": "2"}}},
                     "edges": [{"from": "soft.out", "to": "o"}, {"from": "i", "to": "light"},
                               {"from": "light", "to": "soft.in"}])")});
  EXPECT_EQ(read_bytes(folder / "graph.png"), read_bytes(folder / "row.png"));
  wav("in.wav", 5000);
  run_well({"audio", at("in.wav"), "-o", at("row.wav"), "--plugin", "gain:gain_db=-6", "--plugin",
            "fir", "--tail", "0.1"});
  run_well({"audio", at("in.wav"), "-o", at("graph.wav"), "--graph",
            graph(R"("inputs": {"i": {}}, "outputs": {"o": {}},
                     "nodes": {"quiet": {"plugin": "gain", "parameters": {"gain_db": -6}},
                               "low": {"plugin": "fir"}},
                     "edges": [{"from": "i", "to": "quiet"}, {"from": "quiet", "to": "low"},
                               {"from": "low", "to": "o"}])"),
            "--tail", "0.1", "--jobs", "3"});
  EXPECT_EQ(read_bytes(folder / "graph.wav"), read_bytes(folder / "row.wav"));
}

// The script tests/scripts/graph_oracle.py compares graphs with NumPy.
TEST_F(GraphCommand, GraphWithSeveralInputsAndOutputsWritesAllOfThem) {
  make_inputs();
  const Ended ended = run_well(
      {"image", "--graph",
       merging(R"("comp": {"file": "comp.png"},
                           "wide": {"file": "wide.exr", "like": "back", "depth": 32},
                           "grey": {"file": "grey.png", "channels": 4, "depth": 16})",
               R"("file": "mask.png", "channels": 1)",
               R"(, {"from": "merge", "to": "wide"}, {"from": "merge.out", "to": "grey"})"),
       "--json", at("report.json")});
  EXPECT_THAT(ended.output, HasSubstr("front: "));
  EXPECT_THAT(ended.output, HasSubstr("wide: " + at("wide.exr") + " (OpenEXR, RGBA, 32 bit float"));
  const RawPng comp = read_raw_png(folder / "comp.png");
  EXPECT_EQ(comp.colour_type, 2) << "as the first input";
  EXPECT_EQ(comp.depth, 8);
  EXPECT_EQ(read_raw_png(folder / "grey.png").depth, 16);
  EXPECT_EQ(read_raw_exr(folder / "wide.exr").channels.size(), 4U);
  const nlohmann::json report = json_at("report.json");
  ASSERT_EQ(report["inputs"].size(), 3U);
  EXPECT_EQ(report["inputs"][2]["name"], "mask");
  EXPECT_EQ(report["outputs"][1]["path"], at("wide.exr"));
  EXPECT_EQ(report["output"], report["outputs"][0]);
  EXPECT_EQ(report["plugins"][0]["node"], "merge");
  EXPECT_EQ(report["jobs_in_flight"], 1);
}

TEST_F(GraphCommand, ABlackMaskLeavesTheBackAlone) {
  make_inputs(8, 8);
  RawPng black{8, 8, 8, 0, false, false, {}};
  fill_samples(black, 0);
  std::fill(black.samples.begin(), black.samples.end(), 0);
  write_raw_png(folder / "mask.png", black);
  run_well({"image", "--graph", merging(R"("comp": {"file": "comp.png", "like": "back"})")});
  EXPECT_EQ(read_raw_png(folder / "comp.png").samples, read_raw_png(folder / "back.png").samples);
}

TEST_F(GraphCommand, MistakesNameTheFileThePlaceAndWhatThereIs) {
  make_inputs();
  const auto refuse = [&](const std::string& file, ExitCode code,
                          const std::vector<std::string>& parts) {
    std::vector<std::string> all{"graph \"" + file + "\": "};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_error(start({"image", "--graph", file}), code, all);
  };
  refuse(merging(R"("comp": {"file": "c.png"})", R"("file": "mask.png")"), ExitCode::usage,
         {"$.inputs.mask: the input \"mask\" has 4 channels of float, and merge.mask takes 1",
          "\"channels\""});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = read_bytes(folder / "g.json");
    text.replace(text.find(from), from.size(), to);
    write_bytes(folder / "g.json", text);
    return at("g.json");
  };
  merging();
  refuse(changed("merge.b", "merge.c"), ExitCode::usage,
         {"$.edges[1]: the edge from \"back\" to \"merge.c\"", "it has: a, b, mask"});
  merging();
  refuse(changed(R"("plugin": "merge")", R"("plugin": "marge")"), ExitCode::plugin,
         {"$.nodes.merge: there is no plug-in \"marge\"", "did you mean \"merge\"?"});
  merging();
  refuse(changed("operation", "operator"), ExitCode::usage,
         {"$.nodes.merge: ", "no parameter \"operator\"", "operation, amount"});
  merging();
  refuse(changed(R"("add")", R"("plus")"), ExitCode::usage, {"$.nodes.merge: ", "add"});
  merging();
  refuse(changed(R"(, {"from": "back", "to": "merge.b"})", ""), ExitCode::usage, {"merge.b"});
  merging();
  refuse(changed(R"("plugin": "merge")", R"("plugin": "gain")"), ExitCode::usage,
         {"$.nodes.merge: ", "sample_host audio"});
  merging(R"("comp": {"file": "c.png"})", R"("file": "mask.png", "channels": 5)");
  expect_error(start({"image", "--graph", at("g.json")}), ExitCode::usage, {"\"mask\" has 5"});
}

TEST_F(GraphCommand, InputsThatDoNotFitEachOtherAreNamed) {
  make_inputs();
  png("mask.png", 21, 10, 8, 0);
  expect_error(start({"image", "--graph", merging()}), ExitCode::input,
               {"mask.png", "21 x 10", "front.png", "20 x 10"});
  expect_error(start({"image", "--graph", merging(), "-i", "mask=" + at("shot.%d.png")}),
               ExitCode::input, {"shot.%d.png", "--frames"});
  make_inputs();
  expect_error(start({"image", "--graph",
                      merging(R"("comp": {"file": "c.png"}, "two": {"file": "./c.png"})",
                              R"("file": "mask.png", "channels": 1)",
                              R"(, {"from": "merge", "to": "two"})")}),
               ExitCode::usage, {"two outputs are the file"});
  expect_error(start({"image", "--graph", merging(), "--json", at("g.json")}), ExitCode::usage,
               {"--json", "name another"});
}

// Pixels belong together where viewers show them.
TEST_F(GraphCommand, OpenExrWindowsAreBroughtTogether) {
  RawExr small = make_exr(4, 4, {"R", "G", "B"});
  small.header.dataWindow() = {{2, 1}, {5, 4}};
  small.header.displayWindow() = {{0, 0}, {7, 7}};
  write_raw_exr(folder / "front.exr", small);
  png("back.png", 8, 8);
  png("mask.png", 8, 8, 8, 0);
  run_well({"image", "--graph", merging(R"("comp": {"file": "comp.exr"})"), "-i",
            "front=" + at("front.exr")});
  const RawExr comp = read_raw_exr(folder / "comp.exr");
  EXPECT_EQ(comp.header.dataWindow(), small.header.displayWindow());
}

// ---- Recordings ------------------------------------------------------------------------------

class AudioGraph : public GraphCommand {
 protected:
  void track(const std::string& name, std::size_t frames, int channels, double hz,
             int rate = 48000) const {
    write_raw_audio(folder / name,
                    sine(SF_FORMAT_WAV | SF_FORMAT_FLOAT, channels, rate, frames, hz));
  }
  // Two tracks become one and a copy of the second one, which is late by the first one's filter.
  std::string two_tracks(const std::string& more = "") const {
    return graph(R"("inputs": {"one": {"file": "one.wav"}, "two": {"file": "two.wav"}},
                    "outputs": {"sum": {"file": "sum.wav"},
                                "copy": {"file": "copy.wav", "like": "two"}},
                    "nodes": {"late": {"plugin": "fir", "parameters": {"taps": 101}},
                              "pass": {"plugin": "gain"},
                              "desk": {"plugin": "mix", "parameters": {"level_1": 0}}},
                    "edges": [{"from": "one", "to": "late"}, {"from": "two", "to": "pass"},
                              {"from": "late", "to": "desk.in_1"},
                              {"from": "pass", "to": "desk.in_2"},
                              {"from": "desk", "to": "sum"}, {"from": "pass", "to": "copy"}])" +
                 more);
  }
  std::vector<float> samples(const std::string& name) const {
    return read_float_audio(folder / name);
  }
};

TEST_F(AudioGraph, TracksOfDifferentLengthAndChannelsStayAligned) {
  track("one.wav", 5000, 2, 440);
  track("two.wav", 3000, 1, 330);
  run_well({"audio", "--graph", two_tracks(), "--jobs", "2", "--json", at("report.json")});
  const std::vector<float> two = samples("two.wav");
  std::vector<float> copy = samples("copy.wav");
  const std::vector<float> sum = samples("sum.wav");
  ASSERT_EQ(copy.size(), 5000U) << "one channel, as long as the longest track";
  ASSERT_EQ(sum.size(), 10000U) << "two channels";
  for (std::size_t i = 0; i < 5000; ++i) {
    const float wanted = i < two.size() ? two[i] : 0.0F;
    ASSERT_EQ(copy[i], wanted) << i;
    ASSERT_EQ(sum[2 * i], wanted) << i;
    ASSERT_EQ(sum[2 * i + 1], wanted) << i;
  }
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["audio"]["latency_frames"], 50);
  EXPECT_EQ(report["outputs"][1]["frames"], 5000);
}

TEST_F(AudioGraph, AutomationIsAtItsPlaceInTheSound) {
  track("one.wav", 10, 1, 440);
  track("two.wav", 4800, 1, 330);
  write_bytes(folder / "a.csv", "0.02,desk.level_2,0.5\n0.05,desk.level_2,2,0.025\n");
  two_tracks(R"(, "automation": "a.csv")");
  std::string first;
  for (const char* const block : {"64", "1000", "4800"}) {
    run_well({"audio", "--graph", at("g.json"), "--block", block});
    const std::vector<float> two = samples("two.wav"), sum = samples("sum.wav");
    for (std::size_t i = 0; i < 4800; ++i) {
      const double way = std::clamp((static_cast<double>(i) - 2400) / 1200, 0.0, 1.0);
      const double level = i < 960 ? 1 : 0.5 + 1.5 * way;
      ASSERT_EQ(sum[i], two[i] * static_cast<float>(level)) << block << ", frame " << i;
    }
  }
}

TEST_F(AudioGraph, AutomationOfAPluginRowIsApplied) {
  track("one.wav", 3000, 2, 440);
  write_bytes(folder / "a.csv", "0.04,gain_2.mute,on\n");
  run_well({"audio", at("one.wav"), "-o", at("sum.wav"), "--plugin", "gain", "--plugin", "gain",
            "--block", "240", "--automation", at("a.csv")});
  const std::vector<float> one = samples("one.wav"), sum = samples("sum.wav");
  EXPECT_EQ(sum[2 * 1919], one[2 * 1919]);
  EXPECT_EQ(sum[2 * 1921], 0);
}

TEST_F(AudioGraph, MistakesInAutomationNameTheLine) {
  track("one.wav", 100, 2, 440);
  track("two.wav", 100, 2, 330);
  two_tracks(R"(, "automation": "a.csv")");
  const auto refuse = [&](const char* text, const std::vector<std::string>& parts) {
    write_bytes(folder / "a.csv", text);
    std::vector<std::string> all{"a.csv\": line 1: "};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_error(start({"audio", "--graph", at("g.json")}), ExitCode::usage, all);
  };
  refuse("0,dsk.level_1,1", {"there is no node \"dsk\"", "late, pass, desk"});
  refuse("0,desk.level_9,1", {"no parameter \"level_9\"", "level_8"});
  refuse("0,desk.level_1,9", {"level_1", "8"});
  refuse("0,late.taps,9", {"\"taps\" of fir cannot change while the plug-in works"});
  refuse("0,late.taps,x", {"\"taps\" of fir cannot change while the plug-in works"});
  refuse("0,pass.mute,on,1", {"\"mute\" of gain takes boolean values"});
}

TEST_F(AudioGraph, InputsThatDoNotFitAreNamed) {
  track("one.wav", 100, 2, 440);
  track("two.wav", 100, 2, 330, 44100);
  expect_error(start({"audio", "--graph", two_tracks()}), ExitCode::input,
               {"two.wav", "44100 Hz", "one.wav", "48000 Hz"});
}

TEST_F(GraphCommand, AutomationOfImagesGoesByFrameNumbers) {
  for (int frame = 4; frame <= 8; ++frame) png("in." + std::to_string(frame) + ".png", 20, 10);
  write_bytes(folder / "a.csv", "5,exposure.stops,1\n6,exposure.stops,2,2\n");
  const auto sequence = [&](const std::string& frames, const std::string& output,
                            const std::string& plugin, bool automated) {
    std::vector<std::string> arguments{"image",    at("in.%d.png"), "-o",       at(output),
                                       "--plugin", plugin,          "--frames", frames};
    if (automated) arguments.insert(arguments.end(), {"--automation", at("a.csv"), "--jobs", "2"});
    run_well(arguments);
  };
  sequence("4-8", "out.%d.png", "exposure", true);
  const std::vector<std::string> stops{"0", "1", "1", "1.5", "2"};
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::string number = std::to_string(i + 4);
    sequence(number, "single.%d.png", "exposure:stops=" + stops[i], false);
    EXPECT_EQ(read_bytes(folder / ("out." + number + ".png")),
              read_bytes(folder / ("single." + number + ".png")));
  }
  sequence("7", "again.%d.png", "exposure", true);  // on another machine of the farm
  EXPECT_EQ(read_bytes(folder / "again.7.png"), read_bytes(folder / "out.7.png"));
}

// ---- Several frames at once ------------------------------------------------------------------

class JobsInFlight : public GraphCommand, public testing::WithParamInterface<const char*> {};

TEST_P(JobsInFlight, JobsInFlightChangeNoByteOfASequence) {
  for (int frame = 1; frame <= 9; ++frame) {
    const std::string number = std::to_string(frame);
    const auto height = static_cast<std::uint32_t>(frame == 6 ? 40 : 10);  // activated anew
    png("front." + number + ".png", 20, height);
    png("back." + number + ".png", 20, height, 8, 6);
    png("mask." + number + ".png", 20, height, 8, 0);
  }
  const auto run_with = [&](const std::string& jobs, const std::string& name) {
    std::vector<std::string> arguments{"image",
                                       "--graph",
                                       merging(),
                                       "--frames",
                                       "1-9",
                                       "--jobs",
                                       jobs,
                                       "--json",
                                       at("report.json"),
                                       "-o",
                                       "comp=" + at(name + ".%d.png")};
    for (const char* input : {"front", "back", "mask"}) {
      arguments.insert(arguments.end(),
                       {"-i", std::string(input) + "=" + at(std::string(input) + ".%d.png")});
    }
    run_well(arguments);
  };
  run_with("1", "one");
  run_with(GetParam(), "many");
  for (int frame = 1; frame <= 9; ++frame) {
    const std::string end = "." + std::to_string(frame) + ".png";
    EXPECT_EQ(read_bytes(folder / ("many" + end)), read_bytes(folder / ("one" + end))) << frame;
  }
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["frames"]["written"], 9);
  EXPECT_EQ(report["plugins"][0]["jobs"], 9);
  EXPECT_EQ(report["jobs_in_flight"], std::stoi(GetParam()));
  EXPECT_GT(report["process_seconds"], 0.0);
  EXPECT_LE(report["process_seconds"], report["wall_seconds"]);
}

INSTANTIATE_TEST_SUITE_P(Counts, JobsInFlight, testing::Values("2", "5", "64"));

TEST_F(GraphCommand, FramesBeforeAFailureAreThereWithJobsInFlight) {
  for (int frame = 1; frame <= 8; ++frame) png("in." + std::to_string(frame) + ".png", 20, 10);
  const std::string bytes = read_bytes(folder / "in.6.png");
  write_bytes(folder / "in.6.png", bytes.substr(0, bytes.size() / 2));
  const Ended ended = run({"image", at("in.%d.png"), "-o", at("out.%d.png"), "--plugin", "blur",
                           "--frames", "1-8", "--jobs", "4"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.errors, testing::StartsWith("sample_host: error: frame 6: "));
  std::vector<std::string> outputs;
  for (const std::string& name : folder.names()) {
    if (name.starts_with("out")) outputs.push_back(name);
  }
  EXPECT_THAT(outputs,
              ElementsAre("out.1.png", "out.2.png", "out.3.png", "out.4.png", "out.5.png"));
}

TEST_F(GraphCommand, AnInterruptLeavesWholeFramesOnly) {
  for (int frame = 1; frame <= 40; ++frame) png("in." + std::to_string(frame) + ".png", 300, 200);
  Start begun = start({"image", at("in.%d.png"), "-o", at("out.%d.png"), "--plugin", "blur",
                       "--frames", "1-40", "--jobs", "4"});
  begun.interrupt_when = "out.2.png";
  begun.interrupt_folder = folder.path();
  const Ended ended = run_sample_host(begun);
  EXPECT_EQ(ended.signal, 2) << ended.errors;
  for (const std::string& name : folder.names()) {
    EXPECT_THAT(name, testing::EndsWith(".png"));
    if (!name.starts_with("out")) continue;
    EXPECT_EQ(read_raw_png(folder / name).width, 300U) << name;
  }
  // The next run makes the frames that are missing.
  run_well({"image", at("in.%d.png"), "-o", at("out.%d.png"), "--plugin", "blur", "--frames",
            "1-40", "--jobs", "4", "--skip-existing"});
  EXPECT_EQ(folder.names().size(), 80U);
}

TEST_F(GraphCommand, WorkThatTakesTooLongEndsTheCommand) {
  png("in.png", 8, 8);
  const std::string library =
      (program_folder().parent_path() / "test_plugins" / "behaviours.so").string();
  const Ended ended = run({"image", at("in.png"), "-o", at("out.png"), "--plugin",
                           library + "#com.example.test.lingers", "--job-timeout", "30"});
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::plugin)) << ended.errors;
  EXPECT_THAT(ended.errors,
              HasSubstr("error: the work of plug-in lingers did not end within 30 ms"));
  EXPECT_THAT(ended.errors, HasSubstr("give it more time with --job-timeout"));
  EXPECT_THAT(folder.names(), ElementsAre("in.png"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
