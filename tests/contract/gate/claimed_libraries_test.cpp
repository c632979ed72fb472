// SPDX-License-Identifier: Apache-2.0
// Libraries that patterns of the policy give to tenants. The test opens them itself and adopts
// none, as a program does that knows nothing of tenants.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "gate_fixture.hpp"
#include "hosts_library.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* owner = "com.example.owner";
constexpr const char* other = "com.example.other";

class ClaimedLibrariesTest : public GateTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (broker.gate().mode == GateMode::none) GTEST_SKIP() << "there is no gate";
  }
  // The broker's tenants get the leases that the test is about.
  void open_with(std::vector<LibraryPattern> patterns) {
    BrokerOptions with = options();
    with.policy.libraries = std::move(patterns);
    with.policy.for_all.lease = LeaseChoice(GetParam());
    broker = Broker::open(std::move(with));
  }
  static std::string in_folder_of(const Copy& file) {
    return file.path().parent_path().string() + "/*";
  }
  std::optional<TenantMetrics> metrics_of(const std::string& tenant) {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == tenant) return one;
    }
    return std::nullopt;
  }
  std::uint64_t strikes(const std::string& tenant) { return metrics_of(tenant)->strikes; }
  // Memory of the host itself, in the primary context.
  static CUdeviceptr memory_of_the_host() {
    CUcontext primary = nullptr;
    CUdeviceptr address = 0;
    check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
    check_driver_call("cuCtxPushCurrent_v2", primary);
    check_driver_call("cuMemAlloc_v2", &address, std::size_t{4096});
    check_driver_call("cuCtxPopCurrent_v2", &primary);
    return address;
  }
  static bool is_allocated(CUdeviceptr address) {
    CUcontext primary = nullptr;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
    check_driver_call("cuCtxPushCurrent_v2", primary);
    const CUresult status = driver_call("cuMemGetAddressRange_v2", &base, &bytes, address);
    check_driver_call("cuCtxPopCurrent_v2", &primary);
    check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
    return status == CUDA_SUCCESS;
  }
  static void give_back(CUdeviceptr address) {
    CUcontext primary = nullptr;
    check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
    check_driver_call("cuCtxPushCurrent_v2", primary);
    driver_call("cuMemFree_v2", address);
    check_driver_call("cuCtxPopCurrent_v2", &primary);
    check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
    check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
  }
};

TEST_P(ClaimedLibrariesTest, LibraryIsTheTenantsFromItsFirstCall) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  EXPECT_THAT(broker.metrics().unmatched_patterns, ElementsAre(in_folder_of(file)));
  const HostsLibrary library(file.path());
  const CUdeviceptr address = library.allocate(4096);
  EXPECT_EQ(held_bytes(owner), 4096U);
  EXPECT_NE(library.allocate_on_own_thread(4096), 0U);
  EXPECT_EQ(held_bytes(owner), 8192U) << "on a thread of the library's own";
  const auto metrics = metrics_of(owner);
  ASSERT_TRUE(metrics && metrics->leases.size() == 1);
  EXPECT_EQ(metrics->leases[0].granted.kind, GetParam());
  Tenant its = broker.open_tenant(owner);
  EXPECT_EQ(context_of(address), context_of(its.allocate(64))) << "it lies in the tenant's lease";
  EXPECT_EQ(metrics->strikes, 0U);
  const auto libraries = broker.metrics().libraries;
  ASSERT_EQ(libraries.size(), 1U);
  EXPECT_EQ(libraries[0].path, file.path().string());
  EXPECT_EQ(libraries[0].tenant_name, owner);
  EXPECT_EQ(libraries[0].pattern, in_folder_of(file));
  EXPECT_THAT(broker.metrics().unmatched_patterns, IsEmpty());
  EXPECT_THAT(to_json(broker.metrics()),
              AllOf(HasSubstr(file.path().string()), HasSubstr("unmatched_patterns")));
  EXPECT_THAT(said(),
              Contains(AllOf(HasSubstr(file.path().string()), HasSubstr("by the pattern"))));
}

