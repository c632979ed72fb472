// SPDX-License-Identifier: Apache-2.0
// Loads and unloads of libraries that leak all that they can: what the others have, and what the
// process has, is in the end what it was. A thousand on the software device, fifty on a GPU.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "attacks/work.h"
#include "ctxbroker/broker.hpp"
#include "resources.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/process_state.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t leak = 1U << 20;

std::vector<std::string> modes() {
  std::vector<std::string> all{"attacks_proc_address", "attacks_dlsym", "attacks_linked"};
  if (why_no_runtime_library().empty()) all.emplace_back("attacks_runtime_static");
  return all;
}

template <typename Function>
Function* function_of(void* address) {
  return reinterpret_cast<Function*>(address);
}

// Makes a library leak all that it can in one life, through its functions: memory, streams, modules
// and retains, also on a thread of its own. Every third life also resets the device.
template <typename Symbol>
void leak_everything(const Symbol& symbol, unsigned seed, const std::string& mode) {
  const AttackTarget nothing{};
  WorkOrder order{};
  order.tenant = order.generation = seed + 1;
  order.seed = seed;
  function_of<work_function>(symbol(WORK))(&order);
  EXPECT_EQ(order.status, 0) << mode << ": " << order.call;
  EXPECT_EQ(order.wrong, 0U) << mode;
  EXPECT_NE(function_of<allocate_function>(symbol(ALLOCATE))(leak), 0U) << mode;
  EXPECT_NE(function_of<allocate_function>(symbol(ALLOCATE_ON_OWN_THREAD))(leak), 0U) << mode;
  auto* const attack = function_of<attack_function>(symbol(ATTACK));
  for (const char* misdeed : {"leave_global_capture", "leave_context_pushed"}) {
    attack(misdeed, &nothing);
  }
  if (seed % 3 == 0) attack("reset", &nothing);
}

std::string words(const soak::Resources& all) {
  return std::to_string(all.device_bytes_free >> 20) + " MiB of the device free, " +
         std::to_string(all.threads) + " threads, " + std::to_string(all.descriptors) +
         " descriptors, " + std::to_string(all.resident_bytes >> 20) + " MiB resident";
}

