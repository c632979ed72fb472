// SPDX-License-Identifier: Apache-2.0
// The C host API, as a host written in C meets it.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "attacks/attacks.h"
#include "broker_fixture.hpp"
#include "ctxbroker/host.h"
#include "ctxbroker/version.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CHostTest : public ::testing::Test {
 public:
  ~CHostTest() override { EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error(); }

 protected:
  CHostTest() {
    ctxb_broker_options options{};
    options.size = sizeof options;
    options.host_name = "a C host";
    options.record = [](void* data, uint32_t severity, uint32_t tenant, const char* name,
                        const char* topic, const char* text) {
      static_cast<std::vector<std::string>*>(data)->push_back(std::to_string(severity) + " " +
                                                              std::to_string(tenant) + " " + name +
                                                              " " + topic + ": " + text);
    };
    options.record_data = &said;
    EXPECT_EQ(ctxb_broker_open(&options, &broker), CTXB_OK) << ctxb_last_error();
  }

  ctxb_tenant* open(uint32_t lease = CTXB_LEASE_AUTO) {
    ctxb_tenant_options options{};
    options.size = sizeof options;
    options.lease = lease;
    ctxb_tenant* tenant = nullptr;
    EXPECT_EQ(ctxb_tenant_open(broker, "filter", &options, &tenant), CTXB_OK) << ctxb_last_error();
    return tenant;
  }
  static ctxb_lease_info lease(ctxb_tenant* tenant) {
    ctxb_lease_info info{};
    info.size = sizeof info;
    EXPECT_EQ(ctxb_tenant_lease(tenant, 0, &info), CTXB_OK) << ctxb_last_error();
    return info;
  }

  static std::vector<std::string> tools_of(const ctxb_gate_info& info) {
    std::vector<std::string> tools;
    for (const char* const* tool = info.tools; *tool != nullptr; ++tool) tools.emplace_back(*tool);
    return tools;
  }

  std::vector<std::string> said;
  ctxb_broker* broker = nullptr;
};

TEST_F(CHostTest, TenantIsOpenedEnteredLeftAndClosed) {
  EXPECT_GE(ctxb_broker_device_count(broker), 1u);
  for (const uint32_t kind : {CTXB_LEASE_SHARED, CTXB_LEASE_PRIVATE}) {
    ctxb_tenant* tenant = open(kind);
    const ctxb_lease_info info = lease(tenant);
    EXPECT_EQ(info.kind, kind);
    EXPECT_EQ(info.state, CTXB_STATE_READY);
    EXPECT_NE(info.context, nullptr);
    EXPECT_STREQ(info.tenant, "filter");
    ctxb_lease_info shorter{};
    shorter.size = offsetof(ctxb_lease_info, tenant);
    EXPECT_EQ(ctxb_tenant_lease(tenant, 0, &shorter), CTXB_OK);
    EXPECT_EQ(shorter.tenant, nullptr) << "not the caller's";
    EXPECT_EQ(shorter.generation, info.generation);
    EXPECT_GT(info.multiprocessors, 0u);
    ctxb_guard outer, inner;
    ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "render", &outer), CTXB_OK);
    ASSERT_EQ(ctxb_tenant_enter(tenant, 0, nullptr, &inner), CTXB_OK);
    EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_ERROR_WRONG_STATE);
    EXPECT_THAT(ctxb_last_error(), HasSubstr("end its guards first"));
    ctxb_guard_leave(&inner);
    ctxb_guard_leave(&outer);
    EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
  }
  EXPECT_THAT(said, Contains(HasSubstr("filter lease: ")));
}

