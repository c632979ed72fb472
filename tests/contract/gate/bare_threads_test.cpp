// SPDX-License-Identifier: Apache-2.0
// Threads that use a tenant's lease without a guard: whose they are, and what they keep.
#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "gate_fixture.hpp"
#include "support/driver_by_name.hpp"
#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// An interpreter, for example, calls itself many times.
int depth = 0;
CUdeviceptr wanted = 0;
int free_below(int calls) {
  volatile int status =
      calls > 0 ? free_below(calls - 1) : driver_call("cuMemFree_v2", CUdeviceptr{wanted});
  return status;
}
int free_deep_inside() {
  return free_below(depth);
}

class BareThreadsTest : public GateTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const std::string& name, MemorySource memory = MemorySource::automatic) {
    TenantOptions with;
    with.lease.kind = GetParam();
    with.memory = memory;
    return broker.open_tenant(name, with);
  }
  // For code that asks the driver whether its memory is freed. Memory of a pool is freed later.
  Tenant open_with_drivers_memory(const std::string& name) {
    return open(name, MemorySource::driver);
  }
  static AdoptedLibrary adopt(Tenant& tenant) {
    AdoptedLibrary library = tenant.adopt(test_library("bare_threads"));
    EXPECT_EQ(run(tenant, library, "keep"), CUDA_SUCCESS);
    return library;
  }
  static int call(const AdoptedLibrary& library, const char* name) {
    return symbol<int()>(library, name)();
  }
  static int run(Tenant& tenant, const AdoptedLibrary& library, const char* name) {
    return tenant.run(0, [&] { return call(library, name); });
  }
  static std::optional<ErrorKind> refusal_of_lease(Tenant& tenant) {
    try {
      tenant.lease();
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  }
  // How many contexts of closed tenants the broker could not end yet.
  std::size_t put_off() { return broker.metrics().put_off.size(); }
  // Shared leases have no context of their own that could be put off.
  std::size_t if_own(std::size_t count) { return GetParam() == LeaseKind::shared ? 0 : count; }
};

INSTANTIATE_TEST_SUITE_P(Kinds, BareThreadsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) -> std::string {
                           return info.param == LeaseKind::private_own ? "private_own"
                                                                       : to_string(info.param);
                         });

TEST_P(BareThreadsTest, TenantIsFoundBehindManyCallers) {
  Tenant tenant = open("far"), neighbour = open("neighbour");
  const AdoptedLibrary library = adopt(tenant);
  neighbour.run(
      0, [] { ASSERT_EQ(driver_call("cuMemAlloc_v2", &wanted, std::size_t{4096}), CUDA_SUCCESS); });
  std::uint64_t strikes = 0;
  for (const int calls : {0, 60, 500}) {
    depth = calls;
    EXPECT_NE(symbol<int(int (*)())>(library, "call_other")(free_deep_inside), CUDA_SUCCESS);
    EXPECT_EQ(tenant.strikes(), ++strikes) << calls;
  }
  neighbour.run(0, [] { EXPECT_EQ(free_below(0), CUDA_SUCCESS) << "it is still there"; });
}

TEST_P(BareThreadsTest, BalancedPushAndPopKeepNoContext) {
  Tenant tenant = open("balanced");
  const AdoptedLibrary library = adopt(tenant);
  EXPECT_EQ(call(library, "push_and_pop"), CUDA_SUCCESS);
  EXPECT_EQ(call(library, "set_and_unset"), CUDA_SUCCESS);
  // Pushed twice, and popped twice in the other order.
  EXPECT_EQ(call(library, "push_only"), CUDA_SUCCESS);
  EXPECT_EQ(call(library, "push_and_pop"), CUDA_SUCCESS);
  EXPECT_EQ(call(library, "pop_only"), CUDA_SUCCESS);
  tenant.close();
  EXPECT_EQ(put_off(), 0U);
  EXPECT_EQ(tenant.strikes(), 0U);
}

// The control: a context that is still on the thread's stack must not end.
TEST_P(BareThreadsTest, ContextThatStaysOnTheStackEndsWhenItIsPopped) {
  Tenant tenant = open("pushes");
  const AdoptedLibrary library = adopt(tenant);
  EXPECT_EQ(call(library, "push_only"), CUDA_SUCCESS);
  EXPECT_EQ(call(library, "push_and_pop"), CUDA_SUCCESS) << "the one below stays";
  auto* const pop = symbol<int()>(library, "pop_only");
  tenant.close();
  EXPECT_EQ(put_off(), if_own(1));
  broker.poll();
  EXPECT_EQ(put_off(), if_own(1)) << "nothing has changed";
  EXPECT_EQ(pop(), CUDA_SUCCESS);
  broker.poll();
  EXPECT_EQ(put_off(), 0U);
}

