// SPDX-License-Identifier: Apache-2.0
#include "context/hung_work.hpp"

#include <gmock/gmock.h>

#include <future>
#include <vector>

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds limit{100};

class HungWorkTest : public ::testing::Test {
 public:
  ~HungWorkTest() override { family->abandon(); }

 protected:
  // It ends number `number`, and so that a test can wait for it.
  Ending ending(int number, std::uint64_t bytes = 0) {
    return {.tenant = tenant, .what = "device memory", .bytes = bytes, .call = [this, number] {
              const std::lock_guard lock(mutex);
              ended.push_back(number);
              return CUDA_SUCCESS;
            }};
  }
  // Blocks as a driver's call does behind work that hangs.
  Ending blocked(const std::shared_future<void>& work) {
    return {.tenant = tenant, .what = "module", .call = [work] {
              work.wait();
              return CUDA_SUCCESS;
            }};
  }
  void wait_until_idle() const {
    while (!family->idle()) std::this_thread::yield();
  }

  std::mutex mutex;
  std::vector<int> ended;
  std::vector<std::string> said;
  const Recorder recorder{[this](const Record& record) {
    const std::lock_guard lock(mutex);
    said.push_back(record.text);
  }};
  const std::shared_ptr<const TenantIdentity> tenant =
      std::make_shared<const TenantIdentity>(TenantId{7}, "blur", &recorder);
  const std::shared_ptr<HungWork> family = std::make_shared<HungWork>(0, limit);
};

TEST_F(HungWorkTest, EndWithoutHungWorkIsDoneAtOnce) {
  for (const int number : {1, 2, 3}) EXPECT_EQ(family->end(ending(number)), CUDA_SUCCESS);
  EXPECT_THAT(ended, ElementsAre(1, 2, 3));
  EXPECT_FALSE(family->any());
  wait_until_idle();
  EXPECT_THAT(said, IsEmpty());
}

TEST_F(HungWorkTest, EndAnswersTheStatusOfItsCall) {
  EXPECT_EQ(family->end({.tenant = tenant, .call = [] { return CUDA_ERROR_INVALID_VALUE; }}),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HungWorkTest, CallbackIsToldTheStatusOfTheEnd) {
  for (const bool may_wait : {true, false}) {
    std::vector<CUresult> told;
    Ending one{
        .tenant = tenant, .may_wait = may_wait, .call = [] { return CUDA_ERROR_INVALID_VALUE; }};
    one.after = [&](CUresult status) { told.push_back(status); };
    EXPECT_EQ(family->end(std::move(one)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(told, ElementsAre(CUDA_ERROR_INVALID_VALUE)) << "before the call returns";
  }
}

TEST_F(HungWorkTest, KnownHungWorkIsNotWaitedFor) {
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); });
  EXPECT_TRUE(family->any());
  EXPECT_TRUE(HungWork::anywhere());
  std::atomic<int> settled{0};
  const Clock::time_point begin = Clock::now();
  for (const int number : {1, 2}) {
    Ending one = ending(number, 12);
    one.after = [&](CUresult) { ++settled; };
    EXPECT_EQ(family->end(std::move(one)), std::nullopt);
  }
  EXPECT_LT(Clock::now() - begin, limit);
  EXPECT_THAT(ended, IsEmpty());
  const std::vector<PutOff> list = family->put_off();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].tenant_name, "blur");
  EXPECT_EQ(list[0].what, "device memory");
  EXPECT_EQ(list[0].count, 2U);
  EXPECT_EQ(list[0].bytes, 24U);
  EXPECT_THAT(said, ElementsAre(HasSubstr("work that hangs on device 0 ends: 1 x device memory "
                                          "(12 bytes)")))
      << "once for all of a tenant's";
  over = true;
  wait_until_idle();
  EXPECT_THAT(ended, ElementsAre(1, 2)) << "in order, when the work has ended";
  EXPECT_EQ(settled, 2);
  EXPECT_FALSE(family->any());
  EXPECT_FALSE(HungWork::anywhere());
  EXPECT_EQ(family->end(ending(3)), CUDA_SUCCESS) << "as ever";
}

