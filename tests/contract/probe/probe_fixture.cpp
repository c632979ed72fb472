// SPDX-License-Identifier: Apache-2.0
#include "probe_fixture.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace ctxbroker::test {

ProbeOptions ProbeTest::options() const {
  ProbeOptions options;
  options.program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "probe_child";
  options.cache_folder = folder / "cache";
  return options;
}

ProbeOptions ProbeTest::script(const std::string& text) const {
  ProbeOptions options = this->options();
  options.program = "/bin/sh";
  options.arguments = {"-c", text};
  return options;
}

std::size_t ProbeTest::files() const {
  std::error_code error;
  const std::filesystem::directory_iterator found(folder / "cache", error);
  return static_cast<std::size_t>(std::distance(begin(found), end(found)));
}

std::filesystem::path ProbeTest::only_file() const {
  EXPECT_EQ(files(), 1U);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache")) {
    return entry.path();
  }
  return {};
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

void expect_all(const ProbeReport& report, ProbeOutcome outcome, const std::string& reason_part) {
  EXPECT_FALSE(report.answers.empty());
  for (const ProbeAnswer& answer : report.answers) {
    EXPECT_EQ(answer.outcome, outcome) << answer.name;
    EXPECT_THAT(answer.reason, testing::HasSubstr(reason_part)) << answer.name;
  }
}

}  // namespace ctxbroker::test
