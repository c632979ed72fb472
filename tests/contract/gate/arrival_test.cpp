// SPDX-License-Identifier: Apache-2.0
// Threads of a library call the driver while the library arrives: each call is its tenant's.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace {
std::atomic<void (*)()> announced{nullptr};
std::atomic<bool> is_inside{false};
}  // namespace
// The library calls it by its name.
extern "C" __attribute__((visibility("default"))) void announce_arrival(void (*function)()) {
  announced = function;
}

namespace ctxbroker {
namespace {

class ArrivalTest : public RecordingBrokerTest {
 protected:
  // A library that no tenant has adopted.
  std::filesystem::path copy_of(const std::string& library) {
    auto file = folder / (library + std::to_string(++copies) + ".so");
    std::filesystem::copy_file(test_library(library), file);
    return file;
  }
  std::uint64_t counted_for(const Tenant& tenant) {
    for (TenantMetrics& one : broker.metrics().tenants) {
      if (one.id == tenant.id()) return one.guarded_calls["cuDevicePrimaryCtxGetState"];
    }
    return 0;
  }
  static std::uint64_t stop(AdoptedLibrary& library) {
    return reinterpret_cast<std::uint64_t (*)()>(library.symbol("stop_calling"))();
  }

  const TempFolder folder;
  int copies = 0;
};

// A call between the end of the load and its result was taken for the host's.
TEST_F(ArrivalTest, CallsOfItsCodeOnAThreadOfTheHostAreTheTenants) {
  Tenant tenant = broker.open_tenant("arrives");
  std::atomic<bool> goes_on{true};
  std::thread host([&] {
    unsigned flags = 0;
    int active = 0;
    driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active);  // the thread is the host's
    while (goes_on) {
      is_inside = true;
      if (void (*const function)() = announced) function();
      is_inside = false;
    }
  });
  std::uint64_t calls = 0;
  for (int round = 0; round < 20; ++round) {
    AdoptedLibrary library = tenant.adopt(copy_of("arrival"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    announced = nullptr;
    while (is_inside) std::this_thread::yield();
    calls += stop(library);
  }
  goes_on = false;
  host.join();
  EXPECT_GT(calls, 20U);
  EXPECT_EQ(counted_for(tenant), calls);
}

#if defined(__x86_64__)
// A host may make code at run time, and call the driver out of that.
TEST_F(ArrivalTest, CallsOfTheHostsCodeOfNoLibraryStayTheHosts) {
  // Calls the function that it is given.
  constexpr unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7,
                                    0x48, 0x83, 0xc4, 0x08, 0xc3};
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::memcpy(page, code, sizeof code);
  auto* const made = reinterpret_cast<void (*)(void (*)())>(page);
  Tenant tenant = broker.open_tenant("arrives");
  std::atomic<bool> goes_on{true};
  std::atomic<int> host_calls{0};
  std::thread host([&] {
    while (goes_on) {
      made([] {
        unsigned flags = 0;
        int active = 0;
        driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active);
      });
      ++host_calls;
    }
  });
  while (host_calls == 0) std::this_thread::yield();
  const int before = host_calls;
  AdoptedLibrary library = tenant.adopt(copy_of("arrival_slow"));
  const int during = host_calls - before;
  const std::uint64_t calls = stop(library);
  goes_on = false;
  host.join();
  EXPECT_GT(during, 0);
  EXPECT_GT(calls, 0U);
  EXPECT_EQ(counted_for(tenant), calls);
  munmap(page, 4096);
}
#endif

TEST_F(ArrivalTest, LibrariesThatArriveTogetherAreEachTheirOwnTenants) {
  Tenant slow = broker.open_tenant("slow"), quick = broker.open_tenant("quick");
  const auto slow_file = copy_of("arrival_slow"), quick_file = copy_of("arrival");
  std::uint64_t slow_calls = 0, quick_calls = 0;
  const auto load = [](Tenant& tenant, const std::filesystem::path& file, std::uint64_t& calls) {
    AdoptedLibrary library = tenant.adopt(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    calls = stop(library);
  };
  std::thread first([&] { load(slow, slow_file, slow_calls); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // now its constructor runs
  std::thread second([&] { load(quick, quick_file, quick_calls); });
  first.join();
  second.join();
  EXPECT_GT(slow_calls, 0U);
  EXPECT_GT(quick_calls, 0U);
  EXPECT_EQ(counted_for(slow), slow_calls);
  EXPECT_EQ(counted_for(quick), quick_calls);
}

}  // namespace
}  // namespace ctxbroker
