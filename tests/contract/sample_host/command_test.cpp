// SPDX-License-Identifier: Apache-2.0
#include "command_test.hpp"

#include <sndfile.h>

#include <algorithm>

namespace ctxbroker::sample_host::test {

std::string CommandTest::png(const std::string& name, std::uint32_t width, std::uint32_t height,
                             int depth, int colour_type) const {
  RawPng raw{width, height, depth, colour_type, false, false, {}};
  fill_samples(raw, width + height);
  write_raw_png(folder / name, raw);
  return at(name);
}

std::string CommandTest::wav(const std::string& name, std::size_t frames, int channels) const {
  write_raw_audio(folder / name,
                  sine(SF_FORMAT_WAV | SF_FORMAT_PCM_16, channels, 48000, frames, 440));
  return at(name);
}

std::string CommandTest::test_plugin(const std::string& name) {
  return (program_folder().parent_path() / "test_plugins" / "sample_host" / (name + ".so"))
      .string();
}

Ended CommandTest::run(std::vector<std::string> arguments, Environment environment) const {
  Start start;
  start.arguments = std::move(arguments);
  start.environment = std::move(environment);
  return run_sample_host(start);
}

Ended CommandTest::run_well(std::vector<std::string> arguments, Environment environment) const {
  Ended ended = run(std::move(arguments), std::move(environment));
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.errors, "");
  return ended;
}

void CommandTest::expect_error(const Start& start, ExitCode code,
                               const std::vector<std::string>& parts) const {
  const std::vector<std::string> before = folder.names();
  const Ended ended = run_sample_host(start);
  EXPECT_EQ(ended.exit_code, static_cast<int>(code)) << ended.errors;
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.output, "");
  EXPECT_THAT(ended.errors, testing::StartsWith("sample_host: error: "));
  for (const std::string& part : parts) EXPECT_THAT(ended.errors, testing::HasSubstr(part));
  // One message; only a compiler's log may follow, indented, on lines of its own.
  for (std::size_t end = ended.errors.find('\n'); end + 1 < ended.errors.size();
       end = ended.errors.find('\n', end + 1)) {
    EXPECT_EQ(code, ExitCode::kernel_image) << "several lines: " << ended.errors;
    EXPECT_EQ(ended.errors.substr(end + 1, 2), "  ") << ended.errors;
  }
  EXPECT_EQ(folder.names(), before);
}

}  // namespace ctxbroker::sample_host::test
