// SPDX-License-Identifier: Apache-2.0
// sample_host with graphs that have ports of their own kind: generators alone, results of
// analysers. And images that are rendered by parts.
#include <cmath>
#include <cstring>

#include "command_test.hpp"
#include "fixtures/exr_fixture.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::HasSubstr;

class GraphEnds : public CommandTest {
 protected:
  // A graph file; `name` begins each message about it.
  std::string graph(const std::string& members) const {
    write_bytes(folder / "g.json", R"({"schema": "ctxbroker.graph/1", )" + members + "}");
    return at("g.json");
  }
  std::string toning(const std::string& more = "") const {
    return graph(R"("outputs": {"o": {"file": "tone.wav"}},
                    "nodes": {"t": {"plugin": "tone", "parameters": {"frequency": 1000}}},
                    "edges": [{"from": "t", "to": "o"}])" +
                 more);
  }
  static std::string pictures(const std::string& plugin) {
    return (program_folder().parent_path() / "test_plugins" / "pictures.so").string() + "#" +
           plugin;
  }
  // A slope goes to images and is looked at.
  std::string sloping(const std::string& more = "",
                      const std::string& results = "seen.json") const {
    return graph(R"("outputs": {"o": {"file": "slope.%d.png", "depth": 8},
                                "r": {"file": ")" +
                 results + R"(", "as": "float32"}},
                    "nodes": {"s": {"plugin": ")" +
                 pictures("slope") + R"("}, "l": {"plugin": ")" + pictures("largest") +
                 R"("}}, "edges": [{"from": "s", "to": "o"}, {"from": "s", "to": "l"},
                                   {"from": "l", "to": "r"}])" +
                 more);
  }
  void refuse(std::vector<std::string> arguments, const std::vector<std::string>& parts,
              ExitCode code = ExitCode::usage) const {
    Start start;
    start.arguments = std::move(arguments);
    expect_error(start, code, parts);
  }
};

TEST_F(GraphEnds, AGeneratorMakesASound) {
  run_well({"audio", "--graph", toning(R"(, "generate": {"seconds": 0.5, "sample_rate": 8000})"),
            "--json", at("report.json")});
  const RawAudio sound = read_raw_audio(folder / "tone.wav");
  ASSERT_EQ(sound.samples.size(), 2U * 4000);
  EXPECT_EQ(sound.sample_rate, 8000);
  for (std::size_t i = 0; i < 4000; ++i) {
    const double turn = 2 * M_PI * 1000 * static_cast<double>(i) / 8000;
    ASSERT_NEAR(sound.samples[2 * i] / 2147483648.0, 0.5 * std::sin(turn), 1e-5) << i;
    ASSERT_EQ(sound.samples[2 * i + 1], sound.samples[2 * i]);
  }
  const nlohmann::json report = json_at("report.json");
  EXPECT_TRUE(report["input"].is_null());
  EXPECT_TRUE(report["inputs"].empty());
  EXPECT_EQ(report["output"]["frames"], 4000);
}

TEST_F(GraphEnds, OptionsSayHowMuchIsGenerated) {
  run_well({"audio", "--graph", toning(R"(, "generate": {"seconds": 9})"), "--seconds", "0.25",
            "--rate", "16000", "-o", at("short.flac"), "--tail", "0.5", "--jobs", "3", "--block",
            "100"});
  EXPECT_EQ(read_raw_audio(folder / "short.flac").samples.size(), 2U * 12000);
  refuse({"audio", "--graph", toning(), "--rate", "48000"},
         {"has no inputs", "--seconds S and --rate HZ", "\"generate\""});
  refuse({"audio", "--graph", toning(), "--seconds", "1", "--rate", "48000", at("in.wav")},
         {"in.wav\": the graph has no inputs; leave it out"});
  refuse({"image", "--graph", sloping()}, {"has no inputs", "--size WxH"});
  refuse({"image", "--graph", sloping(), "--size", "640*480"}, {"640*480", "640x480"});
  refuse({"image", "--graph", sloping(), "--size", "0x480"}, {"0x480", "is not a size"});
  refuse({"image", "--graph", sloping(), "--size", "1000000x1000000"}, {"too many pixels"});
  png("in.png", 4, 4);
  refuse({"image", at("in.png"), "-o", at("out.png"), "--plugin", "blur", "--size", "4x4"},
         {"--size", "for graphs without inputs"});
}

