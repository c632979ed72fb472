// Hosts that link the driver, by the way in which they link the broker: which gate they have.
#include <gmock/gmock.h>

#include <cstdio>
#include <string>

#include "test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a program beside this one prints.
std::string output_of(const std::string& command) {
  const auto folder = test_library("").parent_path().parent_path() / "bin";
  // Who asks for the driver finds it there, as on any machine with NVIDIA's.
  const std::string environment =
      driver_is_software() ? "LD_LIBRARY_PATH='" + software_device_folder().string() + "' " : "";
  std::FILE* const pipe =
      popen((environment + "'" + folder.string() + "'/" + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "not started";
  std::string output;
  for (int one = std::fgetc(pipe); one != EOF; one = std::fgetc(pipe)) {
    output += static_cast<char>(one);
  }
  return output + "ended with " + std::to_string(pclose(pipe)) + "\n";
}

#define SKIP_WITHOUT_DEVICE(output) \
  if ((output).find("no device") != std::string::npos) GTEST_SKIP() << "no device"

class EarlyGate : public ::testing::TestWithParam<const char*> {};

TEST_P(EarlyGate, IsThereBeforeTheDriver) {
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
TEST(LateGate, IsLateWhereTheProgramDoesNotLinkIt) {
  const std::string output = output_of("host_without_gate");
  SKIP_WITHOUT_DEVICE(output);
  EXPECT_THAT(output, HasSubstr("gate: late (the driver, "));
  EXPECT_THAT(output, HasSubstr("loaded before the broker was opened: the program links it. Held"));
  EXPECT_THAT(output, HasSubstr("the host's memory: whole\nended with 0"));
}

// A gate in front of which nobody stands lets everything through, and shows the driver behind it.
TEST(UnusedGate, IsNotThere) {
  for (const char* host : {"host_with_driver_first", "host_without_gate"}) {
    const std::string output = output_of(std::string(host) + " without");
    SKIP_WITHOUT_DEVICE(output);
    EXPECT_THAT(output, HasSubstr("gate: none (the host opened the broker without it)")) << host;
    EXPECT_THAT(output, Not(HasSubstr("ctxbroker_gate.so"))) << host;
    EXPECT_THAT(output, HasSubstr("the host's memory: DAMAGED\nended with 0")) << host;
  }
}

}  // namespace
}  // namespace ctxbroker