// Nobody knew beforehand: the call itself finds out.
TEST_F(HungWorkTest, CallThatDoesNotReturnIsWaitedForUntilTheLimit) {
  std::promise<void> work;
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(family->end(blocked(work.get_future().share())), std::nullopt);
  EXPECT_GE(Clock::now() - begin, limit);
  EXPECT_TRUE(family->any());
  const Clock::time_point next = Clock::now();
  EXPECT_EQ(family->end(ending(1)), std::nullopt);
  EXPECT_LT(Clock::now() - next, limit) << "it is known by now";
  EXPECT_FALSE(family->is_hung()) << "it may be long work";
  EXPECT_THAT(said, ElementsAre(HasSubstr("work on device 0 ends, which hangs or takes longer")));
  work.set_value();
  wait_until_idle();
  EXPECT_THAT(ended, ElementsAre(1));
  EXPECT_FALSE(family->any());
}

// Long work is no hang: others' waits are not cut short by one that takes longer than the limit.
TEST_F(HungWorkTest, WaitForAllLastsAsLongAsTheWorkUnlessAHangIsKnown) {
  std::promise<void> work;
  const auto wait_for_all = [&, result = work.get_future().share()] {
    return std::async(std::launch::async, [&, result] {
      return family->wait_for_all([result] {
        result.wait();
        return CUDA_SUCCESS;
      });
    });
  };
  auto first = wait_for_all(), second = wait_for_all();
  EXPECT_EQ(first.wait_for(4 * limit), std::future_status::timeout);
  EXPECT_EQ(second.wait_for(milliseconds(0)), std::future_status::timeout);
  EXPECT_EQ(family->end(ending(1)), std::nullopt) << "others are not held up by it";
  EXPECT_TRUE(family->wait_until_clear());
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); });
  EXPECT_EQ(first.get(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(second.get(), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(family->wait_until_clear());
  EXPECT_FALSE(family->wait_for_put_off());
  work.set_value();
  over = true;
  wait_until_idle();
  EXPECT_THAT(ended, ElementsAre(1));
}

TEST_F(HungWorkTest, WaitForPutOffEndsLastsNoLongerThanTheLimit) {
  EXPECT_FALSE(family->wait_for_put_off()) << "there is nothing";
  std::promise<void> work;
  EXPECT_EQ(family->end(blocked(work.get_future().share())), std::nullopt);
  EXPECT_EQ(family->end(ending(1)), std::nullopt);
  auto waiting = std::async(std::launch::async, [&] { return family->wait_for_put_off(); });
  EXPECT_FALSE(waiting.get()) << "no longer than the limit";
  waiting = std::async(std::launch::async, [&] { return family->wait_for_put_off(); });
  EXPECT_EQ(waiting.wait_for(limit / 10), std::future_status::timeout);
  work.set_value();
  EXPECT_TRUE(waiting.get());
  wait_until_idle();
  EXPECT_THAT(ended, ElementsAre(1));
}

TEST_F(HungWorkTest, WaitingCallerIsReleasedWhenAHangBecomesKnown) {
  std::promise<void> work;
  const auto patient = std::make_shared<HungWork>(1, milliseconds(0));  // for ever
  auto waiting = std::async(std::launch::async, [&, result = work.get_future().share()] {
    return patient->end(blocked(result));
  });
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  std::atomic<bool> over{false};
  patient->add([&] { return over.load(); });
  EXPECT_EQ(waiting.get(), std::nullopt);
  work.set_value();
  over = true;
  while (!patient->idle()) std::this_thread::yield();
  patient->abandon();
}

// Whoever owns the family last: what is put off, or nobody but the family's own thread.
TEST_F(HungWorkTest, FamilyWithoutOwnersLastsUntilWhatIsPutOffHasEnded) {
  for (const bool is_kept_by_ending : {true, false}) {
    std::promise<void> work;
    auto owned = std::make_shared<HungWork>(1, limit);
    Ending one = blocked(work.get_future().share());
    if (is_kept_by_ending) one.after = [owned](CUresult) {};
    EXPECT_EQ(owned->end(std::move(one)), std::nullopt);
    const std::weak_ptr<HungWork> left = owned;
    owned.reset();
    EXPECT_FALSE(left.expired());
    work.set_value();
    while (!left.expired()) std::this_thread::yield();
  }
  EXPECT_FALSE(HungWork::anywhere());
}

TEST_F(HungWorkTest, FamilyMayBeUsedAgainAfterARest) {
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 3; ++i) {
    Ending one = ending(i);
    one.call = [&] {
      threads.push_back(std::this_thread::get_id());
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(family->end(std::move(one)), CUDA_SUCCESS);
    std::this_thread::sleep_for(limit);
  }
  EXPECT_THAT(threads, ::testing::Each(threads.front())) << "one thread for all";
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST_F(HungWorkTest, EndThatCannotWaitRunsOnTheCallersThread) {
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  Ending quick{.tenant = tenant, .what = "event", .may_wait = false, .call = [&] {
                 there = std::this_thread::get_id();
                 return CUDA_SUCCESS;
               }};
  EXPECT_EQ(family->end(quick), CUDA_SUCCESS);
  EXPECT_EQ(there, here);
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); });
  EXPECT_EQ(family->end(quick), std::nullopt) << "its context may have to wait";
  over = true;
  wait_until_idle();
  EXPECT_NE(there, here);
}

