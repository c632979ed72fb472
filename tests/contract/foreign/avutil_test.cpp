// SPDX-License-Identifier: Apache-2.0
// FFmpeg's libavutil as a tenant's library. It makes a context of its own, or uses the primary one,
// and keeps frames on the device, while a neighbour resets that.
#include <gmock/gmock.h>

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "foreign/avutil_device.h"
#include "foreign_case.hpp"
#include "support/driver_by_name.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int primary_context = 1;  // AV_CUDA_USE_PRIMARY_CONTEXT
constexpr int frames_a_round = 5;

struct Avutil {
  decltype(&avutil_open) open;
  decltype(&avutil_carry) carry;
  decltype(&avutil_close) close;
};

template <typename LookUp>
Avutil found(const LookUp& look_up) {
  return {reinterpret_cast<decltype(&avutil_open)>(look_up("avutil_open")),
          reinterpret_cast<decltype(&avutil_carry)>(look_up("avutil_carry")),
          reinterpret_cast<decltype(&avutil_close)>(look_up("avutil_close"))};
}

// `enter` runs a function as the library's owner, `reset` is what a neighbour does.
template <typename Enter, typename Reset>
void play(const Avutil& library, int flags, const Enter& enter, const Reset& reset) {
  const auto print = [](const char* what, int status) {
    std::printf("%s %d\n", what, status);
    std::fflush(stdout);
  };
  enter([&] { print("OPEN", library.open(flags)); });
  enter([&] { print("CARRY", library.carry(frames_a_round)); });
  std::thread(reset).join();
  enter([&] { print("CARRY", library.carry(frames_a_round)); });
  std::thread([&] { enter([&] { print("CARRY", library.carry(frames_a_round)); }); }).join();
  enter([&] { library.close(); });
}

void play_alone(int flags) {
  check_driver_call("cuInit", 0U);
  void* library = dlopen(test_library("avutil_device").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const Avutil avutil = found([&](const char* name) { return dlsym(library, name); });
  play(
      avutil, flags, [](const auto& run) { run(); }, reset_device);
}

void play_as_tenant(int flags, const std::string& lease) {
  Broker broker = Broker::open(printing_broker());
  Tenant tenant = broker.open_tenant("org.ffmpeg", {LeaseChoice(lease_kind(lease))});
  Tenant neighbour = broker.open_tenant("org.neighbour", {LeaseChoice(lease_kind(lease))});
  const AdoptedLibrary library = tenant.adopt(test_library("avutil_device"));
  const Avutil avutil = found([&](const char* name) { return library.symbol(name); });
  play(
      avutil, flags, [&](const auto& run) { tenant.run(0, run); },
      [&] { neighbour.run(0, reset_device); });
  std::printf("STRIKES %d\n", static_cast<int>(tenant.strikes()));
  tenant.close();
  neighbour.close();
  broker.close();
}

void play_chosen(int flags) {
  const std::string lease = foreign_lease();
  ASSERT_FALSE(lease.empty()) << "a part of another test, which runs it as a child";
  lease == foreign_alone ? play_alone(flags) : play_as_tenant(flags, lease);
  std::printf("DONE\n");
}

TEST(Avutil, DISABLED_PlaysWithItsOwnContext) {
  play_chosen(0);
}
TEST(Avutil, DISABLED_PlaysWithThePrimaryContext) {
  play_chosen(primary_context);
}

class AvutilTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(test_library("avutil_device")))
      GTEST_SKIP() << "built without FFmpeg's libavutil (the package libavutil-dev)";
  }
  static constexpr char own[] = "Avutil.DISABLED_PlaysWithItsOwnContext";
  static constexpr char primary[] = "Avutil.DISABLED_PlaysWithThePrimaryContext";
  static ChildResult play(const char* test, const std::string& how) {
    return play_foreign(test, how, {{"LD_LIBRARY_PATH", driver_search_path(how)}});
  }
  static void expect_all_frames(const ChildResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("DONE"));
    EXPECT_THAT(result.output, HasSubstr("OPEN 0\nCARRY 0\n"));
    EXPECT_THAT(result.output, Not(HasSubstr("CARRY -"))) << "an error, or a frame has changed";
  }
  static void expect_good_tenant(const ChildResult& result) {
    expect_all_frames(result);
    EXPECT_THAT(result.output, HasSubstr("STRIKES 0"));
    EXPECT_THAT(result.output, Not(HasSubstr("gave back what the tenant left")));
  }
};

TEST_P(AvutilTest, FramesInItsOwnContextComeBackUnchangedBesideAReset) {
  expect_good_tenant(play(own, GetParam()));
}

TEST_P(AvutilTest, FramesInThePrimaryContextComeBackUnchangedBesideAReset) {
  expect_good_tenant(play(primary, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Leases, AvutilTest, ::testing::ValuesIn(foreign_leases),
                         [](const auto& one) { return std::string("lease_") + one.param; });

class AvutilAlone : public AvutilTest {};

// The controls. A context of its own outlives the neighbour's reset, and the primary one does not.
TEST_P(AvutilAlone, FramesInItsOwnContextComeBackUnchanged) {
  expect_all_frames(play(own, GetParam()));
}

TEST_P(AvutilAlone, ResetEndsItsWorkInThePrimaryContext) {
  const ChildResult result = play(primary, GetParam());
  EXPECT_THAT(result.output, HasSubstr("OPEN 0\nCARRY 0\n"));
  EXPECT_THAT(result.output, HasSubstr("RESET 0\n"));
  const bool is_crash = result.signal != 0;
  EXPECT_TRUE(is_crash || result.output.find("CARRY -") != std::string::npos) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Control, AvutilAlone, ::testing::Values(foreign_alone),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace ctxbroker