TEST_F(CHostTest, TenantAllocatesIsRenewedAfterLossAndAdoptsLibraries) {
  ctxb_tenant* tenant = open();
  uint64_t address = 0;
  void* stream = nullptr;
  EXPECT_EQ(ctxb_tenant_allocate(tenant, 0, 4096, &address), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_create_stream(tenant, 0, &stream), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_release(tenant, address + 1), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_destroy_stream(tenant, stream), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_release(tenant, address), CTXB_OK);
  const uint64_t before = lease(tenant).generation;
  EXPECT_EQ(ctxb_tenant_force_loss(tenant, 0, "a test"), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_report_status(tenant, 0, 0), uint32_t{CTXB_STATE_LOST});
  EXPECT_GT(lease(tenant).generation, before);
  EXPECT_EQ(ctxb_tenant_report_status(tenant, 0, 0), uint32_t{CTXB_STATE_READY});
  EXPECT_EQ(ctxb_tenant_report_status(nullptr, 0, 0), uint32_t{CTXB_STATE_LOST});
  ctxb_library* library = nullptr;
  EXPECT_EQ(ctxb_tenant_adopt(tenant, test_plugin("unloadable").c_str(), &library), CTXB_OK);
  EXPECT_NE(ctxb_library_symbol(library, "ctxb_plugin_entry"), nullptr);
  EXPECT_EQ(ctxb_library_symbol(library, "nothing"), nullptr);
  EXPECT_EQ(ctxb_tenant_adopt(tenant, "/no/such/file.so", &library), CTXB_ERROR_UNAVAILABLE);
  EXPECT_EQ(library, nullptr);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("/no/such/file.so"));
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

// Appends the text to the std::string at `data`, as the sink of a C host.
ctxb_status append(void* data, const char* text, uint64_t bytes) {
  static_cast<std::string*>(data)->append(text, bytes);
  return CTXB_OK;
}

