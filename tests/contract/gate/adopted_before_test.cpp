// SPDX-License-Identifier: Apache-2.0
// Libraries that are in the process before a tenant adopts them: the host's, another tenant's, and
// what came with them. The library's own threads show whose it is, because no guard covers them.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "attacks/attacks.h"
#include "ctxbroker/error.hpp"
#include "gate_fixture.hpp"
#include "hosts_library.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class AdoptedBeforeTest : public GateTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const std::string& name) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.unload_at_close = true;
    return broker.open_tenant(name, options);
  }
  std::uint64_t guarded_calls(const std::string& tenant) {
    std::uint64_t calls = 0;
    for (const TenantMetrics& metrics : broker.metrics().tenants) {
      if (metrics.name != tenant) continue;
      for (const auto& [function, count] : metrics.guarded_calls) calls += count;
    }
    return calls;
  }
  // The allocation counts for the tenant, and lies in its lease.
  void expect_owned(const HostsLibrary& library, Tenant& tenant) {
    const std::uint64_t before = held_bytes(tenant.name()), calls = guarded_calls(tenant.name());
    const CUcontext context = context_of(library.allocate_on_own_thread(4096));
    EXPECT_EQ(held_bytes(tenant.name()), before + 4096);
    EXPECT_GT(guarded_calls(tenant.name()), calls);
    // A shared lease has the primary context, as the host has.
    EXPECT_EQ(context, context_of(tenant.allocate(64)));
  }
  void expect_not_owned(const HostsLibrary& library, Tenant& tenant) {
    const std::uint64_t before = held_bytes(tenant.name());
    EXPECT_NE(library.allocate_on_own_thread(4096), 0U);
    EXPECT_EQ(held_bytes(tenant.name()), before);
  }
};

TEST_P(AdoptedBeforeTest, HostsLibraryBecomesTheTenantsWhenItIsAdopted) {
  const Copy file("attacks_dlsym");
  const HostsLibrary hosts(file.path());
  Tenant tenant = open("late owner");
  expect_not_owned(hosts, tenant);  // the control
  const auto link = file.path().parent_path() / "link.so";
  std::filesystem::create_symlink(file.path(), link);
  const AdoptedLibrary library = tenant.adopt(link);
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr(file.path().string()),
                                     HasSubstr("from now on it is the tenant's"))));
  expect_owned(hosts, tenant);
  // A neighbour's reset is absorbed, and what the library does goes on.
  Tenant neighbour = open("neighbour");
  neighbour.run(0, [] { EXPECT_EQ(driver_call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS); });
  for (int i = 0; i < 50; ++i) EXPECT_NE(hosts.allocate_on_own_thread(64), 0U);
  const std::size_t records = said().size();
  const AdoptedLibrary again = tenant.adopt(file.path());
  EXPECT_EQ(said().size(), records) << "it is the tenant's already";
  expect_owned(hosts, tenant);
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(AdoptedBeforeTest, LibraryOfAnotherTenantBelongsToNeitherWhenItIsAdopted) {
  const Copy file("attacks_dlsym");
  Tenant first = open("first"), second = open("second"), third = open("third");
  const AdoptedLibrary of_first = first.adopt(file.path());
  const HostsLibrary library(file.path());
  expect_owned(library, first);
  for (Tenant* tenant : {&second, &third}) {
    const AdoptedLibrary same = tenant->adopt(file.path());
    EXPECT_THAT(said().back(),
                AllOf(HasSubstr(file.path().string()), HasSubstr("is used by tenant first too"),
                      HasSubstr("in a worker")));
    for (Tenant* one : {&first, &second, &third}) expect_not_owned(library, *one);
    const auto allocate = symbol<allocate_function>(same, ALLOCATE);
    const std::uint64_t before = held_bytes(tenant->name());
    tenant->run(0, [&] { EXPECT_NE(allocate(4096), 0U); });
    EXPECT_EQ(held_bytes(tenant->name()), before + 4096) << "inside a guard";
  }
}

// The tenants that used it are closed: the decision is made again.
TEST_P(AdoptedBeforeTest, LibraryThatTwoTenantsHadIsTheNextOnesAlone) {
  const Copy file("attacks_dlsym");
  const HostsLibrary library(file.path());
  {
    Tenant first = open("first"), second = open("second");
    const AdoptedLibrary of_first = first.adopt(file.path()), of_second = second.adopt(file.path());
    expect_not_owned(library, first);
  }
  Tenant third = open("third");
  expect_not_owned(library, third);
  const AdoptedLibrary of_third = third.adopt(file.path());
  expect_owned(library, third);
  third.close();
  EXPECT_NE(library.allocate_on_own_thread(64), 0U) << "it is the host's again";
}

TEST_P(AdoptedBeforeTest, LibraryOfALoadedPluginBelongsToNeitherWhenItIsAdopted) {
  const PluginLibrary plugin = broker.load(test_library("behaviours"));
  Tenant tenant = open("adopts a plug-in");
  const AdoptedLibrary library = tenant.adopt(test_library("behaviours"));
  EXPECT_THAT(said().back(), HasSubstr("is used by tenant behaviours too"));
}

// All of them are unloaded at the end, so that the next test finds them new.
TEST_P(AdoptedBeforeTest, WhatCameWithTheLibraryBecomesTheTenantsToo) {
  const HostsLibrary hosts(test_library("attacks_by_needed"));
  Tenant tenant = open("user");
  expect_not_owned(hosts, tenant);
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_by_needed"));
  expect_owned(hosts, tenant);  // its functions are those of the library that it needs
}

TEST_P(AdoptedBeforeTest, WhatTheHostOpenedItselfStaysTheHostsUntilItIsAdopted) {
  const HostsLibrary needed(test_library("attacks_needed"));
  const HostsLibrary hosts(test_library("attacks_by_needed"));
  Tenant tenant = open("user");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_by_needed"));
  expect_not_owned(needed, tenant);
  const AdoptedLibrary its = tenant.adopt(test_library("attacks_needed"));
  expect_owned(needed, tenant);
}

TEST_P(AdoptedBeforeTest, LibraryOfTheWholeProcessIsRefusedWithTheReason) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&dlopen), &info), 0);
  Tenant tenant = open("greedy");
  try {
    const AdoptedLibrary library = tenant.adopt(info.dli_fname);
    FAIL() << "everybody calls it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::plugin_load);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::filesystem::path(info.dli_fname).filename()),
                                    HasSubstr("serves the whole process"),
                                    HasSubstr("adopt the library that uses it")));
  }
  // The control: a library of the host's is adopted, and the tenant goes on as before.
  const Copy file("attacks_dlsym");
  const HostsLibrary hosts(file.path());
  const AdoptedLibrary library = tenant.adopt(file.path());
  expect_owned(hosts, tenant);
}

INSTANTIATE_TEST_SUITE_P(
    Leases, AdoptedBeforeTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

}  // namespace
}  // namespace ctxbroker