TEST_P(BareThreadsTest, ThreadThatOutlivesItsTenantGivesTheContextBackWhenItEnds) {
  TenantOptions with;
  with.lease.kind = GetParam();
  // More than half of the device, so that the next tenant needs what this one has.
  const bool is_partition = GetParam() == LeaseKind::green;
  if (is_partition) with.lease.multiprocessors = broker.devices()[0].multiprocessors * 2 / 3;
  Tenant tenant = broker.open_tenant("lingers", with);
  const LeaseKind granted = tenant.lease().granted.kind;
  if (granted != GetParam()) GTEST_SKIP() << tenant.lease().reason;
  const AdoptedLibrary library = adopt(tenant);
  auto* const stop = symbol<int()>(library, "stop_thread");
  ASSERT_EQ(run(tenant, library, "start_thread"), 0);
  tenant.close();
  EXPECT_EQ(put_off(), if_own(1));
  Tenant next = broker.open_tenant("next", with);
  if (is_partition) {
    EXPECT_EQ(refusal_of_lease(next), ErrorKind::lease_unavailable)
        << "the control: while the thread stays, the partition is lost to all";
  }
  if (GetParam() != LeaseKind::shared) {
    const PutOffMetrics put_off = broker.metrics().put_off.front();
    EXPECT_EQ(put_off.tenant_name, "lingers");
    EXPECT_EQ(put_off.what, "context");
  }
  EXPECT_EQ(stop(), 0);
  broker.poll();
  EXPECT_EQ(put_off(), 0U);
  EXPECT_EQ(refusal_of_lease(next), std::nullopt);
  EXPECT_EQ(next.lease().granted.kind, granted);
  EXPECT_THAT(said(), ::testing::Each(Not(HasSubstr("until the process ends"))));
}

