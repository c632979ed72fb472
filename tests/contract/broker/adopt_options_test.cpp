// SPDX-License-Identifier: Apache-2.0
// The ways in which a tenant's library is loaded, in C++ and in C: when its functions are resolved,
// and who sees its symbols. Libraries leave with their tenant, so that each test finds them new.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <string>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"
#include "ctxbroker/tenant.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int answer_of(void* function) {
  return reinterpret_cast<int (*)()>(function)();
}
bool everybody_sees(const char* symbol) {
  return dlsym(RTLD_DEFAULT, symbol) != nullptr;
}

class AdoptOptionsTest : public BrokerTest {
 protected:
  Tenant open() {
    TenantOptions options;
    options.unload_at_close = true;
    return broker.open_tenant("loads", options);
  }
  static std::string refusal(Tenant& tenant, const std::string& library,
                             const AdoptOptions& options = {}) {
    return error_text(ErrorKind::plugin_load,
                      [&] { static_cast<void>(tenant.adopt(test_plugin(library), options)); });
  }
};

TEST_F(AdoptOptionsTest, LibraryWithAMissingFunctionIsAdoptedLazilyAlone) {
  Tenant tenant = open();
  const auto loaders_reason =
      AllOf(HasSubstr("misses_function.so"), HasSubstr("undefined symbol: ctxb_test_missing"));
  EXPECT_THAT(refusal(tenant, "misses_function"), loaders_reason);
  EXPECT_THAT(refusal(tenant, "misses_function", {.lazy = false, .global = true}), loaders_reason);
  EXPECT_FALSE(is_mapped(test_plugin("misses_function")));
  const AdoptedLibrary library = tenant.adopt(test_plugin("misses_function"), {.lazy = true});
  EXPECT_NE(library.symbol("ctxb_test_needs"), nullptr);
  EXPECT_EQ(answer_of(library.symbol("ctxb_test_needs_nothing")), 3);
}

TEST_F(AdoptOptionsTest, LaterLibraryFindsTheSymbolsOfAGlobalOneAlone) {
  ASSERT_FALSE(everybody_sees("ctxb_test_given")) << "an earlier test has left it";
  Tenant tenant = open();
  const AdoptedLibrary local = tenant.adopt(test_plugin("gives_function"));
  EXPECT_EQ(answer_of(local.symbol("ctxb_test_given")), 7);
  EXPECT_FALSE(everybody_sees("ctxb_test_given"));
  EXPECT_THAT(refusal(tenant, "needs_function"), HasSubstr("undefined symbol: ctxb_test_given"));
  const AdoptedLibrary global = tenant.adopt(test_plugin("gives_function"), {.global = true});
  EXPECT_TRUE(everybody_sees("ctxb_test_given"));
  const AdoptedLibrary needs = tenant.adopt(test_plugin("needs_function"));
  EXPECT_EQ(answer_of(needs.symbol("ctxb_test_needs")), 7);
}

class CAdoptOptionsTest : public ::testing::Test {
 protected:
  CAdoptOptionsTest() {
    ctxb_broker_options of_broker{};
    of_broker.size = sizeof of_broker;
    EXPECT_EQ(ctxb_broker_open(&of_broker, &broker), CTXB_OK) << ctxb_last_error();
    ctxb_tenant_options of_tenant{};
    of_tenant.size = sizeof of_tenant;
    of_tenant.unload_at_close = 1;
    EXPECT_EQ(ctxb_tenant_open(broker, "loads", &of_tenant, &tenant), CTXB_OK) << ctxb_last_error();
  }
  ~CAdoptOptionsTest() override {
    EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  }
  // Null: it was refused, and ctxb_last_error says why.
  ctxb_library* adopt(const std::string& library, std::uint32_t flags) {
    ctxb_library* adopted = nullptr;
    const ctxb_status status =
        ctxb_tenant_adopt_with(tenant, test_plugin(library).c_str(), flags, &adopted);
    EXPECT_EQ(status, adopted != nullptr ? CTXB_OK : CTXB_ERROR);
    return adopted;
  }
  ctxb_broker* broker = nullptr;
  ctxb_tenant* tenant = nullptr;
};

TEST_F(CAdoptOptionsTest, LibraryWithAMissingFunctionIsAdoptedLazilyAlone) {
  for (const std::uint32_t flags : {0U, std::uint32_t{CTXB_ADOPT_GLOBAL}}) {
    EXPECT_EQ(adopt("misses_function", flags), nullptr);
    EXPECT_THAT(ctxb_last_error(), HasSubstr("undefined symbol: ctxb_test_missing"));
  }
  ctxb_library* const library = adopt("misses_function", CTXB_ADOPT_LAZY);
  ASSERT_NE(library, nullptr) << ctxb_last_error();
  EXPECT_EQ(answer_of(ctxb_library_symbol(library, "ctxb_test_needs_nothing")), 3);
}

TEST_F(CAdoptOptionsTest, LaterLibraryFindsTheSymbolsOfAGlobalOneAlone) {
  ASSERT_FALSE(everybody_sees("ctxb_test_given")) << "an earlier test has left it";
  ASSERT_NE(adopt("gives_function", 0), nullptr) << ctxb_last_error();
  EXPECT_EQ(adopt("needs_function", 0), nullptr);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("undefined symbol: ctxb_test_given"));
  ASSERT_NE(adopt("gives_function", CTXB_ADOPT_GLOBAL), nullptr) << ctxb_last_error();
  ctxb_library* const needs = adopt("needs_function", 0);
  ASSERT_NE(needs, nullptr) << ctxb_last_error();
  EXPECT_EQ(answer_of(ctxb_library_symbol(needs, "ctxb_test_needs")), 7);
}

TEST_F(CAdoptOptionsTest, UnknownFlagIsRefused) {
  ctxb_library* library = nullptr;
  EXPECT_EQ(ctxb_tenant_adopt_with(tenant, test_plugin("gives_function").c_str(), 4, &library),
            CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(library, nullptr);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("CTXB_ADOPT_"));
}

}  // namespace
}  // namespace ctxbroker
