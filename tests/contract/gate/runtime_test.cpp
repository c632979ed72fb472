// SPDX-License-Identifier: Apache-2.0
// NVIDIA's runtime library behind the gate: one copy of it that two tenants share, one that
// outlives its tenant, one whose lease was lost. Each case is a process of its own, because the
// library keeps what it knows of a device for as long as it is loaded. Needs NVIDIA's driver.
#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

struct Case {
  const char* name;
  const char* mode;
  LeaseKind kind;
};

// A tenant whose code knows nothing but the runtime library.
struct Plugin {
  Tenant tenant;
  AdoptedLibrary library;

  Plugin(Broker& broker, const char* name, LeaseKind kind, const std::filesystem::path& file)
      : tenant(broker.open_tenant(name, {LeaseChoice(kind)})), library(tenant.adopt(file)) {}

  template <typename Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(library.symbol(name));
  }
  unsigned long long allocate() {
    return tenant.run(0, [&] { return symbol<allocate_function>(ALLOCATE)(4096); });
  }
  unsigned long long allocate_on_own_thread() const {
    return symbol<allocate_function>(ALLOCATE_ON_OWN_THREAD)(4096);
  }
  int reset() {
    const AttackTarget nothing{};
    return tenant.run(0, [&] { return symbol<attack_function>(ATTACK)("reset", &nothing); });
  }
};

// Another library for the loader, which needs the same libcudart.
std::filesystem::path copy_of(const std::filesystem::path& file) {
  auto copy = std::filesystem::temp_directory_path() /
              ("ctxb_runtime_copy_" + std::to_string(getpid()) + ".so");
  std::filesystem::copy_file(file, copy, std::filesystem::copy_options::overwrite_existing);
  return copy;
}

const Case& chosen();

TEST(Runtime, DISABLED_RuntimeLibrarySharedByTwoTenantsWorksInBoth) {
  Broker broker = Broker::open();
  const auto file = test_library(chosen().mode), copy = copy_of(file);
  Plugin first(broker, "first", chosen().kind, file), second(broker, "second", chosen().kind, copy);
  std::filesystem::remove(copy);
  for (int i = 0; i < 3; ++i) {
    for (Plugin* plugin : {&first, &second}) {
      const auto guarded = plugin->allocate(), own = plugin->allocate_on_own_thread();
      ASSERT_NE(guarded, 0U) << plugin->tenant.name();
      ASSERT_NE(own, 0U) << plugin->tenant.name();
      EXPECT_EQ(context_of(own), context_of(guarded));
      if (chosen().kind == LeaseKind::private_own) {
        EXPECT_EQ(context_of(own), plugin->tenant.lease().context);
      }
    }
  }
  EXPECT_EQ(first.reset(), CUDA_SUCCESS);
  EXPECT_NE(second.allocate(), 0U) << "after the first one's reset";
  EXPECT_NE(second.allocate_on_own_thread(), 0U) << "after the first one's reset";
  EXPECT_NE(first.allocate(), 0U) << "after its own reset";
  first.tenant.close();
  EXPECT_NE(second.allocate(), 0U) << "after the first one's end";
  EXPECT_NE(second.allocate_on_own_thread(), 0U) << "after the first one's end";
}

TEST(Runtime, DISABLED_RuntimeLibraryOutlivesItsTenant) {
  Broker broker = Broker::open();
  for (int life = 0; life < 3; ++life) {
    Plugin plugin(broker, "again", chosen().kind, test_library(chosen().mode));
    EXPECT_NE(plugin.allocate_on_own_thread(), 0U) << life;
    EXPECT_NE(plugin.allocate(), 0U) << life;
  }
}

TEST(Runtime, DISABLED_RuntimeLibraryOutlivesItsBroker) {
  for (int life = 0; life < 3; ++life) {
    Broker broker = Broker::open();
    Plugin plugin(broker, "again", chosen().kind, test_library(chosen().mode));
    EXPECT_NE(plugin.allocate_on_own_thread(), 0U) << life;
    EXPECT_NE(plugin.allocate(), 0U) << life;
  }
}