// The same library once as the host's, and once as a tenant's.
TEST_P(ClaimedLibrariesTest, LibraryCannotFreeTheHostsMemory) {
  const Copy file("attacks_dlsym");
  AttackTarget target{};
  {
    const HostsLibrary library(file.path());
    target.memory = memory_of_the_host();
    library.attack("free_memory", target);
    EXPECT_FALSE(is_allocated(target.memory)) << "the control: without a pattern it is gone";
    give_back(target.memory);
  }
  open_with({{in_folder_of(file), owner}});
  const HostsLibrary library(file.path());
  target.memory = memory_of_the_host();
  library.attack("free_memory", target);
  EXPECT_TRUE(is_allocated(target.memory));
  EXPECT_EQ(strikes(owner), 1U);
  give_back(target.memory);
}

TEST_P(ClaimedLibrariesTest, NeighboursResetIsAbsorbed) {
  const Copy mine("attacks_dlsym"), resetting("attacks_dlsym");
  open_with({{in_folder_of(mine), owner}, {in_folder_of(resetting), other}});
  const HostsLibrary library(mine.path()), neighbour(resetting.path());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(neighbour.attack("reset_v2", {}), CUDA_SUCCESS);
    EXPECT_NE(library.allocate_on_own_thread(64), 0U);
  }
  EXPECT_EQ(held_bytes(owner), 20U * 64);
  EXPECT_EQ(held_bytes(other), 0U);
  EXPECT_EQ(strikes(owner) + strikes(other), 0U);
  EXPECT_EQ(metrics_of(other)->guarded_calls["cuDevicePrimaryCtxReset_v2"], 20U);
}

TEST_P(ClaimedLibrariesTest, FirstPatternThatMatchesCounts) {
  const Copy file("attacks_dlsym");
  open_with({{"*/no_such_library.so", "com.example.nobody"},
             {"*/attacks_dl?[st]ym.so", owner},
             {in_folder_of(file), other}});
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 0U) << "? stands for one character";
  EXPECT_EQ(held_bytes(other), 64U);
  EXPECT_THAT(broker.metrics().unmatched_patterns,
              ElementsAre("*/no_such_library.so", "*/attacks_dl?[st]ym.so"));
}

TEST_P(ClaimedLibrariesTest, PatternWhoseLibrariesAreTakenIsLateUntilItGetsOne) {
  const Copy file("attacks_dlsym", "late"), second("attacks_dlsym", "late");
  const std::string both = "*/late/attacks_dlsym.so";  // other tests leave one elsewhere
  open_with({{in_folder_of(file), owner}, {both, other}});
  const HostsLibrary library(file.path());
  ASSERT_NE(library.allocate(64), 0U);
  EXPECT_THAT(broker.metrics().unmatched_patterns, IsEmpty());
  const auto late = broker.metrics().late_patterns;
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].pattern, both);
  EXPECT_EQ(late[0].tenant_name, other);
  EXPECT_EQ(late[0].taken_by, in_folder_of(file));
  EXPECT_EQ(late[0].taken_for, owner);
  const HostsLibrary neighbour(second.path());
  ASSERT_NE(neighbour.allocate(64), 0U);
  EXPECT_THAT(broker.metrics().late_patterns, IsEmpty());
}

TEST_P(ClaimedLibrariesTest, LibraryThatTwoBrokersHavePatternsForBelongsToTheFirst) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  BrokerOptions with = options();
  with.policy.libraries = {{in_folder_of(file), other}};
  Broker second = Broker::open(std::move(with));
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 64U);
  EXPECT_THAT(second.metrics().libraries, IsEmpty());
  EXPECT_THAT(second.metrics().unmatched_patterns, ElementsAre(in_folder_of(file)));
}