// The next tenant may get the context.
TEST_P(BareThreadsTest, ContextOfAClosedTenantIsRefusedToItsCode) {
  Tenant tenant = open("dead");
  const AdoptedLibrary library = adopt(tenant);
  EXPECT_EQ(call(library, "set_and_unset"), CUDA_SUCCESS);
  auto* const set = symbol<int()>(library, "set_and_unset");
  auto* const push = symbol<int()>(library, "push_and_pop");
  const CUcontext dead = tenant.lease().context;
  tenant.close();
  if (GetParam() != LeaseKind::shared) {  // which is the primary, and everybody's
    EXPECT_EQ(set(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(push(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  Tenant next = open("next");
  const CUcontext given = next.lease().context;
  if (GetParam() == LeaseKind::green) {
    EXPECT_EQ(given, dead) << "the control: it is used again";
  }
  if (GetParam() != LeaseKind::shared) {
    EXPECT_NE(set(), CUDA_SUCCESS);
  }
  EXPECT_EQ(next.strikes(), 0U);
}

// A Python program that uses PyTorch and CuPy has such a thread.
TEST_P(BareThreadsTest, TenantsThatTakeTurnsOnAThreadFindTheirOwnLeasesCurrent) {
  const TempFolder folder;
  const std::filesystem::path twin = folder.path() / "bare_threads_twin.so";
  std::filesystem::copy_file(test_library("bare_threads"), twin);
  Tenant one = open("one"), other = open("other");
  const AdoptedLibrary library = adopt(one), others = other.adopt(twin);
  EXPECT_EQ(run(other, others, "keep"), CUDA_SUCCESS);
  const auto current = [] {
    CUcontext context = nullptr;
    check_driver_call("cuCtxGetCurrent", &context);
    return context;
  };
  std::thread([&] {
    EXPECT_EQ(call(library, "set_only"), CUDA_SUCCESS);
    EXPECT_EQ(call(others, "set_only"), CUDA_SUCCESS);
    for (const char* use : {"finds_its_own", "allocates_in_its_own"}) {
      for (int turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(call(library, use), CUDA_SUCCESS) << use;
        EXPECT_EQ(current(), one.lease().context);
        EXPECT_EQ(call(others, use), CUDA_SUCCESS) << use;
        EXPECT_EQ(current(), other.lease().context);
      }
    }
  }).join();
  EXPECT_EQ(one.lease().context == other.lease().context, GetParam() == LeaseKind::shared);
  EXPECT_EQ(one.strikes() + other.strikes(), 0U);
  other.close();
  one.close();
  EXPECT_EQ(put_off(), 0U) << "the thread has given both back";
}

// A framework's thread may call back into another framework.
TEST_P(BareThreadsTest, CodeOfAnotherTenantOnATenantsThreadWorksInItsOwnLease) {
  const TempFolder folder;
  std::filesystem::copy_file(test_library("bare_threads"), folder / "bare_threads_twin.so");
  Tenant one = open("one"), other = open("other");
  const AdoptedLibrary library = adopt(one), others = other.adopt(folder / "bare_threads_twin.so");
  EXPECT_EQ(run(other, others, "keep"), CUDA_SUCCESS);
  auto* const call_on_own_thread = symbol<int(int (*)())>(library, "call_on_own_thread");
  for (const char* use : {"set_and_unset", "set_only", "push_and_pop"}) {
    EXPECT_EQ(call_on_own_thread(symbol<int()>(others, use)), CUDA_SUCCESS) << use;
  }
  EXPECT_EQ(call_on_own_thread(symbol<int()>(others, "allocates_in_its_own")), CUDA_SUCCESS);
  EXPECT_EQ(one.strikes() + other.strikes(), 0U);
}

// The stack of a fibre does not lead to the thread's start.
TEST_P(BareThreadsTest, ThreadStaysTheHostsAfterACallOnAFibre) {
  Tenant tenant = open("generates"), neighbour = open("neighbour");
  const AdoptedLibrary library = adopt(tenant);
  const auto use = [&] {
    CUgraph graph = nullptr;
    check_driver_call("cuGraphCreate", &graph, 0U);
    EXPECT_EQ(call(library, "call_on_a_fibre"), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS) << "the host's own";
    check_driver_call("cuGraphCreate", &graph, 0U);
    EXPECT_EQ(held("generates", "graph"), 0U);
    check_driver_call("cuGraphDestroy", graph);
  };
  use();
  std::thread(use).join();
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

TEST_P(BareThreadsTest, ThreadOfTheCxxLibraryIsTheTenantsWhateverItCallsLast) {
  Tenant tenant = open_with_drivers_memory("tail"), neighbour = open("neighbour");
  const AdoptedLibrary library = tenant.adopt(test_library("tail_calls"));
  ASSERT_EQ(run(tenant, library, "take"), CUDA_SUCCESS);
  EXPECT_EQ(call(library, "make_graph_on_a_thread"), CUDA_SUCCESS);
  if (threads_start_in_their_code) {
    EXPECT_EQ(run(tenant, library, "free_on_a_thread"), 0);
    EXPECT_EQ(held_bytes("tail"), 0U);
  }
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

TEST_P(BareThreadsTest, ThreadThatFreesMemoryOfAPoolLastIsTheTenants) {
  if (!threads_start_in_their_code) GTEST_SKIP() << "threads start in the sanitizer's code";
  Tenant tenant = open("tail", MemorySource::pool), neighbour = open("neighbour");
  const AdoptedLibrary library = tenant.adopt(test_library("tail_calls"));
  for (const char* const free : {"free_on_a_thread", "free_on_a_thread_of_any_function"}) {
    ASSERT_EQ(run(tenant, library, "take"), CUDA_SUCCESS);
    EXPECT_EQ(held_bytes("tail"), 4096U);
    run(tenant, library, free);  // its answer is about the driver's memory
    EXPECT_TRUE(comes_to_hold("tail", 0)) << free;
  }
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

// The loader takes a class that several libraries have from the first one that shows it to all.
TEST_P(BareThreadsTest, ThreadWithAPlainFunctionBelongsToTheFunctionsTenant) {
  const TempFolder folder;
  Tenant tenant = open_with_drivers_memory("tail"), neighbour = open("neighbour");
  for (Tenant* const owner : {static_cast<Tenant*>(nullptr), &neighbour}) {
    const auto shown = folder / (owner != nullptr ? "neighbours.so" : "hosts.so");
    std::filesystem::copy_file(test_library("tail_calls"), shown);
    ASSERT_NE(dlopen(shown.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr);
    if (owner != nullptr) owner->adopt(shown);
    const auto own = folder / (owner != nullptr ? "beside_neighbours.so" : "beside_hosts.so");
    std::filesystem::copy_file(test_library("tail_calls"), own);
    const AdoptedLibrary library = tenant.adopt(own);
    ASSERT_EQ(run(tenant, library, "take"), CUDA_SUCCESS);
    if (threads_start_in_their_code) {
      EXPECT_EQ(run(tenant, library, "free_on_a_thread_of_any_function"), 0);
      EXPECT_EQ(held_bytes("tail"), 0U);
    }
  }
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

TEST_P(BareThreadsTest, ThreadStaysTheTenantsAtItsEndWhateverWasLoadedMeanwhile) {
  if (!threads_start_in_their_code) GTEST_SKIP() << "threads start in the sanitizer's code";
  const TempFolder folder;
  Tenant tenant = open_with_drivers_memory("tail"), neighbour = open("neighbour");
  const AdoptedLibrary library = tenant.adopt(test_library("tail_calls"));
  for (const bool loads : {false, true}) {
    ASSERT_EQ(run(tenant, library, "take"), CUDA_SUCCESS);
    ASSERT_EQ(run(tenant, library, "start_thread_that_frees_at_its_end"), 0);
    if (loads) {
      const auto another = folder / "another.so";
      std::filesystem::copy_file(test_library("bare_threads"), another);
      neighbour.adopt(another);
    }
    EXPECT_EQ(run(tenant, library, "end_thread_that_frees_at_its_end"), 0) << loads;
    EXPECT_EQ(held_bytes("tail"), 0U);
  }
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

TEST_P(BareThreadsTest, ContextThatTheDriverRefusesToMakeCurrentIsNotBorrowed) {
  Tenant tenant = open("calls back");
  const AdoptedLibrary library = adopt(tenant);
  EXPECT_NE(run(tenant, library, "set_in_a_host_function"), CUDA_SUCCESS);
  tenant.close();
  EXPECT_EQ(put_off(), 0U);
}

TEST_P(BareThreadsTest, CodeInAGuardMayPopUntilNothingIsCurrent) {
  Tenant tenant = open("drains"), neighbour = open("neighbour");
  const AdoptedLibrary library = adopt(tenant);
  EXPECT_EQ(run(tenant, library, "pop_all"), 1) << "the guard's own context";
  EXPECT_EQ(neighbour.strikes(), 0U);
  // The same inside of a guard of another tenant, whose context is out of reach.
  neighbour.run(0, [&] {
    EXPECT_EQ(run(tenant, library, "pop_all"), 1);
    return 0;
  });
  EXPECT_EQ(run(tenant, library, "set_and_unset"), CUDA_SUCCESS) << "the lease still works";
}

// The context was remembered, and the stream made, by a thread that was not the first one inside.
TEST_P(BareThreadsTest, ThreadWithoutAGuardKnowsTheSameContextAsThoseInside) {
  Tenant tenant = open("compares");
  const AdoptedLibrary library = adopt(tenant);
  tenant.run(0, [&] {
    std::jthread([&] {
      EXPECT_EQ(run(tenant, library, "keep"), CUDA_SUCCESS);
      EXPECT_EQ(run(tenant, library, "keep_stream"), CUDA_SUCCESS);
    }).join();
  });
  EXPECT_EQ(call(library, "ask_on_own_thread"), 0);
  EXPECT_EQ(run(tenant, library, "end_stream"), CUDA_SUCCESS);
  tenant.close();
  EXPECT_EQ(tenant.strikes(), 0U);
  EXPECT_EQ(put_off(), 0U);
}

// The loader's lock is taken while the library's constructor and destructor wait for their thread.
// If the thread's first calls needed that lock too, neither would ever return. The control is
// ThreadLocalObjectWithADestructorWaitsForAConstructor in gate_start_test.cpp.
TEST_P(BareThreadsTest, ThreadThatAConstructorWaitsForCanUseCuda) {
  TenantOptions with;
  with.lease.kind = GetParam();
  with.unload_at_close = true;
  Tenant tenant = broker.open_tenant("starts a thread", with);
  const AdoptedLibrary library = tenant.adopt(test_library("starts_thread"));
  EXPECT_EQ(call(library, "status_of_thread"), CUDA_SUCCESS);
  tenant.close();
}

// ---- OpenMP ----------------------------------------------------------------------------------

class OpenMpTest : public BareThreadsTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(test_library("openmp"))) GTEST_SKIP() << "there is no OpenMP";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer does not see how OpenMP's threads wait for each other";
#endif
  }
  static int work(Tenant& tenant, const AdoptedLibrary& library) {
    return run(tenant, library, "work_in_parallel");
  }
  // That did the library's last work.
  static std::set<unsigned long> threads_of(const AdoptedLibrary& library) {
    std::set<unsigned long> all;
    for (int i = 0; i < threads; ++i) {
      all.insert(symbol<unsigned long(int)>(library, "thread_of")(i));
    }
    return all;
  }
  static constexpr int threads = 4;  // of openmp.c
};

INSTANTIATE_TEST_SUITE_P(Kinds, OpenMpTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) -> std::string {
                           return info.param == LeaseKind::private_own ? "private_own"
                                                                       : to_string(info.param);
                         });

TEST_P(OpenMpTest, ThreadsOfASharedPoolBelongToTheTenantWhoseCodeTheyRun) {
  Tenant first = open("first");
  const AdoptedLibrary of_first = first.adopt(test_library("openmp"));
  EXPECT_EQ(work(first, of_first), 0)
      << "the pool's threads start in a library that is the first's";
  Tenant second = open("second");
  const AdoptedLibrary of_second = second.adopt(test_library("openmp_twin"));
  EXPECT_EQ(work(second, of_second), 0);
  EXPECT_EQ(work(first, of_first), 0);
  EXPECT_EQ(work(second, of_second), 0);
  EXPECT_EQ(first.strikes(), 0U);
  EXPECT_EQ(second.strikes(), 0U);
  first.close();
  EXPECT_EQ(work(second, of_second), 0);
  EXPECT_EQ(second.strikes(), 0U);
}

// The control: if the same calls on the same threads counted for the wrong tenant, all would fail.
TEST_P(OpenMpTest, ThreadsOfASharedPoolAreRefusedWhatBelongsToAnotherTenant) {
  using Work = int(CUcontext, const CUdeviceptr*);
  Tenant first = open("first"), second = open("second");
  const AdoptedLibrary of_first = first.adopt(test_library("openmp"));
  const AdoptedLibrary of_second = second.adopt(test_library("openmp_twin"));
  CUcontext context = nullptr;
  CUdeviceptr memory[threads] = {};
  auto* const take = symbol<int(CUcontext*, CUdeviceptr*)>(of_second, "take_for_threads");
  ASSERT_EQ(second.run(0, [&] { return take(&context, memory); }), CUDA_SUCCESS);
  const auto work_with = [&](Tenant& tenant, const AdoptedLibrary& library) {
    return tenant.run(0, [&] { return symbol<Work>(library, "work_with")(context, memory); });
  };
  EXPECT_EQ(work_with(first, of_first), threads);
  EXPECT_GT(first.strikes(), 0U);
  EXPECT_EQ(work_with(second, of_second), 0) << "nothing was taken from it";
  EXPECT_EQ(second.strikes(), 0U);
  EXPECT_EQ(threads_of(of_first), threads_of(of_second)) << "there is one pool";
}

TEST_P(OpenMpTest, PoolLeavesTheContextOfAClosedTenantWithItsNextWork) {
  const std::uint32_t third = broker.devices().front().multiprocessors / 3;
  for (int cycle = 0; cycle < 5; ++cycle) {  // more than there are partitions
    TenantOptions with;
    with.lease.kind = GetParam();
    // Two are in use at once: the next one, and the last one until the pool's threads leave it.
    if (GetParam() == LeaseKind::green) with.lease.multiprocessors = third / 8 * 8;
    Tenant tenant = broker.open_tenant("cycle " + std::to_string(cycle), with);
    const AdoptedLibrary library = tenant.adopt(test_library("openmp"));
    ASSERT_EQ(work(tenant, library), 0) << cycle;
    tenant.close();
    EXPECT_EQ(put_off(), if_own(1)) << cycle << ": the pool's threads are still in it";
    broker.poll();
    EXPECT_EQ(put_off(), if_own(1)) << "a control: they have had no other work";
  }
}

}  // namespace
}  // namespace ctxbroker
