// SPDX-License-Identifier: Apache-2.0
// A plug-in changes how its thread computes: no code outside of the plug-in sees that.
#include <dlfcn.h>

#include <cfenv>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>

#include "broker_fixture.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Computes on this thread. Returns what is not as it has to be.
std::string wrong_floats() {
  std::string wrong;
  volatile float tiny = 1e-39F;
  if (tiny * 0.5F == 0) wrong += "flushed ";
  volatile double above = 2.5000001;
  if (std::rint(above) != 3) wrong += "rounded ";
  if (fegetexcept() != 0) wrong += "traps ";
  volatile long double one = 1, three = 3;
  const long double third = 1.0L / 3;
  if (one / three != third) wrong += "imprecise ";
  return wrong;
}

using Change = int (*)(const char*);
constexpr const char* ways[] = {"flush", "round", "trap", "precision"};

class FloatsTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  FloatsTest() {
    change = reinterpret_cast<Change>(tenant.adopt(test_plugin("floats")).symbol("change_floats"));
  }

  Tenant tenant = broker.open_tenant("attacker", {LeaseChoice(GetParam())});
  Tenant neighbour = broker.open_tenant("neighbour", {LeaseChoice(GetParam())});
  Change change = nullptr;
};

TEST_P(FloatsTest, ChangeInAGuardIsPutBackAndStruck) {
  std::uint64_t strikes = 0;
  for (const char* way : ways) {
    ASSERT_EQ(wrong_floats(), "");
    bool changed = false;
    const std::string inside = tenant.run(0, [&] {
      changed = change(way) != 0;
      return wrong_floats();
    });
    if (!changed) continue;
    EXPECT_NE(inside, "") << way << ": the control";
    EXPECT_EQ(wrong_floats(), "") << way;
    EXPECT_EQ(neighbour.run(0, wrong_floats), "") << way;
    EXPECT_EQ(tenant.strikes(), ++strikes) << way;
  }
  EXPECT_EQ(neighbour.strikes(), 0U);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("changed the thread's floating-point control: how "
                                                 "subnormal numbers are treated")));
}

TEST_P(FloatsTest, ChangeInANestedGuardIsPutBackBeforeAnyOtherTenantsCode) {
  for (const char* way : ways) {
    neighbour.run(0, [&] {
      tenant.run(0, [&] { change(way); });
      EXPECT_EQ(wrong_floats(), "") << way << ", in a guard of another lease";
    });
    tenant.run(0, [&] { tenant.run(0, [&] { change(way); }); });
    EXPECT_EQ(wrong_floats(), "") << way << ", by the outer one of the same lease";
  }
}

// An audio host flushes subnormal numbers, and goes on doing that.
TEST_P(FloatsTest, ControlThatTheHostHasSetStays) {
  std::fesetround(FE_DOWNWARD);
  tenant.run(0, [] { EXPECT_EQ(std::fegetround(), FE_DOWNWARD); });
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  tenant.run(0, [] { std::fesetround(FE_TONEAREST); });
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(tenant.strikes(), 1U) << "for the second";
}

// The flags say what has happened. They are no setting, and the host may read them after the call.
TEST_P(FloatsTest, FlagsOfExceptionsAreNotTouched) {
  std::feclearexcept(FE_ALL_EXCEPT);
  tenant.run(0, [] { std::feraiseexcept(FE_OVERFLOW); });
  EXPECT_NE(std::fetestexcept(FE_OVERFLOW), 0);
  EXPECT_EQ(tenant.strikes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Leases, FloatsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

using FloatsAtLoadTest = BrokerTest;

TEST_F(FloatsAtLoadTest, LibraryThatChangesThemWhenItIsLoadedIsStruck) {
  Tenant tenant = broker.open_tenant("fast");
  tenant.adopt(test_plugin("floats_at_load"));
  EXPECT_EQ(wrong_floats(), "");
  std::string later;
  std::thread([&] { later = wrong_floats(); }).join();
  EXPECT_EQ(later, "") << "a thread starts with what its maker has";
  EXPECT_EQ(tenant.strikes(), 1U);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("dlopen: changed the thread's floating-point "
                                                 "control: how subnormal numbers are treated")));
}

TEST_F(FloatsAtLoadTest, WithoutTheBrokerTheThreadIsChanged) {
  const TempFolder folder;
  const std::filesystem::path copy = folder / "floats.so";
  std::filesystem::copy_file(test_plugin("floats_at_load"), copy);
  std::string here, later;
  std::thread([&] {
    EXPECT_NE(dlopen(copy.c_str(), RTLD_NOW), nullptr);
    here = wrong_floats();
    std::thread([&] { later = wrong_floats(); }).join();
  }).join();
  EXPECT_EQ(here, "flushed ");
  EXPECT_EQ(later, "flushed ");
}

TEST_F(BrokerTest, FloatsThatAPluginChangesInProcessArePutBack) {
  PluginInstance instance = active("process_flushes");
  EXPECT_EQ(run({&instance})[3], 3.0F);
  EXPECT_EQ(wrong_floats(), "");
  EXPECT_EQ(instance.metrics().strikes, 1U);
  EXPECT_THAT(said("strike"),
              Contains(HasSubstr("process: changed the thread's floating-point control")));
}

}  // namespace
}  // namespace ctxbroker