// Makes a thing as a driver's call does behind work that hangs.
struct Making {
  std::promise<void> work;
  std::atomic<int> performed{0}, undone{0};

  MakeRequest request(const std::shared_future<void>& until) {
    MakeRequest one;
    one.perform = [this, until] {
      until.wait();
      ++performed;
      return CUDA_SUCCESS;
    };
    one.undo = [this] { ++undone; };
    return one;
  }
};

TEST_F(HungWorkTest, MakeAnswersTheStatusOfItsCall) {
  std::thread::id there;
  MakeRequest one;
  one.perform = [&] {
    there = std::this_thread::get_id();
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(family->make(std::move(one)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(there, std::this_thread::get_id()) << "it could have been left behind";
  EXPECT_TRUE(family->idle());
}

TEST_F(HungWorkTest, MakeIsNotEvenTriedBesideWorkThatIsKnownToHang) {
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); }, "glow");
  Making making;
  making.work.set_value();
  const auto until = making.work.get_future().share();
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(family->make(making.request(until)), std::nullopt);
  EXPECT_LT(Clock::now() - begin, limit);
  EXPECT_EQ(family->why_not_made(), "work of tenant glow hangs on device 0");
  over = true;
  wait_until_idle();
  EXPECT_EQ(making.performed, 0);
  EXPECT_EQ(family->make(making.request(until)), CUDA_SUCCESS) << "as ever";
}

// Nobody knew beforehand: the call finds out, and is left behind.
TEST_F(HungWorkTest, MakeThatDoesNotReturnIsLeftBehindAndUndone) {
  Making making;
  const auto until = making.work.get_future().share();
  Clock::time_point begin = Clock::now();
  EXPECT_EQ(family->make(making.request(until)), std::nullopt);
  EXPECT_GE(Clock::now() - begin, limit);
  EXPECT_TRUE(family->any());
  EXPECT_FALSE(family->idle());
  EXPECT_THAT(family->why_not_made(), HasSubstr("has not ended within 100 ms on device 0"));
  begin = Clock::now();
  EXPECT_EQ(family->end(ending(1)), std::nullopt) << "an ending would wait as well";
  EXPECT_LT(Clock::now() - begin, limit);
  begin = Clock::now();
  EXPECT_EQ(family->make(making.request(until)), std::nullopt);
  EXPECT_LT(Clock::now() - begin, 20 * limit);
  making.work.set_value();
  wait_until_idle();
  while (making.undone == 0) std::this_thread::yield();
  EXPECT_EQ(making.performed, 1) << "the second was not begun";
  EXPECT_EQ(making.undone, 1);
  EXPECT_FALSE(family->any());
}

