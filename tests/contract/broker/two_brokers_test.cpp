// SPDX-License-Identifier: Apache-2.0
// Brokers of several libraries in one process: their tenants share the devices.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class TwoBrokersTest : public BrokerTest {
 protected:
  TwoBrokersTest() : second(Broker::open(options())) {}
  static Tenant open(Broker& in, unsigned multiprocessors) {
    return in.open_tenant("tenant", TenantOptions{LeaseChoice{LeaseKind::green, multiprocessors}});
  }
  Broker second;
};

TEST_F(TwoBrokersTest, PartitionsOfTwoBrokersDoNotOverlap) {
  Tenant asks = open(broker, 0);
  asks.run(0, [] {});
  if (asks.lease().granted.kind != LeaseKind::green) GTEST_SKIP() << asks.lease().reason;
  asks.close();
  const auto all = static_cast<unsigned>(broker.devices().at(0).multiprocessors);
  const unsigned most = 3 * all / 4;
  {
    Tenant one = open(broker, most), two = open(second, most);
    one.run(0, [] {});
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { two.run(0, [] {}); }),
                HasSubstr("other partitions have "));
    Tenant small = open(second, all / 8);
    small.run(0, [] {});
    EXPECT_GE(small.lease().granted.multiprocessors, all / 8);
  }
  {
    Tenant two = open(second, most);
    two.run(0, [] {});
    EXPECT_GE(two.lease().granted.multiprocessors, most) << "they are free again";
    broker.close();
    EXPECT_GE(two.lease().granted.multiprocessors, most);
    Tenant third = open(second, most);
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { third.run(0, [] {}); }),
                HasSubstr("multiprocessors are free"));
  }
}

}  // namespace
}  // namespace ctxbroker
