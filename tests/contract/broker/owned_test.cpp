// SPDX-License-Identifier: Apache-2.0
// DeviceMemory and Stream: what a tenant holds, with an owner.
#include <gmock/gmock.h>

#include <optional>
#include <utility>

#include "broker_fixture.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/stream.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class OwnedTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const char* name = "filter") {
    return broker.open_tenant(name, {LeaseChoice(GetParam())});
  }
  std::uint64_t streams_of(const Tenant& tenant) const {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.id == tenant.id() && !one.leases.empty()) return one.leases[0].streams;
    }
    return 0;
  }
};

TEST_P(OwnedTest, MemoryIsGivenBackAtTheEndOfItsOwner) {
  Tenant tenant = open();
  {
    const DeviceMemory memory(tenant, 4096);
    EXPECT_NE(memory.address(), 0u);
    EXPECT_EQ(memory.bytes(), 4096u);
    EXPECT_TRUE(memory);
    EXPECT_EQ(tenant.memory_bytes(), 4096u);
  }
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  // The control: memory without an owner stays.
  static_cast<void>(tenant.allocate(4096));
  EXPECT_EQ(tenant.memory_bytes(), 4096u);
}

TEST_P(OwnedTest, AStreamIsDestroyedAtTheEndOfItsOwner) {
  Tenant tenant = open();
  {
    const Stream stream(tenant);
    EXPECT_NE(stream.get(), nullptr);
    EXPECT_TRUE(stream);
    EXPECT_EQ(streams_of(tenant), 1u);
  }
  EXPECT_EQ(streams_of(tenant), 0u);
  static_cast<void>(tenant.create_stream());
  EXPECT_EQ(streams_of(tenant), 1u);
}

TEST_P(OwnedTest, MovedOwnerHandsOverItsMemoryOrStream) {
  Tenant tenant = open();
  DeviceMemory one(tenant, 4096), two(tenant, 8192);
  const std::uint64_t address = one.address();
  two = std::move(one);
  EXPECT_EQ(two.address(), address);
  EXPECT_FALSE(one);  // NOLINT(bugprone-use-after-move): what it then is, is the point
  EXPECT_EQ(one.bytes(), 0u);
  EXPECT_EQ(tenant.memory_bytes(), 4096u) << "what it had before is given back";
  const DeviceMemory three(std::move(two));
  EXPECT_EQ(three.address(), address);
  EXPECT_EQ(tenant.memory_bytes(), 4096u);
  Stream first(tenant), second(tenant);
  CUstream const handle = first.get();
  second = std::move(first);
  EXPECT_EQ(second.get(), handle);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(streams_of(tenant), 1u);
}

TEST_P(OwnedTest, DetachedMemoryAndStreamsStayWithTheTenant) {
  Tenant tenant = open();
  std::uint64_t address = 0;
  CUstream stream = nullptr;
  {
    DeviceMemory memory(tenant, 4096);
    Stream owned(tenant);
    address = memory.detach();
    stream = owned.detach();
    EXPECT_FALSE(memory);
    EXPECT_FALSE(owned);
  }
  EXPECT_EQ(tenant.memory_bytes(), 4096u);
  EXPECT_EQ(streams_of(tenant), 1u);
  tenant.release(address);
  tenant.destroy_stream(stream);
}

TEST_P(OwnedTest, OwnersOutliveTheirTenantAndDoNothingThen) {
  DeviceMemory memory;
  Stream stream;
  {
    Tenant tenant = open();
    memory = DeviceMemory(tenant, 4096);
    stream = Stream(tenant);
    tenant.close();
    EXPECT_EQ(tenant.memory_bytes(), 0u) << "close has given it back";
    memory.reset();
  }
  {
    Tenant tenant = open();
    memory = DeviceMemory(tenant, 4096);
  }
  // Another tenant that gets the same addresses keeps what it has.
  Tenant other = open("other");
  const DeviceMemory kept(other, 4096);
  const Stream used(other);
  memory.reset();
  stream.reset();
  EXPECT_EQ(other.memory_bytes(), 4096u);
  EXPECT_EQ(streams_of(other), 1u);
  EXPECT_THAT(said("tenant"), ::testing::IsEmpty()) << "nothing is wrong with that";
}

TEST_P(OwnedTest, OwnersOutliveTheBroker) {
  std::optional<Broker> second(Broker::open(options()));
  std::optional<Tenant> tenant(second->open_tenant("filter", {LeaseChoice(GetParam())}));
  DeviceMemory memory(*tenant, 4096);
  Stream stream(*tenant);
  tenant.reset();
  second->close();
  second.reset();
  memory.reset();
  stream.reset();
  EXPECT_FALSE(memory);
  EXPECT_FALSE(stream);
}

TEST_P(OwnedTest, AfterALossTheOwnersEndInPeace) {
  Tenant tenant = open();
  DeviceMemory memory(tenant, 4096);
  Stream stream(tenant);
  broker.force_loss(tenant.id(), 0, "a test");
  memory.reset();
  stream.reset();
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  memory = DeviceMemory(tenant, 8192);
  EXPECT_EQ(tenant.memory_bytes(), 8192u) << "in the next generation";
}

TEST_P(OwnedTest, FailedAllocationOrStreamIsAnErrorAndOwnsNothing) {
  Tenant tenant = open();
  EXPECT_THAT(
      error_text(ErrorKind::invalid_argument, [&] { static_cast<void>(DeviceMemory(tenant, 0)); }),
      HasSubstr("bytes is 0"));
  error_text(ErrorKind::no_device, [&] { static_cast<void>(Stream(tenant, 99)); });
  tenant.close();
  error_text(ErrorKind::wrong_state, [&] { static_cast<void>(DeviceMemory(tenant, 64)); });
  error_text(ErrorKind::wrong_state, [&] { static_cast<void>(Stream(tenant)); });
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnedTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace ctxbroker
