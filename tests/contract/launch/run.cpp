// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <filesystem>
#include <string_view>
#include <utility>

#include "support/test_library.hpp"
#include "unit/broker/json_schema.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view run_report_schema;
}

namespace ctxbroker::launch::test {
namespace {

std::filesystem::path program_folder() {
  return std::filesystem::path(this_program()).parent_path();
}

ChildResult result_of(std::vector<std::string> command, Environment environment) {
  ChildStart start;
  start.command = std::move(command);
  start.environment = std::move(environment);
  start.errors = ChildErrors::apart;
  return ChildProcess(start).wait(std::chrono::seconds(100));
}

}  // namespace

void RunTest::SetUp() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library has to be the first that is preloaded";
#endif
}

std::string RunTest::program() {
  return (program_folder() / "launch_program").string();
}

std::string RunTest::ctxb_run() {
  return (program_folder() / "ctxb-run").string();
}

std::string RunTest::own_library(const std::string& name) {
  return (program_folder().parent_path() / "lib/ctxbroker" / name).string();
}

std::string RunTest::neighbour(const std::string& name) {
  return test_library(name).string();
}

ChildResult RunTest::run(const std::vector<std::string>& arguments, Environment environment) const {
  std::vector<std::string> command{ctxb_run()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return result_of(std::move(command), std::move(environment));
}

ChildResult RunTest::run_program(std::vector<std::string> options,
                                 const std::vector<std::string>& deeds,
                                 const Environment& environment) const {
  options.push_back(program());
  options.insert(options.end(), deeds.begin(), deeds.end());
  return run(options, environment);
}

ChildResult RunTest::run_alone(const std::vector<std::string>& deeds) const {
  std::vector<std::string> command{program()};
  command.insert(command.end(), deeds.begin(), deeds.end());
  Environment environment;
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  return result_of(std::move(command), std::move(environment));
}

nlohmann::json RunTest::report(const std::string& name) const {
  auto json = nlohmann::json::parse(read_bytes(folder / name));
  const auto schema = nlohmann::json::parse(fixtures::run_report_schema);
  EXPECT_TRUE(is_valid(json, schema, schema)) << json.dump(2);
  return json;
}

}  // namespace ctxbroker::launch::test
