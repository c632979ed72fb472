// SPDX-License-Identifier: Apache-2.0
// A warm job of a real-time graph neither allocates nor locks in the broker. The program has its
// own operator new and lock functions, and counts the calls that come from the broker's library.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "broker_fixture.hpp"
#include "ctxbroker/host_memory.hpp"

namespace {

std::uintptr_t broker_begin = 0, broker_end = 0;  // where its library lies
thread_local std::uint64_t allocations = 0, locks = 0;

bool is_of_broker(const void* caller) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  return broker_begin <= address && address < broker_end;
}

int note_broker(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libctxbroker.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    broker_begin = info->dlpi_addr + part.p_vaddr;
    broker_end = broker_begin + part.p_memsz;
  }
  return 1;
}

template <typename Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (is_of_broker(__builtin_return_address(0))) ++allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

extern "C" {
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (is_of_broker(__builtin_return_address(0))) ++locks;
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  if (is_of_broker(__builtin_return_address(0))) ++locks;
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  if (is_of_broker(__builtin_return_address(0))) ++locks;
  return real(lock);
}
}

namespace ctxbroker {
namespace {

class RealtimeTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  RealtimeTest() {
    if (broker_end == 0) dl_iterate_phdr(note_broker, nullptr);
  }
  PluginInstance active_in_realtime(const char* behaviour) {
    PluginInstance instance = create(behaviour, GetParam());
    ActivationSizes sizes = test_sizes;
    sizes.realtime = true;
    instance.activate(sizes);
    return instance;
  }
  struct Counts {
    std::uint64_t allocations, locks;
    bool operator==(const Counts&) const = default;
  };
  template <typename Work>
  static Counts counted(Work&& work) {
    allocations = locks = 0;
    work();
    return {allocations, locks};
  }
  static void expect_none(const Counts& counts) {
    EXPECT_EQ(counts.allocations, 0u);
    EXPECT_EQ(counts.locks, 0u);
  }
  float samples[4] = {1, 2, 3, 4};
};

TEST_P(RealtimeTest, AWarmJobNeitherAllocatesNorLocks) {
  ASSERT_NE(broker_end, 0u);
  PluginInstance first = active_in_realtime("affine"), second = active_in_realtime("bias");
  for (const LateJobs late : {LateJobs::deliver, LateJobs::dry}) {
    for (const bool measure : {false, true}) {
      GraphOptions options;
      options.jobs_in_flight = 3;
      options.late = late;
      options.measure = measure;
      Graph graph(broker, {&first, &second}, test_sizes, options);
      const JobBuffers buffers{{samples}, {samples}};
      JobInfo job;
      job.deadline_ns = 10'000'000'000;
      const auto some_jobs = [&] {
        for (int i = 0; i < 10; ++i) graph.submit(buffers, job);
        graph.process(samples, samples, job);
      };
      some_jobs();
      expect_none(counted(some_jobs));
    }
  }
}

TEST_P(RealtimeTest, AWarmJobInHostMemoryNeitherAllocatesNorLocks) {
  PluginInstance instance = active_in_realtime("affine");
  const HostMemory memory = broker.host_memory(2 * sizeof samples), other = broker.host_memory(1);
  ASSERT_TRUE(memory.is_registered());
  float* const in = static_cast<float*>(memory.data());
  Graph graph(broker, {&instance}, test_sizes);
  graph.process(in, in + 4, {});
  expect_none(counted([&] { graph.process(in, in + 4, {}); }));
}

// The host may begin to record at any time.
TEST_P(RealtimeTest, FirstJobOfATimelineNeitherAllocatesNorLocks) {
  PluginInstance first = active_in_realtime("affine"), second = active_in_realtime("bias");
  Graph graph(broker, {&first, &second}, test_sizes);
  graph.process(samples, samples, {});
  broker.start_timeline({1 << 20});
  expect_none(counted([&] { graph.process(samples, samples, {}); }));
  broker.stop_timeline();
}

TEST_P(RealtimeTest, SettingAParameterNeitherAllocatesNorLocks) {
  PluginInstance instance = active_in_realtime("affine");
  expect_none(counted([&] { instance.set_parameter("factor", 2); }));
}

// The controls: what does allocate and lock is counted.
TEST_P(RealtimeTest, CallsThatAllocateOrLockAreCounted) {
  EXPECT_GT(counted([&] { static_cast<void>(broker.metrics()); }).allocations, 0u);
  EXPECT_GT(counted([&] { static_cast<void>(broker.metrics()); }).locks, 0u);
  PluginInstance alone = active_in_realtime("one_at_a_time");
  Graph graph(broker, {&alone}, test_sizes);
  graph.process(samples, samples, {});
  EXPECT_EQ(counted([&] { graph.process(samples, samples, {}); }).locks, 1u)
      << "the lock that keeps its instances apart";
}

INSTANTIATE_TEST_SUITE_P(Kinds, RealtimeTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace ctxbroker
