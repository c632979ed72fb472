// SPDX-License-Identifier: Apache-2.0
#include "process/own_thread.hpp"

#include <gtest/gtest.h>

#include <cfenv>

namespace ctxbroker::detail {
namespace {

struct Seen {
  int rounding = -1;
  bool takes_signals = false, reports_faults = false;

  void look() {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    rounding = std::fegetround();
    takes_signals = sigismember(&mask, SIGTERM) == 0;
    reports_faults = sigismember(&mask, SIGSEGV) == 0;
  }
};

// Looks on the thread that `start` starts, in a call that rounds up and blocks `blocked`.
template <typename Start>
Seen seen_by(Start&& start, const sigset_t& blocked) {
  Seen seen;
  sigset_t before;
  std::fesetround(FE_UPWARD);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread thread = start([&seen] { seen.look(); });
  thread.join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::fesetround(FE_TONEAREST);
  return seen;
}

TEST(OwnThreadTest, ThreadStartedInAPluginsCallInheritsNothing) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  for (const sigset_t* const blocked : {&none, &all}) {
    const Seen seen = seen_by([](const auto& look) { return start_own_thread(look); }, *blocked);
    EXPECT_EQ(seen.rounding, FE_TONEAREST);
    EXPECT_FALSE(seen.takes_signals);
    EXPECT_TRUE(seen.reports_faults);
  }
  const Seen bare = seen_by([](const auto& look) { return std::thread(look); }, all);
  EXPECT_EQ(bare.rounding, FE_UPWARD) << "the control";
  EXPECT_FALSE(bare.reports_faults) << "the control";
}

TEST(OwnThreadTest, ThreadForAPluginsCodeTakesSignals) {
  sigset_t none;
  sigemptyset(&none);
  const Seen seen =
      seen_by([](const auto& look) { return start_own_thread(look, Signals::inherited); }, none);
  EXPECT_EQ(seen.rounding, FE_TONEAREST);
  EXPECT_TRUE(seen.takes_signals);
}

}  // namespace
}  // namespace ctxbroker::detail