// The pattern is matched with the real path, whatever link the library was opened by.
TEST_P(ClaimedLibrariesTest, LinkLeadsToTheLibrary) {
  const Copy file("attacks_dlsym"), elsewhere("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  const auto link = elsewhere.path().parent_path() / "link.so";
  std::filesystem::create_symlink(file.path(), link);
  const HostsLibrary library(link);
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 64U);
}

TEST_P(ClaimedLibrariesTest, LibraryThatAnotherTenantOpensKeepsItsOwner) {
  const Copy opener("attacks_late"), opened("attacks_linked");
  std::filesystem::copy_file(opened.path(), opener.path().parent_path() / "attacks_linked.so");
  open_with({{"*/attacks_linked.so", owner}});
  Tenant tenant = broker.open_tenant(other, {LeaseChoice(GetParam())});
  const AdoptedLibrary library = tenant.adopt(opener.path());
  std::thread([&] {  // on which nothing stays current
    EXPECT_NE(symbol<allocate_function>(library, ALLOCATE)(64), 0U);
  })
      .join();
  EXPECT_EQ(held_bytes(other), 0U);
  EXPECT_EQ(held_bytes(owner), 64U) << "its pattern counts, and not who opened it";
}

TEST_P(ClaimedLibrariesTest, LibraryOfAPatternIsAdoptedByItsTenantAlone) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  Tenant stranger = broker.open_tenant(other);
  try {
    const AdoptedLibrary library = stranger.adopt(file.path());
    FAIL() << "it is the other tenant's";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::plugin_load);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file.path().string()), HasSubstr(owner),
                                    HasSubstr("adopt it for that tenant")));
  }
  Tenant its = broker.open_tenant(owner);
  const AdoptedLibrary library = its.adopt(file.path());
  EXPECT_NE(symbol<allocate_function>(library, ALLOCATE_ON_OWN_THREAD)(64), 0U);
  EXPECT_EQ(held_bytes(owner), 64U);
}

// The second broker learns of the pattern only when the loader has the library.
TEST_P(ClaimedLibrariesTest, LibraryOfAnotherBrokersPatternIsRefusedAndUnloaded) {
  const Copy file("attacks_dlsym");
  const auto is_here = [&] {
    void* const found = dlopen(file.path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (found != nullptr) dlclose(found);
    return found != nullptr;
  };
  open_with({{in_folder_of(file), owner}});
  Broker second = Broker::open(options());
  Tenant stranger = second.open_tenant(other, {LeaseChoice(GetParam())});
  const auto expect_refused = [&] {
    try {
      const AdoptedLibrary library = stranger.adopt(file.path());
      FAIL() << "it is the other broker's tenant's";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::plugin_load);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(file.path().string()), HasSubstr(owner),
                                      HasSubstr("another broker's policy")));
    }
  };
  expect_refused();
  EXPECT_FALSE(is_here()) << "nobody else has opened it";
  {
    const HostsLibrary library(file.path());
    expect_refused();
    EXPECT_NE(library.allocate(64), 0U) << "who had it before still has it";
    EXPECT_EQ(held_bytes(owner), 64U);
  }
  EXPECT_FALSE(is_here()) << "the refused tenant has kept a reference";
  Tenant its = broker.open_tenant(owner);
  const AdoptedLibrary library = its.adopt(file.path());
  EXPECT_TRUE(is_here()) << "the control";
}

TEST_P(ClaimedLibrariesTest, OpenTenantReturnsAHandleOfTheTenant) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  Tenant handle = broker.open_tenant(owner), again = broker.open_tenant(owner);
  EXPECT_EQ(handle.id(), metrics_of(owner)->id);
  EXPECT_EQ(again.id(), handle.id());
  EXPECT_EQ(handle.lease().granted.kind, GetParam());
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 128U);
  handle.close();
  EXPECT_THROW(static_cast<void>(handle.lease()), Error);
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 192U) << "the tenant stays open";
  TenantOptions with_memory;
  with_memory.memory = MemorySource::driver;
  for (const TenantOptions& options :
       {TenantOptions{LeaseChoice(LeaseKind::green, 8)}, with_memory}) {
    try {
      const Tenant chosen = broker.open_tenant(owner, options);
      FAIL() << "the policy has the options";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(owner), HasSubstr("by_id")));
    }
  }
}

