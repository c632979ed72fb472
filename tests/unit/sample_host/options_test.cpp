// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <gtest/gtest.h>

#include "failure_matcher.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;

Options parse(std::vector<const char*> words) {
  words.insert(words.begin(), "sample_host");
  return parse_options(static_cast<int>(words.size()), words.data()).value();
}

TEST(OptionsTest, ImageTakesEveryOption) {
  const Options options = parse({"image",
                                 "in.png",
                                 "-o",
                                 "out.png",
                                 "--plugin",
                                 "exposure:stops=0.7",
                                 "--plugin",
                                 "blur",
                                 "--lease",
                                 "private",
                                 "--device",
                                 "2",
                                 "--policy",
                                 "p.json",
                                 "--driver",
                                 "software",
                                 "--json",
                                 "r.json",
                                 "--depth",
                                 "16",
                                 "--png-compression",
                                 "9",
                                 "--plugin-path",
                                 "a",
                                 "--plugin-path",
                                 "b",
                                 "-vv"});
  EXPECT_EQ(options.command, Command::image);
  EXPECT_THAT(options.inputs, ElementsAre("in.png"));
  EXPECT_THAT(options.outputs, ElementsAre("out.png"));
  EXPECT_THAT(options.plugins, ElementsAre("exposure:stops=0.7", "blur"));
  EXPECT_EQ(options.lease, LeaseChoice(LeaseKind::private_own));
  EXPECT_EQ(options.device, Placement(2));
  EXPECT_EQ(options.policy, "p.json");
  EXPECT_EQ(options.driver, DriverChoice::software);
  EXPECT_EQ(options.report, "r.json");
  EXPECT_EQ(options.depth, 16);
  EXPECT_EQ(options.png_compression, 9);
  EXPECT_THAT(options.plugin_path, ElementsAre("a", "b"));
  EXPECT_EQ(options.verbosity, 2);
}

TEST(OptionsTest, PluginsDoNotSwallowTheInput) {
  const Options options = parse({"audio", "--plugin", "gain", "in.wav", "-o", "out.wav"});
  EXPECT_THAT(options.plugins, ElementsAre("gain"));
  EXPECT_THAT(options.inputs, ElementsAre("in.wav"));
}

TEST(OptionsTest, OptionsHaveTheirDefaults) {
  const Options options = parse({"audio", "in.wav", "-o", "out.wav", "-p", "gain"});
  EXPECT_EQ(options.command, Command::audio);
  EXPECT_EQ(options.block, 256U);
  EXPECT_EQ(options.tail, 0.0);
  EXPECT_EQ(options.lease, LeaseChoice());
  EXPECT_FALSE(options.device);
  EXPECT_TRUE(options.policy.empty());
  EXPECT_FALSE(options.driver);
  EXPECT_EQ(options.jobs, 1);
  EXPECT_EQ(options.job_timeout, 0U);
  EXPECT_EQ(options.verbosity, 0);
}

TEST(OptionsTest, GraphOptionsAreRead) {
  const Options options =
      parse({"image", "--graph", "g.json", "-i", "a=1.png", "--input", "b=2.png", "-o", "c=3.png",
             "--output", "d=4.png", "--jobs", "8", "--job-timeout", "500"});
  EXPECT_EQ(options.graph, "g.json");
  EXPECT_THAT(options.inputs, ElementsAre("a=1.png", "b=2.png"));
  EXPECT_THAT(options.outputs, ElementsAre("c=3.png", "d=4.png"));
  EXPECT_EQ(options.jobs, 8);
  EXPECT_EQ(options.job_timeout, 500U);
  EXPECT_TRUE(parse({"audio", "--graph", "g.json"}).outputs.empty()) << "the file may name them";
}

TEST(OptionsTest, PaceAndSecondsAreRead) {
  const Options options =
      parse({"audio", "in.wav", "-o", "out.wav", "-p", "gain", "--pace", "--seconds", "60"});
  EXPECT_TRUE(options.pace);
  EXPECT_EQ(options.seconds, 60.0);
  const Options usual = parse({"audio", "in.wav", "-o", "out.wav", "-p", "gain", "--jobs", "2"});
  EXPECT_FALSE(usual.pace);
  EXPECT_EQ(usual.seconds, 0.0);
}

