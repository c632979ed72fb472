// SPDX-License-Identifier: Apache-2.0
// A process that a plug-in or the host has forked, without exec, and that calls the driver. Drivers
// do not work there, and say so at once. The gate's rules would wait for what a thread of the first
// process had locked.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "ctxbroker/device_memory.hpp"
#include "gate/gate.hpp"
#include "gate/held.hpp"
#include "gate/rule.hpp"
#include "ledger/ledger.hpp"
#include "plugin/access.hpp"
#include "plugin/tenant_impl.hpp"
#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

// A thread that is in the middle of a change of the ledger.
class LockedLedger {
 public:
  explicit LockedLedger(std::uint64_t generation) {
    std::promise<void> locked;
    thread_ = std::thread([this, generation, &locked] {
      detail::ledger().any_stream_in(generation, [&](CUstream) {
        locked.set_value();
        end_.get_future().wait();
        return true;
      });
    });
    locked.get_future().wait();
  }
  ~LockedLedger() {
    end_.set_value();
    thread_.join();
  }
  LockedLedger(const LockedLedger&) = delete;
  LockedLedger& operator=(const LockedLedger&) = delete;

 private:
  std::promise<void> end_;
  std::thread thread_;
};

void install_rules_again() {
  const auto get =
      reinterpret_cast<const ctxb_gate* (*)()>(driver_function_by_name("ctxb_gate_get"));
  const ctxb_gate& gate = *get();
  for (std::uint32_t index = 0; index < gate.count; ++index) {
    for (std::size_t i = 0; i < detail::rule_count(); ++i) {
      const detail::RuleRow& row = detail::rule_at(i);
      if (row.rule != nullptr && std::string(row.symbol) == gate.entries[index].symbol) {
        gate.install(index, row.rule());
      }
    }
  }
}

class ForkedProcessTest : public RecordingBrokerTest {
 protected:
  ForkedProcessTest() : tenant(broker.open_tenant("forks")) {}

  // Frees memory in a forked process. Returns the driver's answer there, or -1 if none came.
  template <typename Free>
  int answer_in_child(Free&& free) {
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    tenant.run(0, [&] {
      check_driver_call("cuStreamCreate", &stream, unsigned(CU_STREAM_NON_BLOCKING));
      check_driver_call("cuMemAlloc_v2", &memory, std::size_t{256});
    });
    pid_t child = -1;
    {
      const LockedLedger locked(detail::Access::of(tenant)->lease(0).generation());
      child = ::fork();
      if (child == 0) ::_exit(static_cast<int>(free(memory)));
    }
    tenant.run(0, [&] {
      check_driver_call("cuMemFree_v2", memory);
      check_driver_call("cuStreamDestroy_v2", stream);
    });
    return wait_for(child);
  }
  static CUresult free_at_gate(CUdeviceptr memory) { return driver_call("cuMemFree_v2", memory); }
  static int wait_for(pid_t child) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) {
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  Tenant tenant;
};

TEST_F(ForkedProcessTest, GetsTheDriversAnswerAtOnce) {
  const RawDriver raw(broker.driver().path);
  const auto free_past_gate = [&](CUdeviceptr memory) { return raw.call("cuMemFree_v2", memory); };
  const int answer = answer_in_child(free_at_gate);
  EXPECT_EQ(answer, answer_in_child(free_past_gate));
  EXPECT_EQ(answer, CUDA_ERROR_NOT_INITIALIZED);
}

TEST_F(ForkedProcessTest, WithTheRulesItWouldWaitForEverAsAControl) {
  const auto free_by_rules = [](CUdeviceptr memory) {
    install_rules_again();
    return free_at_gate(memory);
  };
  EXPECT_EQ(answer_in_child(free_by_rules), -1);
}

TEST_F(ForkedProcessTest, TheFirstProcessKeepsItsRules) {
  answer_in_child(free_at_gate);
  tenant.run(0, [&] {
    CUdeviceptr memory = 0;
    check_driver_call("cuMemAlloc_v2", &memory, std::size_t{256});
    EXPECT_TRUE(detail::ledger().find_memory_at(memory).has_value()) << "a rule has booked it";
    check_driver_call("cuMemFree_v2", memory);
  });
}

// The objects of the first process stay its own. Their locks may be held by a thread of it.
TEST_F(ForkedProcessTest, ObjectsThatEndThereWaitForNobody) {
  static_cast<void>(tenant.create_stream());  // the ledger is looked through for it
  std::optional<DeviceMemory> memory(std::in_place, tenant, 4096);
  std::optional<Tenant> own(std::move(tenant));
  std::optional<Broker> its(std::move(broker));
  pid_t child = -1;
  {
    const LockedLedger locked(detail::Access::of(*own)->lease(0).generation());
    child = ::fork();
    if (child == 0) {
      memory.reset();
      own.reset();
      its.reset();
      ::_exit(0);
    }
  }
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(own->memory_bytes(), 4096U) << "the first process has it still";
  memory.reset();
  own->close();
  its->close();
}

// Does what a plug-in does that forks inside one of its functions, and returns from it.
TEST_F(ForkedProcessTest, GuardThatEndsThereSaysNothing) {
  pid_t child = -1;
  std::size_t before = 0;
  tenant.run(0, [&] {
    before = said().size();
    child = ::fork();
    if (child == 0) current();
  });
  if (child == 0) ::_exit(static_cast<int>(said().size() - before));
  EXPECT_EQ(wait_for(child), 0);
}

}  // namespace
}  // namespace ctxbroker