TEST(Runtime, DISABLED_RuntimeLibraryWorksAfterALossAndAReset) {
  Broker broker = Broker::open();
  Plugin plugin(broker, "losing", chosen().kind, test_library(chosen().mode));
  ASSERT_NE(plugin.allocate(), 0U);
  ASSERT_TRUE(broker.force_loss(plugin.tenant.id(), 0, "a test"));
  plugin.reset();
  EXPECT_NE(plugin.allocate(), 0U);
  EXPECT_NE(plugin.allocate_on_own_thread(), 0U);
  ASSERT_TRUE(broker.force_loss(plugin.tenant.id(), 0, "a test"));
  EXPECT_NE(plugin.allocate(), 0U) << "without a reset";
}

// In a private lease the runtime library refuses flags by itself: it compares what is current with
// the primary. The driver takes them.
TEST(Runtime, DISABLED_RuntimeLibrarySetsFlags) {
  Broker broker = Broker::open();
  Plugin plugin(broker, "flags", chosen().kind, test_library(chosen().mode));
  ASSERT_NE(plugin.allocate(), 0U);
  constexpr int incompatible_context = 49;  // cudaErrorIncompatibleDriverContext
  const bool is_private = chosen().kind == LeaseKind::private_own;
  const AttackTarget nothing{};
  plugin.tenant.run(0, [&] {
    EXPECT_EQ(plugin.symbol<attack_function>(ATTACK)("set_flags", &nothing),
              is_private ? incompatible_context : 0);
    unsigned flags = 0;
    EXPECT_EQ(driver_call("cuCtxSetFlags", static_cast<unsigned>(CU_CTX_SCHED_YIELD)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags & CU_CTX_SCHED_MASK, static_cast<unsigned>(CU_CTX_SCHED_YIELD));
  });
  EXPECT_NE(plugin.allocate(), 0U) << "the library works as before";
}

constexpr Case cases[] = {
    {"RuntimeLibrarySharedByTwoTenantsWorksInBoth", "attacks_runtime_shared", LeaseKind::shared},
    {"RuntimeLibrarySharedByTwoTenantsWorksInBoth", "attacks_runtime_shared",
     LeaseKind::private_own},
    {"RuntimeLibrarySharedByTwoTenantsWorksInBoth", "attacks_runtime_shared", LeaseKind::green},
    {"RuntimeLibraryOutlivesItsTenant", "attacks_runtime_static", LeaseKind::shared},
    {"RuntimeLibraryOutlivesItsTenant", "attacks_runtime_static", LeaseKind::private_own},
    {"RuntimeLibraryOutlivesItsTenant", "attacks_runtime_static", LeaseKind::green},
    {"RuntimeLibraryOutlivesItsBroker", "attacks_runtime_static", LeaseKind::shared},
    {"RuntimeLibraryOutlivesItsBroker", "attacks_runtime_static", LeaseKind::private_own},
    {"RuntimeLibraryOutlivesItsBroker", "attacks_runtime_static", LeaseKind::green},
    {"RuntimeLibraryWorksAfterALossAndAReset", "attacks_runtime_static", LeaseKind::private_own},
    {"RuntimeLibraryWorksAfterALossAndAReset", "attacks_runtime_static", LeaseKind::green},
    {"RuntimeLibrarySetsFlags", "attacks_runtime_static", LeaseKind::shared},
    {"RuntimeLibrarySetsFlags", "attacks_runtime_static", LeaseKind::private_own},
    {"RuntimeLibrarySetsFlags", "attacks_runtime_static", LeaseKind::green},
};

const Case& chosen() {
  const char* text = std::getenv("CTXB_RUNTIME_CASE");  // NOLINT(concurrency-mt-unsafe)
  return cases[text != nullptr ? std::atoi(text) : 0];
}

class RuntimeTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RuntimeTest, ChildTestPasses) {
  if (const auto why = why_no_runtime_library(); !why.empty()) GTEST_SKIP() << why;
  const ChildResult child = run_child(std::string("Runtime.DISABLED_") + cases[GetParam()].name,
                                      {{"CTXB_RUNTIME_CASE", std::to_string(GetParam())}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, RuntimeTest, ::testing::Range(std::size_t{0}, std::size(cases)),
                         [](const auto& one) {
                           const Case& which = cases[one.param];
                           return std::string(which.name) + "_" +
                                  (which.kind == LeaseKind::private_own ? "private"
                                                                        : to_string(which.kind));
                         });

}  // namespace
}  // namespace ctxbroker