// A neighbour that works on, from before the first load until after the last.
class Neighbour {
 public:
  explicit Neighbour(Broker& broker)
      : tenant_(broker.open_tenant("neighbour", {LeaseChoice(LeaseKind::green)})) {
    // A file of its own: the library of the others comes and goes.
    file_ = std::filesystem::path(testing::TempDir()) / "ctxb_baseline_neighbour.so";
    std::filesystem::copy_file(test_library("attacks_proc_address"), file_,
                               std::filesystem::copy_options::overwrite_existing);
    const AdoptedLibrary library = tenant_.adopt(file_);
    work_ = function_of<work_function>(library.symbol(WORK));
    order_.tenant = order_.generation = 1;
    tenant_.run(0, [&] {
      CUcontext context = nullptr;
      for (int i = 0; i < retains; ++i) {
        EXPECT_EQ(driver_call("cuDevicePrimaryCtxRetain", &context, 0), CUDA_SUCCESS);
      }
    });
  }
  ~Neighbour() { std::filesystem::remove(file_); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  void work() {
    ++order_.seed;
    tenant_.run(0, [&] { work_(&order_); });
    EXPECT_EQ(order_.status, 0) << order_.call;
    EXPECT_EQ(order_.wrong, 0U);
  }
  soak::Resources look() {
    return tenant_.run(0, [] { return soak::resources(); });
  }
  // Releases the primary context as often as the neighbour retained it. One release more is
  // refused.
  void release_all() {
    tenant_.run(0, [] {
      for (int i = 0; i < retains; ++i) {
        EXPECT_EQ(driver_call("cuDevicePrimaryCtxRelease_v2", 0), CUDA_SUCCESS);
      }
      EXPECT_EQ(driver_call("cuDevicePrimaryCtxRelease_v2", 0), CUDA_ERROR_INVALID_CONTEXT);
    });
  }

 private:
  static constexpr int retains = 3;
  Tenant tenant_;
  std::filesystem::path file_;
  work_function* work_ = nullptr;
  WorkOrder order_{};
};

// The last record that says that a library stays.
std::string last_stay;  // the library is unloaded on this thread

void live_once(Broker& broker, unsigned number) {
  static const std::vector<std::string> all = modes();
  constexpr LeaseKind kinds[] = {LeaseKind::green, LeaseKind::shared, LeaseKind::private_own};
  const std::string& mode = all[number % all.size()];
  TenantOptions options{LeaseChoice(kinds[number / all.size() % std::size(kinds)])};
  options.unload_at_close = true;
  Tenant tenant = broker.open_tenant("leaker", options);
  const AdoptedLibrary library = tenant.adopt(test_library(mode));
  tenant.run(0, [&] {
    leak_everything([&](const char* name) { return library.symbol(name); }, number, mode);
  });
  tenant.close();
  EXPECT_EQ(dlopen(test_library(mode).c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr)
      << mode << " is still in the process: " << last_stay;
}

bool primary_is_active() {
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
  return active != 0;
}

TEST(Baseline, DISABLED_ManyLoadsWithABroker) {
  const unsigned warm = 12;
  const unsigned loads = driver_is_software() ? 1000 : 50;
  BrokerOptions options;
  options.records = [](const Record& record) {
    if (record.text.find("stays in the process") != std::string::npos) last_stay = record.text;
  };
  Broker broker = Broker::open(options);
  ASSERT_TRUE(broker.gate().in_force) << broker.gate().reason;
  soak::Resources before, after;
  {
    Neighbour neighbour(broker);
    // Each mode with each kind of lease once: what is made once in a process is no drift.
    for (unsigned number = 0; number < warm; ++number) live_once(broker, number);
    neighbour.work();
    before = neighbour.look();
    for (unsigned number = 0; number < loads && !testing::Test::HasFailure(); ++number) {
      live_once(broker, warm + number);
      if (number % 16 == 0) neighbour.work();
    }
    settled_process_state(before.threads);
    after = neighbour.look();
    neighbour.work();
    neighbour.release_all();
  }
  std::printf("%u loads and unloads\n  before: %s\n  after:  %s\n", loads, words(before).c_str(),
              words(after).c_str());
  // Each load leaked 2 MiB and more; a green context may keep a little for its successors.
  EXPECT_GE(after.device_bytes_free + 32 * leak, before.device_bytes_free);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  broker.close();
  EXPECT_FALSE(primary_is_active()) << "somebody's retain was not given back";
}

// Free memory is the whole device's: a GPU must be nobody else's meanwhile.
//
// The positive control: the same libraries and misdeeds, loaded as any other.
TEST(Baseline, DISABLED_ManyLoadsWithoutABroker) {
  CUcontext primary = nullptr;
  ASSERT_EQ(driver_call("cuInit", 0U), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuCtxSetCurrent", primary), CUDA_SUCCESS);
  const soak::Resources before = soak::resources();
  for (unsigned number = 1; number < 12; number += 3) {  // no reset: it would free it all
    void* const library = dlopen(test_library("attacks_dlsym").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    leak_everything([&](const char* name) { return dlsym(library, name); }, number, "dlsym");
    dlclose(library);
  }
  const soak::Resources after = soak::resources();
  std::printf("before: %s\nafter:  %s\n", words(before).c_str(), words(after).c_str());
  if (after.device_bytes_free + leak < before.device_bytes_free) std::printf("MEMORY IS GONE\n");
  driver_call("cuDevicePrimaryCtxRelease_v2", 0);
  if (primary_is_active()) std::printf("RETAINS ARE LEFT\n");
}

ChildResult in_child(const char* test) {
  Environment environment;
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  return run_child(std::string("Baseline.DISABLED_") + test, environment);
}

TEST(BaselineTest, ManyLoadsWithABrokerLeaveNoMemoryOrRetains) {
  const ChildResult child = in_child("ManyLoadsWithABroker");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  if (const auto at = child.output.find(" loads and unloads"); at != std::string::npos) {
    const auto line = child.output.rfind('\n', at) + 1;
    std::printf("%s", child.output.substr(line, child.output.find('[', line) - line).c_str());
  }
}

TEST(BaselineTest, ManyLoadsWithoutABrokerLeaveMemoryAndRetains) {
  const ChildResult child = in_child("ManyLoadsWithoutABroker");
  EXPECT_THAT(child.output, HasSubstr("MEMORY IS GONE"));
  EXPECT_THAT(child.output, HasSubstr("RETAINS ARE LEFT"));
}

}  // namespace
}  // namespace ctxbroker
