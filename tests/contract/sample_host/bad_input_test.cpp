// SPDX-License-Identifier: Apache-2.0
// Every mistake a person can make, and what sample_host says about it.
#include <dlfcn.h>
#include <sndfile.h>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

class BadInput : public CommandTest {
 protected:
  // `image in.png -o out.png` with more arguments.
  Start image(std::vector<std::string> more, Environment environment = {}) const {
    Start start;
    start.arguments = {"image", at("in.png"), "-o", at("out.png")};
    start.arguments.insert(start.arguments.end(), more.begin(), more.end());
    start.environment = std::move(environment);
    return start;
  }
  Start audio(std::vector<std::string> more) const {
    Start start;
    start.arguments = {"audio", at("in.wav"), "-o", at("out.wav")};
    start.arguments.insert(start.arguments.end(), more.begin(), more.end());
    return start;
  }
  const std::vector<std::string> exposure{"--plugin", "exposure"};
  const std::vector<std::string> gain{"--plugin", "gain"};
};

TEST_F(BadInput, MissingFileIsAnInputError) {
  expect_error(image(exposure), ExitCode::input, {"in.png", "No such file"});
  expect_error(audio(gain), ExitCode::input, {"in.wav", "No such file"});
}

TEST_F(BadInput, TruncatedPngIsAnInputError) {
  png("whole.png", 40, 30);
  const std::string bytes = read_bytes(folder / "whole.png");
  for (const std::size_t length : {bytes.size() / 2, bytes.size() - 1, std::size_t{20}}) {
    write_bytes(folder / "in.png", bytes.substr(0, length));
    expect_error(image(exposure), ExitCode::input, {"in.png", "truncated"});
  }
}

TEST_F(BadInput, TruncatedRecordingsAreInputErrors) {
  wav("whole.wav", 2000);
  const std::string bytes = read_bytes(folder / "whole.wav");
  write_bytes(folder / "in.wav", bytes.substr(0, bytes.size() - 1));
  expect_error(audio(gain), ExitCode::input, {"in.wav", "truncated"});

  write_raw_audio(folder / "whole.flac",
                  sine(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 2, 48000, 30000, 440));
  const std::string flac = read_bytes(folder / "whole.flac");
  write_bytes(folder / "in.wav", flac.substr(0, flac.size() * 3 / 4));
  // Noticed only when the work is half done: the output must go all the same.
  expect_error(audio(gain), ExitCode::input, {"in.wav"});
}

TEST_F(BadInput, TextNamedPngIsAnInputError) {
  write_bytes(folder / "in.png", "Dear reader, this is no image.\n");
  expect_error(image(exposure), ExitCode::input, {"in.png", "not a PNG"});
}

TEST_F(BadInput, EmptyFilesAreInputErrors) {
  write_bytes(folder / "in.wav", "");
  expect_error(audio(gain), ExitCode::input, {"in.wav", "empty"});
  wav("in.wav", 0);
  expect_error(audio(gain), ExitCode::input, {"in.wav", "holds no samples"});
}

TEST_F(BadInput, PluginWithSeveralInputsIsRefusedInARow) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", "merge"}), ExitCode::usage,
               {"org.ctxbroker.sample.merge cannot run in a row", "it needs the inputs a, b"});
}

TEST_F(BadInput, AnalyserIsRefusedInARow) {
  wav("in.wav", 4);
  expect_error(audio({"--plugin", "spectrum"}), ExitCode::usage,
               {"spectrum cannot run in a row", "it only gives an analyser's results", "(--graph)",
                ".json file"});
}

TEST_F(BadInput, UnknownPluginIsRefused) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", "exposur"}), ExitCode::plugin,
               {"\"exposur\"", "did you mean \"exposure\"?", "blur"});
  expect_error(image({"--plugin", "org.nowhere.thing"}), ExitCode::plugin,
               {"\"org.nowhere.thing\"", "exposure"});
  expect_error(image({"--plugin", "./nowhere.so"}), ExitCode::plugin, {"./nowhere.so"});
}

TEST_F(BadInput, UnknownParameterIsRefused) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", "exposure:stop=1"}), ExitCode::usage,
               {"exposure:stop=1", "stop", "stops"});
}