// A compiler, for example, takes long although no work is in the way.
TEST_F(HungWorkTest, MakeMayTakeLongerAfterItsProbe) {
  MakeRequest one;
  one.probe = [] {};
  one.longer = std::chrono::seconds(20);
  one.perform = [] {
    std::this_thread::sleep_for(3 * limit);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(family->make(one), CUDA_SUCCESS);
  std::promise<void> work;
  one.probe = [until = work.get_future().share()] { until.wait(); };
  std::atomic<bool> performed{false};
  one.perform = [&] {
    performed = true;
    return CUDA_SUCCESS;
  };
  one.since = Clock::now();
  EXPECT_EQ(family->make(one), std::nullopt) << "the probe waits for work";
  work.set_value();
  wait_until_idle();
  EXPECT_FALSE(performed) << "nobody waited for it any more";
}

// The driver makes no stream while it loads a module.
TEST_F(HungWorkTest, LightMakingIsDoneBesideOthersButNotBesideALightOneThatIsLeftBehind) {
  EXPECT_FALSE(HungWork::is_anything_in_the_making());
  Making load, stream;
  EXPECT_EQ(family->make(load.request(load.work.get_future().share())), std::nullopt);
  EXPECT_TRUE(HungWork::is_anything_in_the_making());
  MakeRequest light;
  light.is_light = true;
  light.perform = [] { return CUDA_SUCCESS; };
  EXPECT_EQ(family->make(light), CUDA_SUCCESS);
  MakeRequest waiting = stream.request(stream.work.get_future().share());
  waiting.is_light = true;
  EXPECT_EQ(family->make(waiting), std::nullopt);
  light.since = Clock::now();
  EXPECT_EQ(family->make(light), std::nullopt);
  load.work.set_value();
  stream.work.set_value();
  wait_until_idle();
  EXPECT_EQ(stream.undone, 1);
  EXPECT_FALSE(HungWork::is_anything_in_the_making());
}

TEST_F(HungWorkTest, LightMakingIsDoneBesideWorkThatIsKnownToHang) {
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); }, "glow");
  MakeRequest light;
  light.is_light = true;
  light.perform = [] { return CUDA_SUCCESS; };
  EXPECT_EQ(family->make(light), CUDA_SUCCESS);
  over = true;
  wait_until_idle();
}

// The driver ends no stream while it loads a module, and the load may not be late yet.
TEST_F(HungWorkTest, EndThatWaitsForAMakingAloneIsPutOffToo) {
  Making load;
  std::promise<void> loaded;
  const auto patient = std::make_shared<HungWork>(0, std::chrono::seconds(60));
  auto making = std::async(std::launch::async, [&, until = load.work.get_future().share()] {
    return patient->make(load.request(until));
  });
  while (!HungWork::is_anything_in_the_making()) std::this_thread::yield();
  Ending stream = blocked(loaded.get_future().share());
  stream.may_wait = false;
  EXPECT_EQ(family->end(stream), std::nullopt);
  loaded.set_value();
  load.work.set_value();
  EXPECT_EQ(making.get(), CUDA_SUCCESS);
  wait_until_idle();
}

struct Busy final : BusyTenants {
  std::vector<std::string> names;
  std::vector<std::string> busy_in(const HungWork&) override { return names; }
};