TEST_F(CHostTest, BrokerDescribesDriverAndDevices) {
  EXPECT_STREQ(ctxb_version(), version());
  ctxb_driver_info driver{};
  driver.size = sizeof driver;
  ASSERT_EQ(ctxb_broker_driver(broker, &driver), CTXB_OK) << ctxb_last_error();
  EXPECT_GE(driver.version, 12000);
  EXPECT_STRNE(driver.path, "");
  EXPECT_STRNE(driver.reason, "");
  ctxb_device_info device{};
  EXPECT_EQ(ctxb_broker_device(broker, 0, &device), CTXB_ERROR_INVALID_ARGUMENT) << "no size";
  device.size = sizeof device;
  ASSERT_EQ(ctxb_broker_use_device(broker, 0), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_broker_device(broker, 0, &device), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(device.device, 0);
  EXPECT_STRNE(device.name, "");
  EXPECT_GT(device.compute_major, 0u);
  EXPECT_GT(device.multiprocessors, 0u);
  EXPECT_GT(device.memory_bytes, 0u);
  EXPECT_EQ(device.in_use, 1u);
  EXPECT_EQ(ctxb_broker_device(broker, 99, &device), CTXB_ERROR_UNAVAILABLE);
  EXPECT_EQ(ctxb_broker_use_device(broker, -1), CTXB_ERROR_UNAVAILABLE);
  // The members that an older header lacks are left alone.
  device.size = offsetof(ctxb_device_info, memory_bytes);
  device.memory_bytes = 77;
  EXPECT_EQ(ctxb_broker_device(broker, 0, &device), CTXB_OK);
  EXPECT_EQ(device.memory_bytes, 77u);
  EXPECT_EQ(device.size, offsetof(ctxb_device_info, memory_bytes));
}

// In a child: of a device that an MPS server shares.
TEST_F(CHostTest, DISABLED_DeviceInfoPrintsMps) {
  ctxb_device_info device{};
  device.size = sizeof device;
  ASSERT_EQ(ctxb_broker_device(broker, 0, &device), CTXB_OK) << ctxb_last_error();
  std::printf("client %u\n", device.mps);
}

TEST_F(CHostTest, DeviceInfoSaysWhetherTheProcessIsAnMpsClient) {
  for (const std::string server : {"/tmp/nvidia-mps", "/run/other"}) {
    const ChildResult child = run_child("CHostTest.DISABLED_DeviceInfoPrintsMps",
                                        {{"CTXBROKER_DRIVER", "software"},
                                         {"CTXBROKER_SOFTWARE_MPS", server},
                                         {"CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"}});
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_THAT(child.output, HasSubstr(server == "/run/other" ? "client 0" : "client 1"));
  }
}

TEST_F(CHostTest, MetricsAndTimelineAreWrittenAsJson) {
  EXPECT_EQ(ctxb_broker_stop_timeline(broker), CTXB_OK);
  ASSERT_EQ(ctxb_broker_start_timeline(broker, 1 << 20), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_broker_start_timeline(broker, 0), CTXB_ERROR_WRONG_STATE);
  ctxb_tenant_options with_pool{};
  with_pool.size = sizeof with_pool;
  with_pool.memory = CTXB_MEMORY_POOL;
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_tenant_open(broker, "filter", &with_pool, &tenant), CTXB_OK) << ctxb_last_error();
  ctxb_guard guard;
  ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "render", &guard), CTXB_OK) << ctxb_last_error();
  ctxb_guard_leave(&guard);
  std::string metrics, timeline;
  ASSERT_EQ(ctxb_broker_write_metrics(broker, append, &metrics), CTXB_OK) << ctxb_last_error();
  EXPECT_THAT(metrics, StartsWith("{"));
  EXPECT_THAT(metrics, HasSubstr("ctxbroker.metrics/1"));
  EXPECT_THAT(metrics, HasSubstr("filter"));
  EXPECT_THAT(metrics, HasSubstr(R"("memory": "pool")"));
  ctxb_timeline_summary summary{};
  summary.size = sizeof summary;
  ASSERT_EQ(ctxb_broker_send_timeline(broker, append, &timeline, &summary), CTXB_OK)
      << ctxb_last_error();
  EXPECT_GT(summary.spans, 0u);
  EXPECT_GE(summary.threads, 1u);
  EXPECT_THAT(timeline, HasSubstr("render"));
  const std::string file = testing::TempDir() + "ctxb_c_host_timeline.json";
  ASSERT_EQ(ctxb_broker_write_timeline(broker, file.c_str(), nullptr), CTXB_OK)
      << ctxb_last_error();
  std::ifstream written(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}).size(), timeline.size());
  std::remove(file.c_str());
  EXPECT_EQ(ctxb_broker_write_timeline(broker, "/no/such/folder/file", nullptr), CTXB_ERROR);
  EXPECT_EQ(ctxb_broker_write_timeline(broker, "", nullptr), CTXB_ERROR);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("cannot be written: its name is empty"));
  // The call returns the status with which the callback refuses the text.
  const auto full = [](void*, const char*, uint64_t) -> ctxb_status {
    return CTXB_ERROR_UNAVAILABLE;
  };
  EXPECT_EQ(ctxb_broker_write_metrics(broker, full, nullptr), CTXB_ERROR_UNAVAILABLE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("was not taken"));
  EXPECT_EQ(ctxb_broker_write_metrics(broker, nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

TEST_F(CHostTest, PollTellsATenantOnceOfEachGenerationThatItLost) {
  struct Told {
    uint32_t tenant, reason;
    uint64_t generation;
    std::string text;
  };
  std::vector<Told> told;
  ctxb_tenant_options options{};
  options.size = sizeof options;
  options.on_loss = [](void* data, const ctxb_lease_loss* loss) {
    EXPECT_EQ(loss->size, sizeof *loss);
    EXPECT_EQ(loss->device, 0);
    static_cast<std::vector<Told>*>(data)->push_back(
        {loss->tenant, loss->reason, loss->generation, loss->text});
  };
  options.on_loss_data = &told;
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_tenant_open(broker, "filter", &options, &tenant), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(ctxb_tenant_name(tenant), "filter");
  const uint64_t generation = lease(tenant).generation;
  EXPECT_EQ(ctxb_broker_poll(broker), CTXB_OK);
  EXPECT_THAT(told, SizeIs(0)) << "nothing was lost";
  EXPECT_EQ(ctxb_tenant_force_loss(tenant, 0, "a test"), CTXB_OK);
  EXPECT_THAT(told, SizeIs(0)) << "only poll tells";
  EXPECT_EQ(ctxb_broker_poll(broker), CTXB_OK);
  EXPECT_EQ(ctxb_broker_poll(broker), CTXB_OK);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].tenant, ctxb_tenant_id(tenant));
  EXPECT_EQ(told[0].reason, static_cast<uint32_t>(CTXB_LOSS_GIVEN_UP));
  EXPECT_EQ(told[0].generation, generation);
  EXPECT_NE(told[0].text, "");
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

TEST_F(CHostTest, TheHostsTenantIsWhatTheBrokersOptionsAskFor) {
  ctxb_tenant_options wanted{};
  wanted.size = sizeof wanted;
  wanted.lease = CTXB_LEASE_PRIVATE;
  ctxb_broker_options options{};
  options.size = sizeof options;
  options.host = &wanted;
  options.host_version = "7";
  options.job_timeout_ms = 1000;
  options.end_timeout_ms = 500;
  ctxb_broker* other = nullptr;
  ASSERT_EQ(ctxb_broker_open(&options, &other), CTXB_OK) << ctxb_last_error();
  ctxb_tenant *one = nullptr, *two = nullptr;
  ASSERT_EQ(ctxb_broker_host(other, &one), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_broker_host(other, &two), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_id(one), 0u);
  EXPECT_STREQ(ctxb_tenant_name(one), "host");
  const ctxb_lease_info info = lease(one);
  EXPECT_EQ(info.kind, uint32_t{CTXB_LEASE_PRIVATE});
  EXPECT_EQ(info.asked_kind, uint32_t{CTXB_LEASE_PRIVATE});
  EXPECT_STREQ(info.reason, "the host asked for private");
  uint64_t address = 0;
  EXPECT_EQ(ctxb_tenant_allocate(one, 0, 4096, &address), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_close(one), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_memory_bytes(two), 4096u) << "the other handle holds it";
  EXPECT_EQ(ctxb_broker_close(other), CTXB_ERROR_WRONG_STATE);
  EXPECT_EQ(ctxb_tenant_close(two), CTXB_OK);
  EXPECT_EQ(ctxb_broker_close(other), CTXB_OK);
}

TEST_F(CHostTest, ReadyContextsArePausedAndWaitedFor) {
  uint32_t ready = 0;
  EXPECT_EQ(ctxb_broker_wait_until_ready(broker, &ready), CTXB_OK);
  EXPECT_EQ(ready, 1u) << "none was asked for";
  EXPECT_EQ(ctxb_broker_begin_realtime(broker), CTXB_OK);
  EXPECT_EQ(ctxb_broker_wait_until_ready(broker, nullptr), CTXB_OK);
  EXPECT_EQ(ctxb_broker_end_realtime(broker), CTXB_OK);
  EXPECT_EQ(ctxb_broker_end_realtime(broker), CTXB_ERROR_WRONG_STATE) << "one too many";
  EXPECT_THAT(ctxb_last_error(), HasSubstr("no begin_realtime is open"));
  ctxb_tenant* tenant = open();
  EXPECT_NE(ctxb_tenant_enable_peer_access(tenant, 0, 0), CTXB_OK)
      << "a device is no peer of itself";
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

TEST_F(CHostTest, CallsThatHoldUpNeighboursAreCountedInASession) {
  ctxb_tenant* tenant = open();
  ctxb_realtime_totals totals{};
  EXPECT_EQ(ctxb_tenant_realtime(tenant, nullptr, &totals), CTXB_ERROR_INVALID_ARGUMENT)
      << "no size";
  totals.size = sizeof totals;
  const auto count = [&](const char* call) {
    EXPECT_EQ(ctxb_tenant_realtime(tenant, call, &totals), CTXB_OK) << ctxb_last_error();
    EXPECT_GE(totals.seconds, totals.longest_seconds);
    EXPECT_EQ(totals.longest_seconds > 0, totals.count != 0);
    EXPECT_EQ(totals.refused, 0u);
    return totals.count;
  };
  const auto make_lease = [&] {
    uint64_t address = 0;
    EXPECT_EQ(ctxb_tenant_allocate(tenant, 0, 4096, &address), CTXB_OK);
    EXPECT_EQ(ctxb_tenant_release(tenant, address), CTXB_OK);
  };
  EXPECT_EQ(count(nullptr), 0u);
  EXPECT_EQ(ctxb_broker_begin_realtime(broker), CTXB_OK);
  make_lease();
  EXPECT_EQ(ctxb_broker_end_realtime(broker), CTXB_OK);
  make_lease();
  EXPECT_EQ(count("make lease"), 1u);
  EXPECT_GE(count(nullptr), 1u);
  EXPECT_EQ(count("cuMemAlloc"), 0u) << "only calls of the tenant's code have this name";
  EXPECT_EQ(ctxb_tenant_realtime(tenant, "cuLaunchKernel", &totals), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("cuMemHostRegister"));
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
}

TEST_F(CHostTest, BadArgumentsAreAnsweredWithASentence) {
  EXPECT_EQ(ctxb_broker_open(nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  ctxb_broker* other = nullptr;
  ctxb_broker_options options{};
  EXPECT_EQ(ctxb_broker_open(&options, &other), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("sizeof(ctxb_broker_options)"));
  options.size = sizeof options;
  options.driver = "amd";
  EXPECT_EQ(ctxb_broker_open(&options, &other), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("\"amd\" is not a driver"));
  ctxb_tenant* tenant = open();
  EXPECT_EQ(ctxb_tenant_lease(tenant, 0, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  ctxb_guard guard;
  EXPECT_EQ(ctxb_tenant_enter(tenant, 99, "x", &guard), CTXB_ERROR_UNAVAILABLE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("there is no device 99"));
  EXPECT_EQ(ctxb_tenant_enter(nullptr, 0, "x", &guard), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_broker_close(broker), CTXB_ERROR_WRONG_STATE) << "a tenant is open";
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
  ctxb_tenant_options asked{};
  asked.size = sizeof asked;
  asked.lease = CTXB_LEASE_WORKER;
  EXPECT_EQ(ctxb_tenant_open(broker, "x", &asked, &tenant), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tenant, nullptr);
}

// More about the gate in gate_contract_test; here, that a C host can ask.
TEST_F(CHostTest, GateBudgetAndTenantUsageAreReported) {
  ctxb_gate_info gate{};
  EXPECT_EQ(ctxb_broker_gate(broker, &gate), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("sizeof(ctxb_gate_info)"));
  gate.size = sizeof gate;
  EXPECT_EQ(ctxb_broker_gate(nullptr, &gate), CTXB_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(ctxb_broker_gate(broker, &gate), CTXB_OK) << ctxb_last_error();
  EXPECT_STRNE(gate.reason, "");
  ASSERT_NE(gate.tools, nullptr);

  ctxb_broker_options without{};
  without.size = sizeof without;
  without.without_gate = 1;
  ctxb_broker* other = nullptr;
  ASSERT_EQ(ctxb_broker_open(&without, &other), CTXB_OK) << ctxb_last_error();
  ctxb_gate_info none{};
  none.size = sizeof none;
  EXPECT_EQ(ctxb_broker_gate(other, &none), CTXB_OK);
  EXPECT_EQ(none.in_force, 0u);
  EXPECT_EQ(none.mode, static_cast<std::uint32_t>(CTXB_GATE_NONE));
  EXPECT_EQ(gate.mode != CTXB_GATE_NONE, gate.in_force != 0);
  // A host whose header lacks a member is told nothing there, whatever lies behind its struct.
  const char* const untouched = "untouched";
  none.size = offsetof(ctxb_gate_info, tools);
  none.tools = &untouched;
  EXPECT_EQ(ctxb_broker_gate(other, &none), CTXB_OK);
  EXPECT_EQ(none.tools, &untouched);
  EXPECT_EQ(ctxb_broker_close(other), CTXB_OK);

  EXPECT_EQ(ctxb_tenant_strikes(nullptr), 0u);
  EXPECT_EQ(ctxb_tenant_guarded_calls(nullptr, nullptr), 0u);
  EXPECT_EQ(ctxb_tenant_held(nullptr, nullptr, nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_waits(nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_realtime(nullptr, nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  constexpr std::uint64_t budget = 1U << 20;
  for (const bool limited : {true, false}) {
    ctxb_tenant_options options{};
    options.size = sizeof options;
    options.driver_memory_budget = budget;
    // A host whose header has no budgets has none, whatever lies behind its struct.
    if (!limited) options.size = offsetof(ctxb_tenant_options, memory);
    ctxb_tenant* tenant = nullptr;
    ASSERT_EQ(ctxb_tenant_open(broker, "counted", &options, &tenant), CTXB_OK);
    ctxb_library* library = nullptr;
    ASSERT_EQ(ctxb_tenant_adopt(tenant, test_plugin("attacks_dlsym").c_str(), &library), CTXB_OK);
    auto* const allocate =
        reinterpret_cast<allocate_function*>(ctxb_library_symbol(library, ALLOCATE));
    auto* const attack = reinterpret_cast<attack_function*>(ctxb_library_symbol(library, ATTACK));
    ctxb_guard guard;
    ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "misdeeds", &guard), CTXB_OK);
    if (gate.in_force != 0) {
      EXPECT_NE(allocate(budget / 2), 0u);
      EXPECT_EQ(allocate(budget) != 0, !limited);
      const AttackTarget nothing{};
      attack("reset", &nothing);
      attack("release", &nothing);
    }
    ctxb_guard_leave(&guard);
    const auto expected = [&](std::uint64_t calls) { return gate.in_force != 0 ? calls : 0; };
    EXPECT_EQ(ctxb_tenant_strikes(tenant) > 0, gate.in_force != 0);
    EXPECT_EQ(ctxb_tenant_guarded_calls(tenant, "cuDevicePrimaryCtxReset"), expected(1));
    EXPECT_EQ(ctxb_tenant_guarded_calls(tenant, "cuMemAlloc_v2"), expected(2));
    EXPECT_GE(ctxb_tenant_guarded_calls(tenant, nullptr), expected(11));
    std::uint64_t things = 7, bytes = 7;
    EXPECT_EQ(ctxb_tenant_held(tenant, "device memory", &things, &bytes), CTXB_OK);
    EXPECT_EQ(things, expected(limited ? 1 : 2));
    EXPECT_EQ(bytes, expected(limited ? budget / 2 : budget / 2 + budget));
    EXPECT_EQ(ctxb_tenant_held(tenant, "stream", &things, nullptr), CTXB_OK);
    EXPECT_EQ(things, 0u);
    EXPECT_EQ(ctxb_tenant_held(tenant, nullptr, nullptr, &bytes), CTXB_OK);
    EXPECT_GE(bytes, expected(budget / 2));
    ctxb_wait_totals waits{};
    EXPECT_EQ(ctxb_tenant_waits(tenant, &waits), CTXB_ERROR_INVALID_ARGUMENT) << "no size";
    waits.size = sizeof waits;
    waits.count = 7;
    EXPECT_EQ(ctxb_tenant_waits(tenant, &waits), CTXB_OK);
    EXPECT_EQ(waits.count, 0u);
    ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "waits", &guard), CTXB_OK);
    if (gate.in_force != 0) {
      AttackTarget own{};
      own.memory = allocate(64);
      attack("overwrite_memory", &own);  // and synchronises
    }
    ctxb_guard_leave(&guard);
    EXPECT_EQ(ctxb_tenant_waits(tenant, &waits), CTXB_OK);
    EXPECT_EQ(waits.count, expected(1));
    EXPECT_EQ(waits.seconds > 0, gate.in_force != 0);
    EXPECT_GE(waits.seconds, waits.longest_seconds);
    EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << ctxb_last_error();
  }
}

// The driver is there already, so that nobody loads the tool.
TEST_F(CHostTest, ToolCountsThatWasNamedBeforeTheFirstBrokerWasOpened) {
  constexpr const char* path_variable = "CUDA_INJECTION64_PATH";
  ASSERT_EQ(getenv(path_variable), nullptr) << "the test sets it";
  ctxb_gate_info gate{};
  gate.size = sizeof gate;
  ASSERT_EQ(ctxb_broker_gate(broker, &gate), CTXB_OK) << ctxb_last_error();
  const std::size_t usual = tools_of(gate).size();
  ctxb_broker_options without{};
  without.size = sizeof without;
  without.without_gate = 1;
  const auto tools_of_new_broker = [&](ctxb_broker** made) {
    setenv(path_variable, "/no/such/tool.so", 1);
    const ctxb_status opened = ctxb_broker_open(&without, made);
    unsetenv(path_variable);
    EXPECT_EQ(opened, CTXB_OK) << ctxb_last_error();
    ctxb_gate_info info{};
    info.size = sizeof info;
    EXPECT_EQ(ctxb_broker_gate(*made, &info), CTXB_OK) << ctxb_last_error();
    return tools_of(info);
  };
  ctxb_broker* second = nullptr;
  EXPECT_THAT(tools_of_new_broker(&second), SizeIs(usual)) << "a plug-in may have set it";
  EXPECT_EQ(ctxb_broker_close(second), CTXB_OK);
  ASSERT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  const std::vector<std::string> tools = tools_of_new_broker(&broker);
  EXPECT_THAT(tools, SizeIs(usual + 1));
  EXPECT_THAT(tools, Contains(HasSubstr("/no/such/tool.so (CUDA_INJECTION64_PATH)")));
}

constexpr const char* private_for_effect =
    R"({"schema": "ctxbroker.policy/1", "by_id": {"org.example.effect": {"lease": "private"}}})";

// The kind that a tenant of that name gets from a broker with these options.
uint32_t granted(const ctxb_broker_options& options) {
  ctxb_broker* governed = nullptr;
  ctxb_tenant* tenant = nullptr;
  ctxb_lease_info info{};
  info.size = sizeof info;
  EXPECT_EQ(ctxb_broker_open(&options, &governed), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_open(governed, "org.example.effect", nullptr, &tenant), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_lease(tenant, 0, &info), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
  EXPECT_EQ(ctxb_broker_close(governed), CTXB_OK);
  return info.kind;
}

TEST_F(CHostTest, APolicyFromAFileOrFromTextDecides) {
  const std::string file = testing::TempDir() + "ctxb_c_host_policy.json";
  std::ofstream(file) << private_for_effect;
  ctxb_broker_options options{};
  options.size = sizeof options;
  EXPECT_NE(granted(options), CTXB_LEASE_PRIVATE) << "without a policy";
  options.policy_text = private_for_effect;
  EXPECT_EQ(granted(options), CTXB_LEASE_PRIVATE);
  options.policy_text = nullptr;
  options.policy_file = file.c_str();
  EXPECT_EQ(granted(options), CTXB_LEASE_PRIVATE);
  // A host whose header has no policies has none, whatever lies behind its struct.
  options.size = offsetof(ctxb_broker_options, policy_file);
  EXPECT_NE(granted(options), CTXB_LEASE_PRIVATE);
  std::remove(file.c_str());
}

TEST_F(CHostTest, APolicyThatCannotBeUsedIsRefusedWithThePlaceInIt) {
  struct Case {
    const char *file, *text, *error;
  };
  for (const Case& one : {
           Case{nullptr, R"({"schema": "ctxbroker.policy/1", "for_all": {"lease": "blue"}})",
                "policy \"policy_text\": $.for_all.lease: \"blue\" is not a lease"},
           Case{nullptr, "", "policy \"policy_text\": is not JSON"},
           Case{"/no/such/policy.json", nullptr, "\"/no/such/policy.json\": there is no such file"},
           Case{"a", "b", "both policy_file and policy_text are given"},
       }) {
    ctxb_broker_options options{};
    options.size = sizeof options;
    options.policy_file = one.file;
    options.policy_text = one.text;
    ctxb_broker* none = broker;
    EXPECT_EQ(ctxb_broker_open(&options, &none), CTXB_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(none, nullptr);
    EXPECT_THAT(ctxb_last_error(), HasSubstr(one.error));
  }
}

TEST_F(CHostTest, TheLastErrorIsTheThreadsOwn) {
  ctxb_guard guard;
  EXPECT_EQ(ctxb_tenant_enter(nullptr, 0, "x", &guard), CTXB_ERROR_INVALID_ARGUMENT);
  std::thread([] { EXPECT_STREQ(ctxb_last_error(), ""); }).join();
  EXPECT_STRNE(ctxb_last_error(), "");
}

}  // namespace
}  // namespace ctxbroker