TEST_F(BadInput, ValueOutOfRangeOrNoNumberIsRefused) {
  png("in.png", 4, 4);
  for (const char* value : {"1e9", "-1e9", "inf", "nan", "bright", "1.5x", "0x", "1,5"}) {
    expect_error(image({"--plugin", "exposure:stops=" + std::string(value)}), ExitCode::usage,
                 {"exposure:stops=" + std::string(value)});
  }
}

TEST_F(BadInput, BadBlockLengthIsAUsageError) {
  wav("in.wav", 100);
  expect_error(audio({"--plugin", "gain", "--block", "0"}), ExitCode::usage, {"--block", "0"});
  expect_error(audio({"--plugin", "gain", "--block", "65537"}), ExitCode::usage, {"--block"});
}

TEST_F(BadInput, PluginOfTheOtherKindIsRefused) {
  png("in.png", 4, 4);
  expect_error(image(gain), ExitCode::usage, {"gain", "sample_host audio"});
}

TEST_F(BadInput, BadOutputPlacesAreOutputErrors) {
  png("in.png", 4, 4);
  wav("in.wav", 100);
  const auto to = [&](const char* command, const char* input, const std::string& output,
                      const char* plugin) {
    Start start;
    start.arguments = {command, at(input), "-o", output, "--plugin", plugin};
    return start;
  };
  expect_error(to("image", "in.png", at("no/such/out.png"), "exposure"), ExitCode::output,
               {"no/such", "No such file or directory"});
  expect_error(to("audio", "in.wav", at("no/such/out.wav"), "gain"), ExitCode::output,
               {"no/such", "No such file or directory"});
  expect_error(to("image", "in.png", at("out.jpg"), "exposure"), ExitCode::output,
               {"out.jpg", ".png or .exr"});
  expect_error(to("audio", "in.wav", at("out.mp3"), "gain"), ExitCode::output, {".mp3", ".flac"});
  expect_error(to("image", "in.png", at("in.png") + "/out.png", "exposure"), ExitCode::output,
               {"in.png"});
  Start report = to("image", "in.png", at("out.png"), "exposure");
  report.arguments.insert(report.arguments.end(), {"--json", at("no/report.json")});
  expect_error(report, ExitCode::output, {"report.json"});
}

TEST_F(BadInput, FullDiskIsAnOutputError) {
  png("in.png", 200, 100, 16);
  Start start = image(exposure);
  start.wrapper = "ulimit -f 8";
  expect_error(start, ExitCode::output, {"out.png", "File too large", "name another file"});
  wav("in.wav", 20000);
  start = audio(gain);
  start.wrapper = "ulimit -f 8";
  expect_error(start, ExitCode::output, {"out.wav", "File too large"});
}

TEST_F(BadInput, LibrariesThatAreNoPluginsAreRefused) {
  png("in.png", 4, 4);
  write_bytes(folder / "text.so", "not a library\n");
  expect_error(image({"--plugin", at("text.so")}), ExitCode::plugin, {"text.so"});
  const std::string elf = read_bytes(test_plugin("twins"));
  // The loader alone would end the process with a bus error.
  for (std::size_t length = 1; length < elf.size(); length += elf.size() / 16) {
    write_bytes(folder / "cut.so", elf.substr(0, length));
    expect_error(image({"--plugin", at("cut.so")}), ExitCode::plugin, {"cut.so"});
  }
  expect_error(image({"--plugin", test_plugin("exports_nothing")}), ExitCode::plugin,
               {"exports_nothing", "ctxb_plugin_entry"});
  expect_error(image({"--plugin", folder.path().string()}), ExitCode::plugin,
               {folder.path().string()});
}

TEST_F(BadInput, LibraryOfAnotherAbiIsRefused) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", test_plugin("wrong_major")}), ExitCode::plugin,
               {"wrong_major", "ABI"});
}

TEST_F(BadInput, LibraryWhoseInitFailsIsRefused) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", test_plugin("init_fails")}), ExitCode::plugin,
               {"init_fails", "init"});
}

TEST_F(BadInput, KernelImageThatIsGarbageIsRefused) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", test_plugin("garbage_image")}), ExitCode::kernel_image,
               {"garbage"});
}

