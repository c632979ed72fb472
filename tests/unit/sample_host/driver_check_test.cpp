// SPDX-License-Identifier: Apache-2.0
// Programs that stand for a process whose driver answers, hangs and crashes.
#include "driver_check.hpp"

#include <gmock/gmock.h>

namespace ctxbroker::sample_host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds enough{60};

TEST(DriverCheckTest, DriverThatAnswersMayBeOpened) {
  EXPECT_EQ(check_driver("/bin/true", {}, enough), "");
  EXPECT_EQ(check_driver("/bin/false", {}, enough), "") << "an error is told where it is opened";
}

TEST(DriverCheckTest, DriverThatHangsIsNamedAtTheDeadline) {
  EXPECT_THAT(check_driver("/bin/sleep", {"60"}, std::chrono::milliseconds(200)),
              AllOf(HasSubstr("the driver hangs"), HasSubstr("within 200 ms"),
                    HasSubstr("nvidia_uvm"), HasSubstr("reboot")));
}

TEST(DriverCheckTest, DriverThatCrashesIsNamedWithItsSignal) {
  EXPECT_THAT(check_driver("/bin/sh", {"-c", "kill -SEGV $$"}, enough),
              AllOf(HasSubstr("the driver crashes: signal 11"), HasSubstr("reboot")));
}

}  // namespace
}  // namespace ctxbroker::sample_host