TEST_P(ClaimedLibrariesTest, LossIsReportedToWhoeverHasAHandle) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  int losses = 0;
  TenantOptions counting;
  counting.on_loss = [&](const LeaseLoss&) { ++losses; };
  Tenant handle = broker.open_tenant(owner, counting);
  EXPECT_TRUE(broker.force_loss(handle.id(), 0, "the test"));
  broker.poll();
  EXPECT_EQ(losses, 1);
  EXPECT_NE(library.allocate(64), 0U) << "in a new lease";
  handle.close();
  EXPECT_TRUE(broker.force_loss(metrics_of(owner)->id, 0, "the test"));
  broker.poll();
  EXPECT_EQ(losses, 1) << "the handle has gone, and its callback with it";
}

TEST_P(ClaimedLibrariesTest, BrokerClosesWithTheTenantsOfItsPatterns) {
  const Copy file("attacks_dlsym");
  open_with({{in_folder_of(file), owner}});
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  {
    Tenant handle = broker.open_tenant(owner);
    EXPECT_THROW(broker.close(), Error) << "somebody has a handle";
  }
  EXPECT_NE(library.allocate(64), 0U);
  broker.close();
  EXPECT_EQ(library.allocate_on_own_thread(64), 0U) << "its tenant has ended";
  open_with({{in_folder_of(file), owner}});
  EXPECT_NE(library.allocate_on_own_thread(64), 0U);
  EXPECT_EQ(metrics_of(owner)->strikes, 0U) << "the next broker claims it again";
}

TEST_P(ClaimedLibrariesTest, BrokerWithAThreadInsideAPatternsTenantIsNotClosed) {
  open_with({{"*/no_such_library.so", owner}});
  Tenant handle = broker.open_tenant(owner);
  const Guard guard(handle);
  handle.close();
  EXPECT_THROW(broker.close(), Error);
}

// Nobody tells the gate of it: the addresses are reused.
TEST_P(ClaimedLibrariesTest, LibraryInThePlaceOfAnotherHasItsOwnOwner) {
  const Copy first("attacks_dlsym"), second("attacks_dlsym"), unmatched("attacks_dlsym");
  open_with({{in_folder_of(first), owner}, {in_folder_of(second), other}});
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t owners = held_bytes(owner), others = held_bytes(other);
    { EXPECT_NE(HostsLibrary(first.path()).allocate(64), 0U); }
    EXPECT_EQ(held_bytes(owner), owners + 64);
    { EXPECT_NE(HostsLibrary(unmatched.path()).allocate(64), 0U); }
    EXPECT_EQ(held_bytes(owner), owners + 64);
    { EXPECT_NE(HostsLibrary(second.path()).allocate(64), 0U); }
    EXPECT_EQ(held_bytes(owner), owners + 64);
    EXPECT_EQ(held_bytes(other), others + 64);
  }
  EXPECT_EQ(strikes(owner) + strikes(other), 0U);
}

TEST_P(ClaimedLibrariesTest, LibrariesThatNeedEachOtherAreLookedAtOnce) {
  open_with({{"*/ring_first.so", other}, {"*/ring_second.so", other}});
  const HostsLibrary ring(test_library("ring_first"));
  Tenant tenant = broker.open_tenant(owner);
  const AdoptedLibrary library = tenant.adopt(test_library("ring_user"));
  EXPECT_EQ(broker.metrics().libraries.size(), 2U);
}

