// SPDX-License-Identifier: Apache-2.0
// sample_host with --on-fault=move: a kernel's fault ends CUDA in the command's process, and the
// files are what they would have been.
#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::HasSubstr;

class MoveCommand : public CommandTest {
 protected:
  static std::string hostile(const std::string& settings) {
    return built("hostile.so") + ":" + settings;
  }
  static std::string built(const char* library) {
    return (program_folder().parent_path() / "test_plugins" / library).string();
  }
  // The plug-in does its harm once.
  Environment once() const { return {{"CTXB_TEST_FAULT_ONCE", at("once")}}; }

  // Runs it without the fault, then with it; `made` must be the same twice.
  void must_make_the_same(std::vector<std::string> arguments,
                          const std::vector<std::string>& made) const {
    write_bytes(folder / "once", "");
    run_well(arguments, once());
    std::vector<std::string> bytes;
    for (const std::string& name : made) {
      bytes.push_back(read_bytes(folder / name));
      std::filesystem::remove(folder / name);
    }
    std::filesystem::remove(folder / "once");
    arguments.insert(arguments.end(), {"--on-fault=move", "--json", at("report.json")});
    const Ended ended = run(arguments, once());
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr("the plug-ins go on in a process of their own"));
    EXPECT_THAT(json_at("report.json")["moved_because"], HasSubstr("hostile"));
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(read_bytes(folder / made[i]), bytes[i]) << made[i];
    }
  }
};

TEST_F(MoveCommand, MovedPictureIsTheSame) {
  png("in.png", 70, 50);
  const std::vector<std::string> row{
      "image",    at("in.png"),         "-o",       at("out.png"),
      "--plugin", "exposure:stops=0.5", "--plugin", hostile("kernel=address,factor=2")};
  must_make_the_same(row, {"out.png"});
  EXPECT_EQ(json_at("report.json")["plugins"][1]["parameters"]["factor"], 2);
  std::vector<std::string> tiles = row;
  tiles.insert(tiles.end(), {"--tile", "32x16", "--jobs", "3"});
  must_make_the_same(tiles, {"out.png"});
}

// The fault is in the middle, with other frames in flight and other values of a parameter.
TEST_F(MoveCommand, MovedSequenceIsTheSame) {
  std::vector<std::string> made;
  for (int frame = 1; frame <= 8; ++frame) {
    png("in." + std::to_string(frame) + ".png", 40, 30);
    made.push_back("out." + std::to_string(frame) + ".png");
  }
  std::string changes = "4,hostile.kernel,address\n";
  for (int frame = 1; frame <= 8; ++frame) {
    changes += std::to_string(frame) + ",exposure.stops," + std::to_string(frame % 3 - 2) + "\n";
  }
  write_bytes(folder / "a.csv", changes);
  const auto row = [&](const std::string& jobs) {
    return std::vector<std::string>{"image",        at("in.%d.png"),
                                    "-o",           at("out.%d.png"),
                                    "--frames",     "1-8",
                                    "--plugin",     "exposure",
                                    "--plugin",     hostile("factor=1"),
                                    "--automation", at("a.csv"),
                                    "--jobs",       jobs};
  };
  for (const char* jobs : {"1", "4"}) {
    std::vector<std::string> with_neighbours = row(jobs);
    with_neighbours.insert(with_neighbours.end(), {"--plugin", "time_blur"});
    must_make_the_same(with_neighbours, made);
  }
  png("in.7.png", 60, 30);  // larger: the plug-ins are activated once more, in the worker
  must_make_the_same(row("3"), made);
}

// With changes within blocks, and ramps over their borders. No plug-in remembers anything, so there
// is no gap.
TEST_F(MoveCommand, MovedSoundIsTheSame) {
  wav("in.wav", 60000);
  write_bytes(folder / "a.csv",
              "0,gain.gain_db,0\n0.1,gain.gain_db,-30,1\n0.5,hostile_sound.faults,on\n");
  for (const char* jobs : {"1", "4"}) {
    must_make_the_same(
        {"audio", at("in.wav"), "-o", at("out.wav"), "--block", "480", "--jobs", jobs, "--plugin",
         "gain", "--plugin", built("hostile_sound.so"), "--automation", at("a.csv")},
        {"out.wav"});
  }
}

TEST_F(MoveCommand, UnsupportedOptionsWithOnFaultAreUsageErrors) {
  png("in.png", 16, 16);
  Start start;
  const std::string plugin = hostile("kernel=trap");
  start.arguments = {"image", at("in.png"), "-o", at("out.png"), "--plugin", plugin};
  // The control.
  EXPECT_EQ(run(start.arguments).exit_code, static_cast<int>(ExitCode::plugin));
  start.arguments.emplace_back("--on-fault=stop");
  EXPECT_EQ(run(start.arguments).exit_code, static_cast<int>(ExitCode::plugin));
  start.arguments.back() = "--on-fault=move";
  start.arguments.emplace_back("--isolate");
  expect_error(start, ExitCode::usage, {"--on-fault", "--isolate"});
  start.arguments.pop_back();
  // It faults there too.
  const Ended ended = run(start.arguments);
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::plugin)) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("the plug-ins go on in a process of their own"));
  EXPECT_THAT(ended.errors, HasSubstr("worker \"sample_host\""));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.png"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
