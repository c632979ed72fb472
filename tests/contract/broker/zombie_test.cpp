// Work on the device that does not end: nobody waits for it, and the others go on. In a child,
// whose end may wait for the kernel.
#include <gmock/gmock.h>

#include <chrono>

#include "broker_fixture.hpp"
#include "child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The kernel works for four seconds; what is over by then has not waited for it.
constexpr std::chrono::milliseconds patience{150};
constexpr std::chrono::milliseconds kernel_takes{4000};

class ZombieChildTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  ZombieChildTest() {
    BrokerOptions impatient = options();
    impatient.job_timeout = impatient.end_timeout = patience;
    broker = Broker::open(std::move(impatient));
  }
  PluginInstance twin(LeaseKind kind) {
    PluginInstance instance =
        broker.create(broker.load(test_plugin("behaviours_twin")), "affine", {0, kind, 0});
    instance.activate(test_sizes);
    return instance;
  }
  float pixel[4] = {0, 1, 2, 3};
};

TEST_P(ZombieChildTest, DISABLED_NobodyWaitsForIt) {
  PluginInstance good = twin(LeaseKind::private_own);
  Chain good_chain(broker, {&good}, test_sizes);
  good_chain.process(pixel, pixel, {});  // what is loaded lazily is loaded
  {
    PluginInstance lingering = active("lingers", GetParam());
    Chain chain(broker, {&lingering}, test_sizes);
    const Clock::time_point begin = Clock::now();
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { chain.process(pixel, pixel, {}); }),
                AllOf(HasSubstr("lingers"), HasSubstr("did not end within 150 ms")));
    EXPECT_EQ(lingering.lease().state, LeaseState::zombie);
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { chain.process(pixel, pixel, {}); }),
                HasSubstr("zombie"));
    good_chain.process(pixel, pixel, {});
    EXPECT_EQ(good.lease().state, LeaseState::ready);
    lingering.deactivate();
    EXPECT_THAT(said("plugin"), Contains(HasSubstr("context lost, guilty, reason 4")));
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { active("affine", GetParam()); }),
                HasSubstr("zombie"))
        << "the tenant is not entered again";
    EXPECT_LT(Clock::now() - begin, kernel_takes / 2);
  }
}

TEST_P(ZombieChildTest, DISABLED_WorkLeftAtDeactivateIsNotWaitedForEither) {
  const Clock::time_point begin = Clock::now();
  {
    PluginInstance lingering = active("lingers", GetParam());
    PluginInstance behind = twin(GetParam());
    Chain chain(broker, {&lingering, &behind}, test_sizes);
    error_text(ErrorKind::context_lost, [&] { chain.process(pixel, pixel, {}); });
    EXPECT_EQ(lingering.lease().state, LeaseState::zombie);
    EXPECT_EQ(behind.lease().state, LeaseState::lost) << "it waits for the zombie, and is innocent";
    behind.deactivate();
    EXPECT_LT(Clock::now() - begin, kernel_takes / 2);
    // An H200's driver loads modules only when the kernels that run have ended.
    behind.activate(test_sizes);
    Chain alone(broker, {&behind}, test_sizes);
    alone.process(pixel, pixel, {});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ZombieChildTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

using Child = std::tuple<const char*, const char*>;
class ZombieTest : public ::testing::TestWithParam<Child> {};

TEST_P(ZombieTest, PassesInAChild) {
  const auto& [test, kind] = GetParam();
  const ChildResult child =
      run_child(std::string("Kinds/ZombieChildTest.DISABLED_") + test + "/" + kind,
                {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(
    Zombies, ZombieTest,
    ::testing::Combine(::testing::Values("NobodyWaitsForIt",
                                         "WorkLeftAtDeactivateIsNotWaitedForEither"),
                       ::testing::Values("shared", "private", "green")),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
    });

}  // namespace
}  // namespace ctxbroker
