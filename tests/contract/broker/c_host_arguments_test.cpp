// SPDX-License-Identifier: Apache-2.0
// host.h: what a caller can get wrong.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstring>

#include "ctxbroker/host.h"
#include "support/driver_by_name.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class CHostArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
  }
  void TearDown() override { EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK); }

  ctxb_tenant* open() {
    ctxb_tenant_options options{};
    options.size = sizeof options;
    options.lease = CTXB_LEASE_PRIVATE;
    ctxb_tenant* tenant = nullptr;
    EXPECT_EQ(ctxb_tenant_open(broker, "x", &options, &tenant), CTXB_OK) << ctxb_last_error();
    return tenant;
  }

  ctxb_broker* broker = nullptr;
};

// The second call once ended the guard that had taken over the first one's frame.
TEST_F(CHostArgumentsTest, GuardThatIsLeftTwiceLeavesTheNextGuardAlone) {
  ctxb_tenant* const one = open();
  ctxb_tenant* const other = open();
  ctxb_guard first, second;
  ASSERT_EQ(ctxb_tenant_enter(one, 0, "first", &first), CTXB_OK);
  ctxb_guard_leave(&first);
  ASSERT_EQ(ctxb_tenant_enter(other, 0, "second", &second), CTXB_OK);
  const CUcontext inside = current();
  for (int times = 0; times < 3; ++times) ctxb_guard_leave(&first);
  EXPECT_EQ(current(), inside);
  ctxb_guard_leave(&second);
  ctxb_guard_leave(&second);
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(ctxb_tenant_close(one), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_close(other), CTXB_OK) << ctxb_last_error();
}

TEST_F(CHostArgumentsTest, GuardThatCouldNotBeEnteredIsLeftWithoutAnEffect) {
  ctxb_tenant* const tenant = open();
  ctxb_guard guard;
  std::memset(&guard, 0x5A, sizeof guard);
  EXPECT_EQ(ctxb_tenant_enter(nullptr, 0, "x", &guard), CTXB_ERROR_INVALID_ARGUMENT);
  ctxb_guard_leave(&guard);
  std::memset(&guard, 0x5A, sizeof guard);
  EXPECT_EQ(ctxb_tenant_enter(tenant, 99, "x", &guard), CTXB_ERROR_UNAVAILABLE);
  ctxb_guard_leave(&guard);
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << ctxb_last_error();
}

// C++ code can be behind the callbacks.
TEST_F(CHostArgumentsTest, CallbackThatThrowsAnythingIsAnError) {
  ctxb_tenant_options options{};
  options.size = sizeof options;
  options.on_loss = [](void*, const ctxb_lease_loss*) { throw 5; };
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_tenant_open(broker, "x", &options, &tenant), CTXB_OK) << ctxb_last_error();
  ctxb_lease_info info{};
  info.size = sizeof info;
  ASSERT_EQ(ctxb_tenant_lease(tenant, 0, &info), CTXB_OK);
  ASSERT_EQ(ctxb_tenant_force_loss(tenant, 0, "a test"), CTXB_OK);
  EXPECT_EQ(ctxb_broker_poll(broker), CTXB_ERROR);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("a callback threw"));
  const auto throws = [](void*, const char*, uint64_t) -> ctxb_status { throw 7; };
  EXPECT_EQ(ctxb_broker_write_metrics(broker, throws, nullptr), CTXB_ERROR);
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

// What could be taken for a mistake is one: nothing is guessed, and nothing is left out.
TEST_F(CHostArgumentsTest, NoBadArgumentSucceeds) {
  const auto refused = [&](auto change, const char* why) {
    ctxb_tenant_options options{};
    options.size = sizeof options;
    change(options);
    ctxb_tenant* tenant = nullptr;
    EXPECT_EQ(ctxb_tenant_open(broker, "x", &options, &tenant), CTXB_ERROR_INVALID_ARGUMENT) << why;
    EXPECT_EQ(tenant, nullptr);
    EXPECT_THAT(ctxb_last_error(), HasSubstr(why));
  };
  refused([](auto& options) { options.lease = 99; }, "lease 99");
  refused([](auto& options) { options.multiprocessors = 8; }, "only CTXB_LEASE_GREEN");
  refused([](auto& options) { options.per_thread_streams = 2; }, "per_thread_streams is 2");
  refused([](auto& options) { options.unload_at_close = 2; }, "unload_at_close is 2");
  refused([](auto& options) { options.memory = 3; }, "CTXB_MEMORY_AUTO, _DRIVER or _POOL");
  for (const std::size_t size :
       {std::size_t{3}, sizeof(ctxb_tenant_options) - 2, 4 * sizeof(ctxb_tenant_options) + 4}) {
    refused([&](auto& options) { options.size = static_cast<uint32_t>(size); },
            "sizeof(ctxb_tenant_options)");
  }
  // A later version's member, which this one cannot do anything for.
  struct {
    ctxb_tenant_options options;
    uint64_t later;
  } longer{};
  longer.options.size = sizeof longer;
  ctxb_tenant* tenant = nullptr;
  EXPECT_EQ(ctxb_tenant_open(broker, "x", &longer.options, &tenant), CTXB_OK) << "it is 0";
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
  longer.later = 1;
  EXPECT_EQ(ctxb_tenant_open(broker, "x", &longer.options, &tenant), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("does not know"));
  ctxb_broker_options without{};
  without.size = sizeof without;
  without.without_gate = 2;
  ctxb_broker* other = nullptr;
  EXPECT_EQ(ctxb_broker_open(&without, &other), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(other, nullptr);

  ASSERT_EQ(ctxb_tenant_open(broker, "x", nullptr, &tenant), CTXB_OK);
  uint64_t things = 7, bytes = 7;
  EXPECT_EQ(ctxb_tenant_held(tenant, "streams", &things, &bytes), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("\"streams\" is no kind of thing; there are "));
  EXPECT_THAT(ctxb_last_error(), HasSubstr(", stream, "));
  EXPECT_EQ(things + bytes, 0U);
  EXPECT_EQ(ctxb_tenant_held(tenant, "primary context", &things, nullptr), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_held(tenant, "stream", nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_guarded_calls(tenant, "cuMemAlloc_v3"), 0U);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("\"cuMemAlloc_v3\" is no guarded function"));
  EXPECT_EQ(ctxb_tenant_destroy_stream(tenant, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_library_symbol(nullptr, "x"), nullptr);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("library or name is null"));
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

}  // namespace
}  // namespace ctxbroker
