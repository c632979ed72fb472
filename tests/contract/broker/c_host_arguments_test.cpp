// SPDX-License-Identifier: Apache-2.0
// host.h: what a caller can get wrong.
#include <gmock/gmock.h>

#include <cstddef>

#include "ctxbroker/host.h"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class CHostArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
  }
  void TearDown() override { EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK); }

  ctxb_broker* broker = nullptr;
};

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
  refused([](auto& options) { options.reserved = 1; }, "reserved is not 0");
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
