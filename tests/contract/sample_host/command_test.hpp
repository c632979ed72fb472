// SPDX-License-Identifier: Apache-2.0
// What every test of a command needs: a folder, input files, and short ways to run and to check.
#pragma once

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "child.hpp"
#include "exit_code.hpp"
#include "fixtures/audio_fixture.hpp"
#include "fixtures/png_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {

class CommandTest : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder / name).string(); }

  // Inputs. Colour types as in PNG: 0 grey, 2 RGB, 4 grey and alpha, 6 RGBA.
  std::string png(const std::string& name, std::uint32_t width, std::uint32_t height, int depth = 8,
                  int colour_type = 2) const;
  std::string wav(const std::string& name, std::size_t frames, int channels = 2) const;
  // One of this test's own libraries, by its file name without ".so".
  static std::string test_plugin(const std::string& name);

  Ended run(std::vector<std::string> arguments, Environment environment = {}) const;
  // Runs and expects success, with nothing on standard error.
  Ended run_well(std::vector<std::string> arguments, Environment environment = {}) const;
  // Runs and expects this exit code, one message with every part in it, nothing on standard output,
  // and no file in the folder that was not there before.
  void expect_error(const Start& start, ExitCode code, const std::vector<std::string>& parts) const;

  nlohmann::json json_at(const std::string& name) const {
    return nlohmann::json::parse(read_bytes(folder / name));
  }

  TempFolder folder;
};

}  // namespace ctxbroker::sample_host::test