TEST_P(ClaimedLibrariesTest, LibraryThatAClaimedOneNeedsBelongsToNeither) {
  open_with({{"*/attacks_by_needed.so", other}});
  Tenant tenant = broker.open_tenant(owner, {LeaseChoice(GetParam())});
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_needed"));
  const HostsLibrary user(test_library("attacks_by_needed"));
  EXPECT_NE(user.allocate(64), 0U);
  EXPECT_EQ(held_bytes(owner), 0U) << "the code that allocates is both tenants'";
}

TEST_P(ClaimedLibrariesTest, LibraryOfAPackageIsWhosesTheHostAdoptsIt) {
  const Copy file("attacks_dlsym", "site-packages/alpha");
  open_with({{"*", "*"}});
  const HostsLibrary library(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes("alpha"), 64U);
  Tenant tenant = broker.open_tenant(owner, {LeaseChoice(GetParam())});
  const AdoptedLibrary adopted = tenant.adopt(file.path());
  EXPECT_NE(library.allocate(64), 0U);
  EXPECT_EQ(held_bytes("alpha"), 64U);
  EXPECT_EQ(held_bytes(owner), 64U);
}

// What it made then is the host's. Using that is no strike, and neither is the attempt to free it.
TEST_P(ClaimedLibrariesTest, LibraryThatWasThereBeforeIsClaimedFromNowOn) {
  const Copy file("attacks_dlsym");
  const HostsLibrary library(file.path());
  AttackTarget target{};
  target.memory = library.allocate(4096);
  ASSERT_NE(target.memory, 0U);
  EXPECT_TRUE(is_allocated(target.memory));
  open_with({{in_folder_of(file), owner}});
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr(file.path().string()),
                                     HasSubstr("what it made with CUDA before stays the host's"))));
  EXPECT_NE(library.allocate_on_own_thread(64), 0U);
  EXPECT_EQ(held_bytes(owner), 64U);
  library.attack("free_memory", target);
  EXPECT_TRUE(is_allocated(target.memory));
  EXPECT_EQ(strikes(owner), 0U);
  check_driver_call("cuMemFree_v2", CUdeviceptr{target.memory});
}

TEST_P(ClaimedLibrariesTest, EachPackageIsATenant) {
  const Copy alpha("attacks_dlsym", "site-packages/alpha/lib"),
      beta("attacks_proc_address", "site-packages/beta"), plain("attacks_worker");
  const auto site_packages = alpha.path().parent_path().parent_path().parent_path();
  const auto alphas_own = site_packages / "alpha.libs" / "attacks_linked.so";
  std::filesystem::create_directory(alphas_own.parent_path());
  std::filesystem::copy_file(test_library("attacks_linked"), alphas_own);
  open_with({{"*", "*"}});
  const HostsLibrary of_alpha(alpha.path()), brought(alphas_own), of_beta(beta.path()),
      alone(plain.path());
  for (const HostsLibrary* const one : {&of_alpha, &brought, &of_beta, &alone}) {
    EXPECT_NE(one->allocate(64), 0U);
  }
  EXPECT_EQ(held_bytes("alpha"), 128U);
  EXPECT_EQ(held_bytes("beta"), 64U);
  for (const LibraryMetrics& one : broker.metrics().libraries) {
    if (one.path == plain.path()) {  // an earlier test may have left a library of that name
      EXPECT_THAT(one.tenant_name, StartsWith("attacks_worker"));
      EXPECT_EQ(held_bytes(one.tenant_name), 64U);
    }
    EXPECT_THAT(one.path, Not(HasSubstr("libctxbroker")));
    EXPECT_THAT(one.path, Not(HasSubstr("/libc.so")));
  }
}

TEST_P(ClaimedLibrariesTest, PatternsNeedTheGate) {
  BrokerOptions without = options();
  without.use_gate = false;
  without.policy.libraries = {{"*", owner}};
  const Broker bare = Broker::open(std::move(without));
  EXPECT_THAT(said(), Contains(HasSubstr("the policy's patterns for libraries are not followed")));
  EXPECT_THAT(bare.metrics().libraries, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Leases, ClaimedLibrariesTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

}  // namespace
}  // namespace ctxbroker