TEST_F(GraphEnds, AGeneratorMakesImagesAndAnAnalyserLooksAtThem) {
  run_well({"image", "--graph", sloping(R"(, "generate": {"width": 20, "height": 10})"), "--frames",
            "5-16", "--jobs", "3", "--json", at("report.json")});
  const nlohmann::json seen = json_at("seen.json");
  EXPECT_EQ(seen["schema"], "ctxbroker.sample_host.results/1");
  EXPECT_EQ(seen["output"], "r");
  ASSERT_EQ(seen["rows"].size(), 12U);
  for (int frame = 5; frame <= 16; ++frame) {
    const nlohmann::json& row = seen["rows"][static_cast<std::size_t>(frame - 5)];
    EXPECT_EQ(row["position"], frame);
    EXPECT_EQ(row["frames"], 1);
    EXPECT_EQ(row["results"], nlohmann::json({19 / 64.0, 9 / 64.0, frame / 64.0, 1}));
  }
  const RawPng picture = read_raw_png(folder / "slope.16.png");
  EXPECT_EQ(picture.width, 20U);
  EXPECT_EQ(picture.height, 10U);
  EXPECT_EQ(picture.colour_type, 6);
  EXPECT_EQ(picture.samples[0], 0);
  EXPECT_EQ(picture.samples[2], 137) << "0.25 in sRGB";
  EXPECT_EQ(json_at("report.json")["outputs"][1]["path"], at("seen.json"));
}

