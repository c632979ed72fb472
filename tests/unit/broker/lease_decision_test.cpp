// SPDX-License-Identifier: Apache-2.0
#include "context/lease_decision.hpp"

#include <gmock/gmock.h>

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;
using Kind = LeaseKind;

const LeaseChoice shared(Kind::shared), private_own(Kind::private_own), green(Kind::green),
    worker(Kind::worker);
const LeaseOffer all{true, ""};
const LeaseOffer old_driver{false, "this driver offers no green contexts"};

LeaseRequest request(LeaseChoice asked, LeaseChoice wish) {
  LeaseRequest request;
  request.asked = asked;
  request.wish = wish;
  request.wished_by = "plug-in blur";
  return request;
}

TEST(LeaseDecisionTest, HostThenPluginThenGreen) {
  EXPECT_EQ(decide(request(private_own, shared), all).choice, private_own);
  EXPECT_EQ(decide(request({}, private_own), all).choice, private_own);
  EXPECT_EQ(decide(request({}, {}), all).choice, green);
  EXPECT_EQ(decide(request({Kind::green, 16}, {}), all).choice, LeaseChoice(Kind::green, 16));
  EXPECT_THAT(decide(request({Kind::green, 16}, {}), all).reason, HasSubstr("green:16"));
}

TEST(LeaseDecisionTest, LeaseIsSharedWithAReasonWhereGreenIsNotAvailable) {
  for (const LeaseChoice asked : {LeaseChoice(), green}) {
    const LeaseDecision decision = decide(request(asked, {}), old_driver);
    EXPECT_EQ(decision.choice, shared);
    EXPECT_THAT(decision.reason, HasSubstr("this driver offers no green contexts"));
  }
}

TEST(LeaseDecisionTest, AUserOfThePerThreadStreamIsPlacedWhereThereIsOne) {
  LeaseRequest wanted = request(green, {});
  wanted.per_thread_stream = "plug-in blur";
  EXPECT_EQ(decide(wanted, all).choice, shared);
  EXPECT_THAT(decide(wanted, all).reason, HasSubstr("per-thread default stream"));
  wanted.asked = private_own;
  EXPECT_EQ(decide(wanted, all).choice, private_own);
}

TEST(LeaseDecisionTest, AutomaticIsPrivateWithAReasonWhileWorkHangsInThePrimary) {
  const LeaseOffer hung{true, "", "work of tenant hog hangs on device 0"};
  const LeaseDecision decision = decide(request({}, {}), hung);
  EXPECT_EQ(decision.choice, private_own);
  EXPECT_THAT(decision.reason, HasSubstr("private, because work of tenant hog hangs on device 0"));
  LeaseRequest per_thread = request({}, {});
  per_thread.per_thread_stream = "plug-in blur";
  EXPECT_EQ(decide(per_thread, hung).choice, private_own);
  EXPECT_EQ(decide(request(green, {}), hung).choice, green) << "the host has decided";
  EXPECT_EQ(decide(request(shared, {}), hung).choice, shared);
  EXPECT_EQ(decide(request({}, green), hung).choice, green) << "the plug-in has decided";
}

TEST(LeaseDecisionTest, AWorkerIsTakenAsAutoAndSaysSo) {
  const LeaseDecision decision = decide(request({}, worker), all);
  EXPECT_EQ(decision.choice, green);
  EXPECT_THAT(decision.reason, HasSubstr("worker"));
  const LeaseDecision asked = decide(request(worker, {}), all);
  EXPECT_EQ(asked.choice, green);
  EXPECT_THAT(asked.reason, HasSubstr("which a WorkerGraph grants"));
}

TEST(LeaseDecisionTest, TheStrongerOfTwoWishesCounts) {
  EXPECT_EQ(stronger(shared, green), green);
  EXPECT_EQ(stronger(private_own, green), private_own);
  EXPECT_EQ(stronger(LeaseChoice(), shared), shared);
  EXPECT_EQ(stronger({Kind::green, 8}, {Kind::green, 24}), LeaseChoice(Kind::green, 24));
}

TEST(LeaseChoiceTest, LeaseChoicesAreParsedAndPrinted) {
  for (const char* text : {"auto", "shared", "private", "green", "green:16"}) {
    const auto choice = parse_lease_choice(text);
    ASSERT_TRUE(choice) << text;
    EXPECT_EQ(to_string(*choice), text);
  }
  for (const char* text : {"", "Green", "green:", "green:0", "green:-8", "green:8x", "shared:8",
                           "worker", "green:99999999999"}) {
    EXPECT_FALSE(parse_lease_choice(text)) << text;
  }
}

}  // namespace
}  // namespace ctxbroker::detail
