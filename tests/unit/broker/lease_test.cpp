#include "context/lease.hpp"

#include <gmock/gmock.h>

#include "context/lease_table.hpp"
#include "ctxbroker/error.hpp"
#include "fake_driver.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LeaseTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tenant> make_tenant() {
    return std::make_shared<const Tenant>(Tenant{next_tenant_id(), "blur", &recorder});
  }
  LeaseRequest ask(LeaseKind kind) const { return {0, kind, LeaseKind::automatic, nullptr}; }

  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
  Recorder recorder;
  LeaseTable leases;
};

TEST(LeaseDecisionTest, HostThenPluginThenShared) {
  using Kind = LeaseKind;
  EXPECT_EQ(decide({0, Kind::private_own, Kind::shared, nullptr}).kind, Kind::private_own);
  EXPECT_EQ(decide({0, Kind::automatic, Kind::private_own, nullptr}).kind, Kind::private_own);
  EXPECT_EQ(decide({0, Kind::automatic, Kind::automatic, nullptr}).kind, Kind::shared);
  const LeaseDecision unmet = decide({0, Kind::automatic, Kind::automatic, "green"});
  EXPECT_EQ(unmet.kind, Kind::shared);
  EXPECT_THAT(unmet.reason, HasSubstr("green"));
}

TEST_F(LeaseTest, SharedRetainsAndReleasesThePrimary) {
  auto lease = leases.get(driver, make_tenant(), ask(LeaseKind::shared));
  EXPECT_EQ(books.primary_retains, 1);
  EXPECT_EQ(lease->info().granted, LeaseKind::shared);
  lease.reset();
  EXPECT_EQ(books.primary_retains, 0);
}

TEST_F(LeaseTest, PrivateMakesAndEndsAContextAndLeavesTheThreadAlone) {
  driver.table.ctx_push(fake_context(8));
  auto lease = leases.get(driver, make_tenant(), ask(LeaseKind::private_own));
  EXPECT_EQ(books.contexts.size(), 1u);
  EXPECT_THAT(books.stack, testing::ElementsAre(fake_context(8)));
  lease.reset();
  EXPECT_THAT(books.contexts, IsEmpty());
  EXPECT_THAT(books.stack, testing::ElementsAre(fake_context(8)));
}

TEST_F(LeaseTest, ATenantsInstancesShareALeaseAndTenantsDoNot) {
  const auto one = make_tenant(), other = make_tenant();
  const auto a = leases.get(driver, one, ask(LeaseKind::private_own));
  const auto b = leases.get(driver, one, ask(LeaseKind::private_own));
  const auto c = leases.get(driver, other, ask(LeaseKind::private_own));
  EXPECT_EQ(a, b);
  EXPECT_NE(a->info().context, c->info().context);
}

TEST_F(LeaseTest, EveryLifeHasAGenerationOfItsOwn) {
  const auto tenant = make_tenant();
  const auto first = leases.get(driver, tenant, ask(LeaseKind::shared))->info();
  const auto second = leases.get(driver, tenant, ask(LeaseKind::shared))->info();
  EXPECT_EQ(first.context, second.context) << "the driver gives the same value again";
  EXPECT_GT(second.generation, first.generation);
}

TEST_F(LeaseTest, ALostLeaseIsNotGivenOutAgain) {
  const auto tenant = make_tenant();
  const auto lost = leases.get(driver, tenant, ask(LeaseKind::shared));
  EXPECT_EQ(lost->note(CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(lost->lost());
  lost->note(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(lost->lost());
  const auto renewed = leases.get(driver, tenant, ask(LeaseKind::shared));
  EXPECT_GT(renewed->info().generation, lost->info().generation);
}

TEST_F(LeaseTest, AnAbsentDeviceIsNamed) {
  LeaseRequest request = ask(LeaseKind::shared);
  request.device = 3;
  try {
    leases.get(driver, make_tenant(), request);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_THAT(error.what(), HasSubstr("no device 3; the driver has device 0 only"));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
