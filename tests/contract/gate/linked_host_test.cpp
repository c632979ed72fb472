// SPDX-License-Identifier: Apache-2.0
// Hosts that link the driver, by the way in which they link the broker: which gate they have.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "support/child_process.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs a program that lies beside this one, and returns what it prints and how it ends. `variables`
// is "NAME=value" for the shell.
std::string output_of(const std::string& command, const std::string& variables = "") {
  const auto folder = std::filesystem::path(this_program()).parent_path();
  std::string environment = variables + " ";
  // Code that loads the driver by its name finds it there, as on any machine with NVIDIA's driver.
  if (driver_is_software()) {
    environment += "LD_LIBRARY_PATH='" + software_device_folder().string() + "' ";
  }
  const ChildResult child =
      ChildProcess({{"/bin/sh", "-c", environment + "'" + folder.string() + "'/" + command}, {}})
          .wait();
  return child.output + "ended with " + std::to_string(child.exit_code) + "\n";
}

#define SKIP_WITHOUT_DEVICE(output) \
  if ((output).find("no device") != std::string::npos) GTEST_SKIP() << "no device"

class EarlyGate : public ::testing::TestWithParam<const char*> {};

TEST_P(EarlyGate, LinkedGateIsThereBeforeTheDriver) {
  const std::string output = output_of(GetParam());
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: before_driver (in the process before the driver)"));
  EXPECT_THAT(output, Not(HasSubstr("driver: ctxbroker_gate")));
  EXPECT_THAT(output, HasSubstr("the host's memory: whole\nended with 0"));
}

INSTANTIATE_TEST_SUITE_P(Hosts, EarlyGate,
                         ::testing::Values("host_with_driver_first", "host_in_library",
                                           "host_with_run_path"),
                         [](const auto& one) { return std::string(one.param); });

// The control: the same program where it says no.
TEST(LateGate, GateIsLateWhereTheProgramDoesNotLinkIt) {
  const std::string output = output_of("host_without_gate");
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: late (the driver, "));
  EXPECT_THAT(output,
              HasSubstr("loaded before the broker was opened: the program links it. The gate "
                        "holds"));
  EXPECT_THAT(output, HasSubstr("the host's memory: whole\nended with 0"));
}

// A gate in front of which nobody stands lets everything through, and shows the driver behind it.
TEST(UnusedGate, GateThatTheHostDoesNotWantIsNotThere) {
  for (const char* host : {"host_with_driver_first", "host_without_gate"}) {
    const std::string output = output_of(std::string(host) + " without");
    SKIP_WITHOUT_DEVICE(output);
    EXPECT_THAT(output, HasSubstr("gate: none (the host opened the broker without it)")) << host;
    EXPECT_THAT(output, Not(HasSubstr("ctxbroker_gate.so"))) << host;
    EXPECT_THAT(output, HasSubstr("the host's memory: DAMAGED\nended with 0")) << host;
  }
}

// A tool in front of the driver takes the gate for the driver: calls go through both.
TEST(Tools, AnInterposerStandsInFrontOfTheGate) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer begins with dlsym, before anybody else can stand in front of it";
#endif
  const std::string tool = test_library("tool_interposer").string();
  const std::string variables = "LD_PRELOAD='" + tool + "'";
  for (const char* host : {"host_with_driver_first", "host_in_library"}) {
    const std::string output = output_of(host, variables);
    SKIP_WITHOUT_DEVICE(output);
    EXPECT_THAT(output, HasSubstr("gate: before_driver (in the process before the driver)"))
        << host;
    EXPECT_THAT(output, HasSubstr("tool: " + tool + " (LD_PRELOAD) stands in front of dlsym, "));
    EXPECT_THAT(output, HasSubstr("the host's memory: whole\n"));
    EXPECT_THAT(output, ContainsRegex("interposer: [1-9][0-9]* inits, [1-9][0-9]* allocations, "
                                      "[1-9][0-9]* resets"));
  }
  // The control: without the gate the tool's resets are the driver's.
  const std::string output = output_of("host_with_driver_first without", variables);
  EXPECT_THAT(output, HasSubstr("the host's memory: DAMAGED"));
}

TEST(Tools, InjectedToolFindsTheGateByTheDriversName) {
  const std::string tool = test_library("tool_injected").string();
  const std::string output =
      output_of("host_with_driver_first", "CUDA_INJECTION64_PATH='" + tool + "'");
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("injected: works, the driver by its name is "));
  EXPECT_THAT(output, HasSubstr("ctxbroker_gate.so\n"));
  EXPECT_THAT(output, HasSubstr("tool: " + tool +
                                " (CUDA_INJECTION64_PATH) is loaded by the driver: what "
                                "it calls itself is the host's; plug-ins are held as usual"));
  EXPECT_THAT(output, HasSubstr("the host's memory: whole\nended with 0"));
}

TEST(Tools, ToolThatBearsTheDriversNameIsNotTakenForTheDriver) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library has to be the first";
#endif
  const std::string tool = test_library("tool_named").string();
  // CTXBROKER_DRIVER=nvidia makes the broker use the library with the driver's name, as on a
  // machine with NVIDIA's driver. In a test with the software device, that library is the software
  // device.
  const std::string output =
      output_of("host_with_driver_first", "CTXBROKER_DRIVER=nvidia LD_PRELOAD='" + tool + "'");
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: none (plug-ins that ask for the driver get another one"));
  EXPECT_THAT(output, HasSubstr(tool));
  EXPECT_THAT(output, HasSubstr("ended with 0"));
}

TEST(Tools, KnownToolIsNamedAsTheReasonForNoGate) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library has to be the first";
#endif
  const auto copy = std::filesystem::path(testing::TempDir()) / "libcuda-injection.so";
  std::filesystem::copy_file(test_library("tool_named"), copy,
                             std::filesystem::copy_options::overwrite_existing);
  const std::string output = output_of(
      "host_with_driver_first", "CTXBROKER_DRIVER=nvidia LD_PRELOAD='" + copy.string() + "'");
  std::filesystem::remove(copy);
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: none (it stands aside for Nsight Compute, whose library "
                                "answers to the driver's name: " +
                                copy.string()));
  EXPECT_THAT(output, HasSubstr("tool: Nsight Compute (" + copy.string() + ") is in the process"));
  EXPECT_THAT(output, Not(HasSubstr("held as usual")));
}

TEST(Tools, NoToolIsReportedWhereThereIsNone) {
  const std::string output =
      output_of("host_with_driver_first", "LD_PRELOAD= CUDA_INJECTION64_PATH=");
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: "));
  EXPECT_THAT(output, Not(HasSubstr("tool: ")));
}

}  // namespace
}  // namespace ctxbroker
