// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "ctxbroker/error.hpp"
#include "driver/driver_file.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DriverChoiceTest, DriverNamesAreParsedAndPrinted) {
  for (const auto choice :
       {DriverChoice::automatic, DriverChoice::nvidia, DriverChoice::software}) {
    EXPECT_EQ(parse_driver_choice(to_string(choice)), choice);
  }
  EXPECT_EQ(parse_driver_choice("Nvidia"), std::nullopt);
  EXPECT_EQ(parse_driver_choice(""), std::nullopt);
}

TEST(DriverChoiceTest, TheHostsOptionOutranksTheEnvironment) {
  const ChosenDriver chosen = choose_driver(DriverChoice::software, "nvidia");
  EXPECT_EQ(chosen.choice, DriverChoice::software);
  EXPECT_THAT(chosen.reason, HasSubstr("host"));
}

TEST(DriverChoiceTest, TheEnvironmentOutranksTheDefault) {
  EXPECT_EQ(choose_driver({}, "nvidia").choice, DriverChoice::nvidia);
  EXPECT_EQ(choose_driver({}, "nvidia").reason, "CTXBROKER_DRIVER=nvidia");
  EXPECT_EQ(choose_driver({}, "").choice, DriverChoice::automatic);
  EXPECT_EQ(choose_driver({}, nullptr).choice, DriverChoice::automatic);
}

TEST(DriverChoiceTest, AnUnknownNameListsTheAllowedOnes) {
  try {
    choose_driver({}, "amd");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::driver_choice);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"amd\""), HasSubstr("auto"), HasSubstr("nvidia"),
                                    HasSubstr("software")));
  }
}

int some_function;

TEST(DriverTableTest, MissingMandatorySymbolsAreNamedAndOptionalOnesAreNot) {
  DriverTable table;
  const auto missing = fill(table, nullptr, [](void*, const char* symbol) -> void* {
    const bool absent =
        std::strcmp(symbol, "cuMemAlloc_v2") == 0 || std::strcmp(symbol, "cuFuncGetParamInfo") == 0;
    return absent ? nullptr : &some_function;
  });
  EXPECT_THAT(missing, ElementsAre("cuMemAlloc_v2"));
  EXPECT_EQ(table.func_get_param_info, nullptr);
  EXPECT_NE(table.launch_kernel, nullptr);
}

TEST(DriverFileTest, TheLoadersOwnWordsAreKept) {
  const LoadedFile file = load_driver_file("/nonexistent/libnothing.so");
  EXPECT_EQ(file.handle, nullptr);
  EXPECT_THAT(file.error, HasSubstr("No such file"));
}

TEST(DriverTest, AMissingSoftwareDeviceIsNamed) {
  try {
    open_driver({DriverChoice::software, "/nonexistent/libdevice.so"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_driver);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/libdevice.so"));
  }
}

TEST(DriverTest, ALibraryThatIsNoDriverIsRefusedWithWhatItLacks) {
  try {
    open_driver({DriverChoice::software, "libm.so.6"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_driver);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuInit"), HasSubstr("12.4")));
    EXPECT_THAT(error.what(), Not(HasSubstr("cuFuncGetParamInfo")));
  }
}

TEST(DriverTest, WithoutAnNvidiaDriverTheLoadersTextAndTheRemedyAreGiven) {
  if (load_driver_file(nvidia_driver_name()).handle != nullptr) {
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  const auto refusal = [](std::optional<DriverChoice> choice) {
    try {
      open_driver({choice, {}});
      return std::string("no error");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::no_driver);
      return std::string(error.what());
    }
  };
  const auto names_both = AllOf(HasSubstr("libcuda.so.1"), HasSubstr("nvidia-smi"));
  EXPECT_THAT(refusal(DriverChoice::nvidia),
              AllOf(names_both, HasSubstr("let the host choose the software device")));
  const char* const before = std::getenv("CTXBROKER_DRIVER");
  const std::string restored = before != nullptr ? before : "";
  setenv("CTXBROKER_DRIVER", "nvidia", 1);
  EXPECT_THAT(refusal(std::nullopt),
              AllOf(names_both, HasSubstr("with CTXBROKER_DRIVER=software")));
  before != nullptr ? setenv("CTXBROKER_DRIVER", restored.c_str(), 1)
                    : unsetenv("CTXBROKER_DRIVER");
}

}  // namespace
}  // namespace ctxbroker::detail