TEST_F(BadInput, PluginThatFailsInProcessIsAnError) {
  png("in.png", 4, 4);
  expect_error(image({"--plugin", test_plugin("process_fails")}), ExitCode::plugin,
               {"process_fails", "the colours have run out"});
}

TEST_F(BadInput, AmbiguousPluginNamesAreRefused) {
  png("in.png", 4, 4);
  const std::string twins = test_plugin("twins");
  expect_error(image({"--plugin", twins}), ExitCode::plugin, {"several plug-ins", "twin"});
  expect_error(image({"--plugin", twins + "#other"}), ExitCode::plugin, {"\"other\"", "twin"});
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(twins, folder / "plugins/twins.so");
  expect_error(image({"--plugin", "twin", "--plugin-path", at("plugins")}), ExitCode::plugin,
               {"ambiguous", "org.ctxbroker.test.a.twin", "org.ctxbroker.test.b.twin"});
}

TEST_F(BadInput, UnknownDriverIsRefused) {
  png("in.png", 4, 4);
  expect_error(image(exposure, {{"CTXBROKER_DRIVER", "amd"}}), ExitCode::driver,
               {"CTXBROKER_DRIVER", "amd", "software"});
}

TEST_F(BadInput, NvidiaChoiceWithoutItsDriverIsAnError) {
  if (void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ::dlclose(driver);
    GTEST_SKIP() << "this machine has NVIDIA's driver";
  }
  png("in.png", 4, 4);
  expect_error(image(exposure, {{"CTXBROKER_DRIVER", "nvidia"}}), ExitCode::driver,
               {"libcuda.so.1"});
  Start start = image(exposure);
  start.arguments.insert(start.arguments.end(), {"--driver", "nvidia"});
  expect_error(start, ExitCode::driver, {"libcuda.so.1"});
}

TEST_F(BadInput, RunWithoutAnyDeviceIsADriverError) {
  png("in.png", 4, 4);
  expect_error(
      image(exposure, {{"CTXBROKER_DRIVER", "software"}, {"CTXBROKER_SOFTWARE_DEVICES", "0"}}),
      ExitCode::driver, {"device"});
}

TEST_F(BadInput, UnknownDeviceIsRefused) {
  png("in.png", 4, 4);
  Start start = image(exposure);
  start.arguments.insert(start.arguments.end(), {"--device", "77"});
  expect_error(start, ExitCode::driver, {"--device 77"});
}

TEST_F(BadInput, IncompleteCommandLinesAreUsageErrors) {
  Start start;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"bake"}, {"image"}, {"list", "--bogus"}}) {
    start.arguments = words;
    expect_error(start, ExitCode::usage, {});
  }
}

TEST_F(BadInput, AnInterruptLeavesNothing) {
  wav("in.wav", std::size_t{48000} * 20);
  Start start = audio({"--plugin", "gain", "--plugin", "equaliser", "--block", "1"});
  start.interrupt_when = ".part";
  start.interrupt_folder = folder.path();
  const Ended ended = run_sample_host(start);
  EXPECT_EQ(ended.signal, 2) << ended.errors;
  EXPECT_THAT(ended.errors, testing::HasSubstr("sample_host: interrupted; complete files stay"));
  EXPECT_THAT(folder.names(), testing::ElementsAre("in.wav"));
}

TEST_F(BadInput, AFailureKeepsTheOldOutput) {
  png("in.png", 4, 4);
  write_bytes(folder / "out.png", "the old one");
  expect_error(image({"--plugin", test_plugin("process_fails")}), ExitCode::plugin, {});
  EXPECT_EQ(read_bytes(folder / "out.png"), "the old one");
}

TEST_F(BadInput, PluginsThatNeedAGpuAreRefusedOnTheSoftwareDevice) {
  png("in.png", 8, 8);
  Start start;
  start.arguments = {"image",    at("in.png"), "-o",       at("out.png"),
                     "--plugin", "exposure",   "--plugin", test_plugin("needs_gpu"),
                     "--driver", "software"};
  expect_error(
      start, ExitCode::needs_gpu,
      {"plug-in broken cannot be used here: it needs a GPU", "software device", "leave it out"});
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
