// SPDX-License-Identifier: Apache-2.0
// A cache folder of the test's own, and programs that measure, crash, hang or lie.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "ctxbroker/probe.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::test {

class ProbeTest : public testing::Test {
 protected:
  // With the program that measures.
  ProbeOptions options() const;
  // With a shell script instead; its $0 is the probe's name, $1 the driver, $2 the device.
  ProbeOptions script(const std::string& text) const;
  // The one file in the cache folder; fails the test when there is none or more.
  std::filesystem::path only_file() const;
  std::size_t files() const;

  const TempFolder temporary;
  const std::filesystem::path folder = temporary.path();
};

std::string read_text(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);

// The report of a script that lets every probe end in the same way.
void expect_all(const ProbeReport& report, ProbeOutcome outcome, const std::string& reason_part);

}  // namespace ctxbroker::test