TEST_F(GraphEnds, PluginThatAsksForARestartIsActivatedAgain) {
  const Ended ended =
      run({"image", "--graph", sloping(), "--size", "8x8", "--frames", "1-4", "--jobs", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("activated again"));
  EXPECT_EQ(json_at("seen.json")["rows"].size(), 4U);
}

TEST_F(GraphEnds, ResultsOfEachBlockAreARowOfTheFile) {
  wav("in.wav", 5000);
  const auto analysis = [&](const std::string& as) {
    return graph(R"("inputs": {"i": {"file": "in.wav"}},
                    "outputs": {"r": {"file": "seen.json")" +
                 as + R"(}, "o": {"file": "out.wav"}},
                    "nodes": {"s": {"plugin": "spectrum"}, "g": {"plugin": "gain"}},
                    "edges": [{"from": "i", "to": "s"}, {"from": "s.bins", "to": "r"},
                              {"from": "i", "to": "g"}, {"from": "g", "to": "o"}])");
  };
  run_well({"audio", "--graph", analysis(R"(, "as": "float32")"), "--block", "512"});
  const nlohmann::json numbers = json_at("seen.json");
  ASSERT_EQ(numbers["rows"].size(), 10U);
  EXPECT_EQ(numbers["rows"][9]["position"], 9 * 512);
  EXPECT_EQ(numbers["rows"][9]["frames"], 5000 - 9 * 512);
  EXPECT_EQ(read_raw_audio(folder / "out.wav").samples.size(), 2U * 5000);
  run_well({"audio", "--graph", analysis(""), "--block", "512", "--jobs", "4"});
  const nlohmann::json bytes = json_at("seen.json");
  EXPECT_EQ(bytes["as"], "hex");
  for (std::size_t row = 0; row < 10; ++row) {
    const std::string hex = bytes["rows"][row]["results"];
    const nlohmann::json& floats = numbers["rows"][row]["results"];
    ASSERT_EQ(hex.size(), 8 * floats.size());
    for (std::size_t i = 10; i < floats.size(); ++i) {  // behind the header
      unsigned char word[4];
      for (std::size_t b = 0; b < 4; ++b) {
        word[b] = static_cast<unsigned char>(std::stoi(hex.substr(8 * i + 2 * b, 2), nullptr, 16));
      }
      float value = 0;
      std::memcpy(&value, word, sizeof value);
      ASSERT_EQ(floats[i].get<float>(), value) << row << ", " << i;
    }
  }
}

TEST_F(GraphEnds, DepthOfARecordingIsTheFiles) {
  const auto made = [&](const std::string& file, int depth) {
    run_well({"audio", "--graph",
              graph(R"("outputs": {"o": {"file": ")" + file + R"(", "depth": )" +
                    std::to_string(depth) + R"(}}, "nodes": {"t": {"plugin": "tone"}},
                       "edges": [{"from": "t", "to": "o"}],
                       "generate": {"seconds": 0.1, "sample_rate": 8000})"),
              "--json", at("report.json"), "--depth", "24"});  // the file's depth is stronger
    return json_at("report.json")["output"]["format"].get<std::string>();
  };
  EXPECT_THAT(made("a.wav", 16), HasSubstr("16 bit PCM"));
  EXPECT_THAT(made("b.wav", 32), HasSubstr("32 bit float"));
  EXPECT_THAT(made("c.flac", 16), HasSubstr("FLAC, 16 bit PCM"));
}

// Accepted and ignored would be the worst answer.
TEST_F(GraphEnds, MemberWithoutMeaningIsRefusedWithItsPlace) {
  const auto tone = [&](const std::string& output, const std::string& generate) {
    return graph(R"("outputs": {"o": {)" + output + R"(}}, "nodes": {"t": {"plugin": "tone"}},
                    "edges": [{"from": "t", "to": "o"}], "generate": {)" +
                 generate + "}");
  };
  const std::string length = R"("seconds": 0.1, "sample_rate": 8000)";
  refuse({"audio", "--graph", tone(R"("file": "a.wav", "depth": 8)", length)},
         {"a.wav\": depth 8", "WAV", "16, 24 or 32"});
  refuse({"audio", "--graph", tone(R"("file": "a.flac", "depth": 32)", length)},
         {"a.flac\": depth 32", "FLAC", "16 or 24"});
  refuse({"audio", "--graph", tone(R"("file": "a.wav", "as": "float32")", length)},
         {"$.outputs.o.as: ", "not a .json file"});
  refuse({"audio", "--graph", tone(R"("file": "a.wav")", length + R"(, "width": 8)")},
         {"$.generate.width: ", "sample_host audio"});
  refuse({"image", "--graph", sloping(R"(, "generate": {"seconds": 1})"), "--size", "8x8"},
         {"$.generate.seconds: ", "sample_host image"});
  wav("in.wav", 100);
  for (const char* member : {R"("depth": 16)", R"("channels": 2)", R"("like": "i")"}) {
    refuse({"audio", "--graph",
            graph(R"("inputs": {"i": {"file": "in.wav"}},
                     "outputs": {"r": {"file": "seen.json", )" +
                  std::string(member) + R"(}},
                     "nodes": {"s": {"plugin": "spectrum"}},
                     "edges": [{"from": "i", "to": "s"}, {"from": "s.bins", "to": "r"}])")},
           {"$.outputs.r.", "gets an analyser's results"});
  }
  png("in.png", 4, 4);
  refuse({"image", "--graph", graph(R"("inputs": {"i": {"file": "in.png"}},
                   "outputs": {"o": {"file": "out.png", "depth": 24}},
                   "nodes": {"e": {"plugin": "exposure"}},
                   "edges": [{"from": "i", "to": "e"}, {"from": "e", "to": "o"}])")},
         {"out.png\": depth 24", "8 or 16"});
}

TEST_F(GraphEnds, ResultsAndImagesNeedTheirOwnTypesOfFiles) {
  const std::string size = "8x8";
  refuse({"image", "--graph", sloping("", "seen.png"), "--size", size},
         {"$.outputs.r: it gets an analyser's results", "ends with .json"});
  refuse({"image", "--graph", sloping(), "--size", size, "-o", "o=" + at("slope.json")},
         {"$.outputs.o: a .json file takes an analyser's results"});
  refuse({"image", "--graph", sloping(), "--size", size, "--frames", "1-3", "--skip-existing"},
         {"--skip-existing", "seen.json", "leave the option out"});
  refuse({"image", "--graph", sloping(), "--size", size, "--tile", "4x4"}, {"--tile", "seen.json"});
  refuse({"image", "--graph", sloping(), "--size", size, "-o", "r=" + at("g.json")},
         {"the output \"r\" would replace \"" + at("g.json") + "\", which is read"});
  refuse({"image", "--graph", sloping(), "--size", size, "-o", "r=" + at("no/such/seen.json"),
          "--frames", "1-2"},
         {"no/such"}, ExitCode::output);
}

TEST_F(GraphEnds, APluginForOtherMediaIsToldBeforeTheFiles) {
  png("in.png", 8, 8);
  wav("in.wav", 100);
  const auto row = [&](const std::string& file, const std::string& plugin) {
    return graph(R"("inputs": {"i": {"file": ")" + file +
                 R"("}}, "outputs": {"o": {"file": "o.png"}},
                    "nodes": {"n": {"plugin": ")" +
                 plugin + R"("}}, "edges": [{"from": "i", "to": "n"}, {"from": "n", "to": "o"}])");
  };
  refuse({"image", "--graph", row("in.wav", "gain")},
         {"$.nodes.n", "is for audio; use it with sample_host audio"});
  refuse({"audio", "--graph", row("in.png", "blur")},
         {"$.nodes.n", "is for image; use it with sample_host image"});
  refuse({"image", "--graph", row("none.png", "blur")}, {"none.png"}, ExitCode::input);
}

// ---- Tiles ------------------------------------------------------------------------------------

TEST_F(GraphEnds, TilesGiveTheSameBytes) {
  png("in.png", 53, 31, 16, 6);
  const std::vector<std::string> row = {
      "image",    at("in.png"),    "--plugin", "exposure:stops=0.5",
      "--plugin", "blur:radius=6", "--plugin", "unsharp"};
  const auto render = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = row;
    arguments.insert(arguments.end(), {"-o", at(out)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_well(arguments);
    return read_bytes(folder / out);
  };
  const std::string whole = render("whole.png", {});
  for (const char* const tile : {"53x31", "7x5", "16x16", "100x1", "1x100", "1000x1000"}) {
    EXPECT_EQ(render("tiles.png", {"--tile", tile}), whole) << tile;
  }
  EXPECT_EQ(render("tiles.png", {"--tile", "16x9", "--jobs", "4"}), whole);
  EXPECT_EQ(render("in.png", {"--tile", "9x9"}), whole) << "the output is the input";
}

TEST_F(GraphEnds, TilesTakeLessDeviceMemory) {
  png("in.png", 400, 300);
  const auto memory = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"image",    at("in.png"),    "-o",     at("out.png"),
                                          "--plugin", "blur:radius=2", "--json", at("report.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_well(arguments);
    return json_at("report.json")["plugins"][0]["memory_peak_bytes"].get<std::uint64_t>();
  };
  EXPECT_LT(4 * memory({"--tile", "40x30"}), memory({}));
}

TEST_F(GraphEnds, TilesOfSeveralInputsFramesAndSizesGiveTheSameBytes) {
  for (int frame = 1; frame <= 5; ++frame) {
    const std::string number = std::to_string(frame);
    write_raw_exr(folder / ("a." + number + ".exr"), make_exr(31, 23, {"R", "G", "B", "A"}));
    png("b." + number + ".png", 31, 23, 8, 6);
    png("m." + number + ".png", 31, 23, 8, 0);
  }
  write_bytes(folder / "radius.csv", "1, soft.radius, 1\n3, soft.radius, 5\n4, soft.radius, 2\n");
  const std::string file = graph(
      R"("inputs": {"a": {"file": "a.%d.exr"}, "b": {"file": "b.%d.png"},
                    "m": {"file": "m.%d.png", "channels": 1}},
         "outputs": {"o": {"file": "o.%d.exr", "depth": 32}, "s": {"file": "s.%d.png", "like": "b"}},
         "nodes": {"soft": {"plugin": "blur"}, "time": {"plugin": "time_blur"},
                   "merge": {"plugin": "merge"}},
         "edges": [{"from": "a", "to": "soft"}, {"from": "b", "to": "time"},
                   {"from": "soft", "to": "merge.a"}, {"from": "time", "to": "merge.b"},
                   {"from": "m", "to": "merge.mask"}, {"from": "merge", "to": "o"},
                   {"from": "time", "to": "s"}], "automation": "radius.csv")");
  run_well({"image", "--graph", file, "--frames", "1-5"});
  run_well({"image", "--graph", file, "--frames", "1-5", "--tile", "10x8", "-o",
            "o=" + at("to.%d.exr"), "-o", "s=" + at("ts.%d.png")});
  for (int frame = 1; frame <= 5; ++frame) {
    const std::string number = std::to_string(frame);
    EXPECT_EQ(read_raw_exr(folder / ("to." + number + ".exr")).channels,
              read_raw_exr(folder / ("o." + number + ".exr")).channels)
        << frame;
    EXPECT_EQ(read_bytes(folder / ("ts." + number + ".png")),
              read_bytes(folder / ("s." + number + ".png")))
        << frame;
  }
}

TEST_F(GraphEnds, TilesOfAGeneratorGiveTheSameBytes) {
  const auto render = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "image", "--graph",
        graph(
            R"("outputs": {"o": {"file": ")" + out + R"("}}, "nodes": {"s": {"plugin": ")" +
            pictures("slope") +
            R"("}}, "edges": [{"from": "s", "to": "o"}], "generate": {"width": 70, "height": 50})")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_well(arguments);
    return read_bytes(folder / out);
  };
  EXPECT_EQ(render("tiles.png", {"--tile", "16x9"}), render("whole.png", {}));
}

TEST_F(GraphEnds, TilesOfHalvesGiveTheSameBytes) {
  write_raw_exr(folder / "in.exr", make_exr(40, 30, {"R", "G", "B"}));
  run_well({"image", at("in.exr"), "-o", at("whole.exr"), "--plugin", "exposure:stops=1"});
  run_well({"image", at("in.exr"), "-o", at("tiles.exr"), "--plugin", "exposure:stops=1", "--tile",
            "11x7"});
  EXPECT_EQ(read_raw_exr(folder / "tiles.exr").channels,
            read_raw_exr(folder / "whole.exr").channels);
}

TEST_F(GraphEnds, APluginThatFailsInATileLeavesNothingBehind) {
  png("in.png", 40, 30);
  refuse({"image", at("in.png"), "-o", at("out.png"), "--plugin", test_plugin("process_fails"),
          "--tile", "8x8", "--jobs", "4"},
         {"process_fails"}, ExitCode::plugin);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
