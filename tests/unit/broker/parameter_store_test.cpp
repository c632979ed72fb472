// SPDX-License-Identifier: Apache-2.0
// Values that any thread sets while others read them.
#include "plugin/parameter_store.hpp"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "allocations.hpp"

namespace ctxbroker::detail {
namespace {

ParameterDescription parameter(ParameterType type, const ParameterValue& value) {
  ParameterDescription made;
  made.type = type;
  made.maximum = 100;
  made.default_value = value;
  return made;
}

TEST(ParameterStoreTest, BeginsWithTheDefaults) {
  std::vector<ParameterDescription> all{parameter(ParameterType::floating, 1),
                                        parameter(ParameterType::colour, {1, 2, 3, 4}),
                                        parameter(ParameterType::string, 0)};
  all[2].default_text = "hello";
  ParameterStore store(all);
  EXPECT_EQ(store.count(), 3U);
  EXPECT_EQ(store.get(0), 1);
  EXPECT_EQ(store.get(1), ParameterValue(1, 2, 3, 4));
  EXPECT_EQ(store.text(2), "hello");
  const ctxb_value* const values = store.snapshot();
  EXPECT_EQ(values[0].size, sizeof(ctxb_value));
  EXPECT_EQ(values[1].type, std::uint32_t{CTXB_PARAMETER_COLOUR});
  EXPECT_EQ(values[1].numbers[3], 4);
  EXPECT_STREQ(values[2].text, "hello");
  EXPECT_STREQ(values[0].text, "");
}

TEST(ParameterStoreTest, ASnapshotStandsUntilTheNextOne) {
  const std::vector<ParameterDescription> all{parameter(ParameterType::integer, 1),
                                              parameter(ParameterType::point, {1, 2}),
                                              parameter(ParameterType::file, 0)};
  ParameterStore store(all);
  const ctxb_value* const values = store.snapshot();
  store.set(0, 7);
  store.set(1, {8, 9});
  EXPECT_EQ(values[0].numbers[0], 1);
  EXPECT_EQ(values[1].numbers[1], 2);
  EXPECT_EQ(store.get(1), ParameterValue(8, 9));
  EXPECT_EQ(store.take_snapshot(), values);
  EXPECT_EQ(values[0].numbers[0], 7);
  EXPECT_EQ(values[1].numbers[0], 8);
  EXPECT_EQ(values[1].numbers[1], 9);
  store.set_text(2, "/a.wav");
  EXPECT_STREQ(values[2].text, "/a.wav");
}

TEST(WholeNumbersTest, NumbersSetTogetherAreReadTogether) {
  WholeNumbers numbers;
  for (int i = 0; i < 1000; ++i) {
    const double value = i;
    numbers.set({value, value + 1, value + 2, value + 3});
    EXPECT_EQ(numbers.get(), (WholeNumbers::Numbers{value, value + 1, value + 2, value + 3}));
  }
}

// The four numbers as a host would keep them without WholeNumbers.
class FourNumbers {
 public:
  void set(const WholeNumbers::Numbers& numbers) noexcept {
    for (std::size_t i = 0; i < 4; ++i) numbers_[i] = numbers[i];
  }
  WholeNumbers::Numbers get() const noexcept {
    return {numbers_[0], numbers_[1], numbers_[2], numbers_[3]};
  }

 private:
  std::array<std::atomic<double>, 4> numbers_{};
};

// Four threads set numbers that belong together, and two read them. Returns how often a reader got
// numbers that do not; ends early at the first of them if `until_torn`.
template <typename Numbers>
int count_torn(Numbers& numbers, int rounds, bool until_torn) {
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  const auto on = [&](int i) { return i < rounds && (torn == 0 || !until_torn); };
  for (int writer = 0; writer < 4; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; on(i); ++i) {
        const double value = i * 4 + writer;
        numbers.set({value, -value, 2 * value, value});
      }
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      for (int i = 0; on(i); ++i) {
        const auto [a, b, c, d] = numbers.get();
        if (b != -a || c != 2 * a || d != a) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return torn;
}

TEST(WholeNumbersTest, NoReaderSeesTwoWritersAtOnce) {
  WholeNumbers numbers;
  EXPECT_EQ(count_torn(numbers, 20000, false), 0);
  EXPECT_GE(numbers.get()[0], 19999 * 4) << "the last of one of the writers";
  FourNumbers control;
  EXPECT_GT(count_torn(control, 100'000'000, true), 0) << "the threads do meet";
}

TEST(ParameterStoreTest, AllocatesNothingAfterItWasMade) {
  const std::vector<ParameterDescription> all{parameter(ParameterType::floating, 1),
                                              parameter(ParameterType::colour, {1, 2, 3, 4}),
                                              parameter(ParameterType::point, {1, 2})};
  ParameterStore store(all);
  const std::uint64_t before = test::allocations;
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    const double value = i;
    store.set(0, value);
    store.set(1, {value, value, value, value});
    store.set(2, {value, value});
    if (!all[1].allows({value, value, value, value})) ADD_FAILURE() << i;
    sum += store.take_snapshot()[2].numbers[1] + store.get(1)[3];
  }
  EXPECT_EQ(test::allocations, before);
  EXPECT_EQ(sum, 99 * 100);
  EXPECT_EQ(ParameterStore(all).count(), 3U);
  EXPECT_GT(test::allocations, before) << "they are counted";
}

}  // namespace
}  // namespace ctxbroker::detail