TEST(OptionsTest, DeviceRulesAreRead) {
  const auto device = [](const char* text) {
    return parse({"image", "in.png", "-o", "o.png", "-p", "x", "--device", text}).device;
  };
  EXPECT_EQ(device("round-robin"), Placement(PlacementRule::round_robin));
  EXPECT_EQ(device("most-free-memory"), Placement(PlacementRule::most_free_memory));
}

TEST(OptionsTest, SequenceOptionsAreRead) {
  const Options options = parse(
      {"image", "in.%d.png", "-o", "o.%d.png", "-p", "x", "--frames", "7-12", "--skip-existing"});
  EXPECT_EQ(options.frames, (FrameRange{7, 12}));
  EXPECT_TRUE(options.skip_existing);
  EXPECT_FALSE(parse({"image", "in.png", "-o", "o.png", "-p", "x"}).frames);
}

TEST(OptionsTest, ListAndDoctorTakeTheirOptions) {
  EXPECT_EQ(parse({"list"}).command, Command::list);
  EXPECT_TRUE(parse({"list", "--json"}).json);
  const Options doctor = parse({"doctor", "--json", "--driver", "nvidia", "-q"});
  EXPECT_EQ(doctor.command, Command::doctor);
  EXPECT_EQ(doctor.driver, DriverChoice::nvidia);
  EXPECT_EQ(doctor.verbosity, -1);
}

TEST(OptionsTest, HelpAndVersionEndWithoutOptions) {
  const char* help[] = {"sample_host", "--help"};
  const char* image_help[] = {"sample_host", "image", "--help"};
  const char* version[] = {"sample_host", "--version"};
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse_options(2, help));
  EXPECT_FALSE(parse_options(3, image_help));
  EXPECT_FALSE(parse_options(2, version));
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, testing::HasSubstr("Exit codes:"));
  EXPECT_THAT(text, testing::HasSubstr("--depth"));
}

struct Bad {
  std::vector<const char*> words;
  const char* part;
};

// Names of tests show the line, not the bytes of pointers.
std::ostream& operator<<(std::ostream& stream, const Bad& bad) {
  for (const char* word : bad.words) stream << word << ' ';
  return bad.words.empty() ? stream << "nothing" : stream;
}

class BadOptions : public testing::TestWithParam<Bad> {};

TEST_P(BadOptions, BadOptionsAreUsageErrors) {
  expect_failure([] { parse(GetParam().words); }, ExitCode::usage, GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, BadOptions,
    testing::Values(
        Bad{{}, "a command is missing"}, Bad{{"-q"}, "subcommand"}, Bad{{"bake"}, "\"bake\""},
        Bad{{"imagine"}, "mean \"image\""}, Bad{{"image"}, "see sample_host image"},
        Bad{{"image", "in.png", "-p", "x"}, "--output"},
        Bad{{"image", "in.png", "-o", "out.png"}, "--plugin"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--bogus"}, "--bogus"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--depth", "12"}, "--depth"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--png-compression", "10"},
            "--png-compression"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--frames", "9-3"},
            "\"9-3\" is not a range of frames"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--skip-existing"}, "--frames"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--lease", "greenish"}, "--lease"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--device", "-1"}, "--device"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--device", "one"},
            "\"one\" is not a device"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--device", "1024"}, "--device"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--policy"}, "--policy"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--driver", "amd"}, "--driver"},
        Bad{{"image", "in.png", "more.png", "-o", "out.png", "-p", "x"}, "more.png"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "-q", "-v"}, "--quiet"},
        Bad{{"image", "in.png", "-o", "o.png", "-o", "p.png", "-p", "x"}, "p.png"},
        Bad{{"image", "-i", "in.png", "--graph", "g.json", "-p", "x"}, "--graph"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--jobs", "65"}, "--jobs"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--jobs", "0"}, "--jobs"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--job-timeout", "-1"},
            "--job-timeout"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--block", "0"}, "--block"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--block", "65537"}, "--block"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--block", "-5"}, "--block"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--block", "many"}, "--block"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--tail", "-1"}, "--tail"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--tail", "nan"}, "--tail"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--seconds", "-1"}, "--seconds"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--seconds", "inf"}, "--seconds"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--seconds", "86401"}, "--seconds"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--pace=fast"}, "--pace"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--pace", "--jobs", "2"}, "--jobs"},
        Bad{{"image", "in.png", "-o", "out.png", "-p", "x", "--pace"}, "--pace"},
        Bad{{"audio", "in.wav", "-o", "out.wav", "-p", "x", "--depth", "8"}, "--depth"}));

}  // namespace
}  // namespace ctxbroker::sample_host::test