TEST_F(HungWorkTest, MakeOnABusyMachineIsRefusedOnlyBesideWorkOfATenant) {
  Busy busy;
  const auto watched = std::make_shared<HungWork>(1, limit, &busy);
  MakeRequest slow;
  slow.perform = [] {
    std::this_thread::sleep_for(3 * limit);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(watched->make(slow), CUDA_SUCCESS);
  busy.names = {"glow", "blur"};
  slow.since = Clock::now();
  EXPECT_EQ(watched->make(slow), std::nullopt);
  EXPECT_EQ(watched->why_not_made(),
            "work of tenants glow and blur has not ended within 100 ms on device 1");
  while (!watched->idle()) std::this_thread::yield();
}

TEST_F(HungWorkTest, MakeIsLeftBehindWhenAHangBecomesKnown) {
  Making making;
  const auto patient = std::make_shared<HungWork>(1, milliseconds(0));  // for ever
  auto waiting = std::async(std::launch::async, [&, until = making.work.get_future().share()] {
    return patient->make(making.request(until));
  });
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  std::atomic<bool> over{false};
  patient->add([&] { return over.load(); });
  EXPECT_EQ(waiting.get(), std::nullopt);
  making.work.set_value();
  over = true;
  while (!patient->idle() || making.undone == 0) std::this_thread::yield();
  patient->abandon();
}

// The driver would begin it at once and make no context before it has ended.
TEST_F(HungWorkTest, EndBehindTheDeviceIsNotBegunWhileWorkHangsInAnotherFamily) {
  const auto first = std::make_shared<HungWork>(0, limit, nullptr, " in a private context");
  const auto second = std::make_shared<HungWork>(0, limit, nullptr, " in a private context");
  const auto elsewhere = std::make_shared<HungWork>(1, limit);
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); }, "glow");
  const auto context = [&](int number) {
    Ending one = ending(number);
    one.what = "context";
    one.is_behind_device = true;
    return one;
  };
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(elsewhere->end(context(1)), CUDA_SUCCESS) << "another device";
  EXPECT_EQ(second->end(ending(2)), CUDA_SUCCESS) << "memory waits for its own family alone";
  EXPECT_EQ(first->end(context(3)), std::nullopt);
  EXPECT_EQ(second->end(context(4)), std::nullopt);
  EXPECT_LT(Clock::now() - begin, limit) << "it is known, and not waited for";
  EXPECT_FALSE(first->idle());
  EXPECT_EQ(first->put_off().size(), 1U);
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("put off until work that hangs elsewhere on "
                                                  "device 0 ends: 1 x context")));
  std::this_thread::sleep_for(milliseconds(60));
  {
    const std::lock_guard lock(mutex);
    EXPECT_THAT(ended, ElementsAre(1, 2));
  }
  over = true;
  while (!first->idle() || !second->idle()) std::this_thread::yield();
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre(1, 2, 3, 4)) << "they do not wait in a ring";
  EXPECT_EQ(first->end(context(5)), CUDA_SUCCESS) << "as ever";
}

TEST_F(HungWorkTest, NobodyWaitsForAFamilyThatIsAbandoned) {
  const auto other = std::make_shared<HungWork>(0, limit);
  const auto hung = std::make_shared<HungWork>(0, limit);
  hung->add([] { return false; });
  Ending one = ending(1);
  one.is_behind_device = true;
  EXPECT_EQ(other->end(one), std::nullopt);
  hung->abandon();
  while (!other->idle()) std::this_thread::yield();
  EXPECT_THAT(ended, ElementsAre(1));
}

// An ending that follows from an earlier one, on the family's own thread.
TEST_F(HungWorkTest, EndBehindTheDeviceIsPutOffOnTheOwnThreadToo) {
  const auto other = std::make_shared<HungWork>(0, limit);
  std::atomic<bool> over{false};
  family->add([&] { return over.load(); });
  std::promise<std::optional<CUresult>> inner;
  Ending outer = ending(1);
  outer.call = [&] {
    Ending one = ending(2);
    one.is_behind_device = true;
    inner.set_value(other->end(one));
    return CUDA_SUCCESS;
  };
  other->end(outer);
  EXPECT_EQ(inner.get_future().get(), std::nullopt);
  {
    const std::lock_guard lock(mutex);
    EXPECT_THAT(ended, IsEmpty());
  }
  over = true;
  while (!other->idle()) std::this_thread::yield();
  EXPECT_THAT(ended, ElementsAre(2));
}

TEST_F(HungWorkTest, ManyThreadsEndTheirThingsAtOnce) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(family->end(ending(thread)), CUDA_SUCCESS);
    });
  }
  threads.clear();
  EXPECT_EQ(ended.size(), 400U);
}

}  // namespace
}  // namespace ctxbroker::detail
