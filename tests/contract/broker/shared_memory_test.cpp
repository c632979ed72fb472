// SPDX-License-Identifier: Apache-2.0
// Device memory that processes share: the other one makes it, and this one runs a job on it in
// place.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "ctxbroker/host.h"
#include "no_descriptors.hpp"
#include "shared_memory_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// The other process. It gives its memory back when it is told to, and ends.
TEST_F(SharedMemoryTest, DISABLED_OtherProcessMakesAndSendsMemory) {
  const char* const socket = std::getenv(shared_memory_socket);
  ASSERT_NE(socket, nullptr) << "only the test below starts it";
  const Connection parent(std::atoi(socket));
  Tenant tenant = broker.open_tenant("maker");
  DeviceMemory memory = DeviceMemory::shareable(tenant, bytes);
  fill(tenant, memory, 3);
  parent.send(memory.bytes(), exported(memory).get());
  parent.receive();
  EXPECT_THAT(fetch(tenant, memory), Each(6.0F)) << "what the other process's job wrote";
  memory.reset();
  EXPECT_EQ(tenant.memory_bytes(), 0U);
}

class SharedFramesTest : public SharedMemoryTest,
                         public ::testing::WithParamInterface<LeaseKind> {};

TEST_P(SharedFramesTest, AJobRunsInPlaceOnMemoryOfAnotherProcess) {
  OtherProcess other;
  Tenant tenant = broker.open_tenant("frames", {LeaseChoice(GetParam())});
  DeviceMemory memory = DeviceMemory::imported(tenant, other.file->get(), other.bytes);
  other.file.reset();
  EXPECT_EQ(memory.bytes(), other.bytes);
  EXPECT_EQ(tenant.memory_bytes(), 0U) << "it is the other process's";
  PluginInstance instance = create("affine");
  instance.set_parameter("factor", 2);
  instance.activate(test_sizes);
  GraphDescription description;
  description.inputs = {{"in", 0, SampleType::float32, true}};
  description.outputs = {{"out", 0, SampleType::float32, true}};
  description.nodes = {{"node", &instance}};
  description.edges = {{"in", "node"}, {"node", "out"}};
  description.tenant = &tenant;
  Graph graph(broker, description, test_sizes);
  JobInfo job;
  job.width = width;
  job.height = height;
  void* const frame = reinterpret_cast<void*>(memory.address());
  EXPECT_EQ(graph.process({{frame}, {frame}}, job), JobOutcome::done);
  EXPECT_THAT(fetch(tenant, memory), Each(6.0F));

  if (!has_descriptors()) memory.reset();
  const ChildResult ended = other.end();
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("[  PASSED  ] 1 test"));
  if (!has_descriptors()) return;
  graph.process({{frame}, {frame}}, job);
  EXPECT_THAT(fetch(tenant, memory), Each(12.0F)) << "it outlives the process that made it";
}

INSTANTIATE_TEST_SUITE_P(Kinds, SharedFramesTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_F(SharedMemoryTest, TwoTenantsShareMemoryAndEachReleasesItsPart) {
  Tenant maker = broker.open_tenant("maker"), user = broker.open_tenant("user");
  DeviceMemory made = DeviceMemory::shareable(maker, bytes);
  EXPECT_GE(made.bytes(), bytes);
  EXPECT_EQ(maker.memory_bytes(), made.bytes());
  DeviceMemory used = DeviceMemory::imported(user, exported(made).get(), bytes);
  EXPECT_NE(used.address(), made.address());
  EXPECT_EQ(used.bytes(), made.bytes()) << "whole units";
  fill(maker, made, 5);
  EXPECT_THAT(fetch(user, used), Each(5.0F));
  made.reset();
  EXPECT_EQ(maker.memory_bytes(), 0U);
  maker.close();
  EXPECT_THAT(fetch(user, used), Each(5.0F));
  user.close();
  used.reset();
  EXPECT_THAT(said("tenant"), ::testing::IsEmpty());
  EXPECT_THAT(said("ledger"), ::testing::IsEmpty());
}

// To free device memory would not help.
TEST_F(SharedMemoryTest, WithoutAFreeDescriptorTheErrorSaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan needs a descriptor to look at the type of an exception";
#endif
  Tenant tenant = broker.open_tenant("maker");
  const DeviceMemory made = DeviceMemory::shareable(tenant, bytes);
  EXPECT_GE(exported(made).get(), 0) << "with one, as a control";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string text = error_text(ErrorKind::system_limit, [&] { exported(made); });
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(text, HasSubstr("ulimit"));
  EXPECT_GE(exported(made).get(), 0);
}

TEST_F(SharedMemoryTest, SharedMemoryOutlivesALossOfTheLease) {
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    Tenant tenant = broker.open_tenant("maker", {LeaseChoice(kind)});
    DeviceMemory made = DeviceMemory::shareable(tenant, bytes);
    fill(tenant, made, 7);
    broker.force_loss(tenant.id(), 0, "a test");
    EXPECT_THAT(fetch(tenant, made), Each(7.0F)) << to_string(kind);
    const DeviceMemory again = DeviceMemory::imported(tenant, exported(made).get(), bytes);
    EXPECT_THAT(fetch(tenant, again), Each(7.0F));
    made.reset();
    EXPECT_EQ(tenant.memory_bytes(), 0U);
  }
}

TEST_F(SharedMemoryTest, BadDescriptorIsRefusedOnImportAndNothingIsHeld) {
  Tenant tenant = broker.open_tenant("user");
  const DeviceMemory made = DeviceMemory::shareable(tenant, bytes);
  const Descriptor descriptor = exported(made);
  const auto refusal = [&](int what, std::uint64_t size, int device = 0,
                           ErrorKind kind = ErrorKind::invalid_argument) {
    return error_text(
        kind, [&] { static_cast<void>(DeviceMemory::imported(tenant, what, size, device)); });
  };
  EXPECT_THAT(refusal(-1, bytes), HasSubstr("descriptor -1 is not open in this process"));
  const Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(file.get(), bytes), HasSubstr("is not device memory that a driver has"));
  EXPECT_THAT(refusal(descriptor.get(), made.bytes() + 1), HasSubstr("give the size that the"));
  EXPECT_THAT(refusal(descriptor.get(), UINT64_MAX), HasSubstr("too many"));
  EXPECT_THAT(refusal(descriptor.get(), 0), HasSubstr("bytes is 0"));
  refusal(descriptor.get(), bytes, 99, ErrorKind::no_device);
  EXPECT_EQ(tenant.lease().state, LeaseState::ready);
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { static_cast<void>(DeviceMemory::shareable(tenant, 0)); }),
              HasSubstr("bytes is 0"));
  error_text(ErrorKind::out_of_memory,
             [&] { static_cast<void>(DeviceMemory::shareable(tenant, std::uint64_t{1} << 45)); });
  EXPECT_EQ(tenant.memory_bytes(), made.bytes());
  const DeviceMemory good = DeviceMemory::imported(tenant, descriptor.get(), bytes);
  EXPECT_TRUE(good);
}

TEST_F(SharedMemoryTest, OnlyShareableMemoryIsExported) {
  Tenant tenant = broker.open_tenant("maker"), other = broker.open_tenant("other");
  const DeviceMemory plain(tenant, bytes), none;
  DeviceMemory made = DeviceMemory::shareable(tenant, bytes);
  const DeviceMemory imported = DeviceMemory::imported(other, exported(made).get(), bytes);
  const auto refusal = [](const DeviceMemory& memory,
                          ErrorKind kind = ErrorKind::invalid_argument) {
    return error_text(kind, [&] { static_cast<void>(memory.export_descriptor()); });
  };
  EXPECT_THAT(refusal(plain), HasSubstr("allocated to be shared"));
  EXPECT_THAT(refusal(imported), HasSubstr("allocated to be shared"));
  EXPECT_THAT(refusal(none), HasSubstr("holds no memory"));
  tenant.close();
  refusal(made, ErrorKind::wrong_state);
}

TEST_F(SharedMemoryTest, FailedExportOrImportIsUndone) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device fails on demand";
  Tenant tenant = broker.open_tenant("maker");
  const DeviceMemory made = DeviceMemory::shareable(tenant, bytes);
  const Descriptor descriptor = exported(made);
  const auto make = [&] { static_cast<void>(DeviceMemory::shareable(tenant, bytes)); };
  const auto import = [&] {
    static_cast<void>(DeviceMemory::imported(tenant, descriptor.get(), bytes));
  };
  fail_halfway(controls,
               {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemImportFromShareableHandle",
                "cuMemGetAllocationPropertiesFromHandle", "cuMemAddressReserve", "cuMemMap",
                "cuMemSetAccess"},
               {make, import}, [&](const char* call, const auto& done) {
                 EXPECT_EQ(done("cuMemAddressReserve"), done("cuMemAddressFree")) << call;
                 EXPECT_EQ(done("cuMemMap"), done("cuMemUnmap")) << call;
                 EXPECT_EQ(done("cuMemCreate") + done("cuMemImportFromShareableHandle"),
                           done("cuMemRelease"))
                     << call;
                 EXPECT_EQ(tenant.memory_bytes(), made.bytes()) << call;
               });
}

// Legacy IPC brings in memory that another process chooses, so it is refused where descriptors
// work.
TEST_F(SharedMemoryTest, LegacyIpcIsRefusedWhereDescriptorsWork) {
  Tenant tenant = broker.open_tenant("user");
  std::string content("ctxbroker IPC 1");
  content.resize(16 + sizeof(CUuuid) + sizeof(CUipcMemHandle));
  const Descriptor file = file_of(content);
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { static_cast<void>(DeviceMemory::imported(tenant, file.get(), 1)); }),
              HasSubstr("is not device memory that a driver has exported"));
}

TEST_F(SharedMemoryTest, HostInCSharesMemory) {
  ctxb_broker* host = nullptr;
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_broker_open(nullptr, &host), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_tenant_open(host, "frames", nullptr, &tenant), CTXB_OK) << ctxb_last_error();
  std::uint64_t size = bytes, made = 0, imported = 0;
  std::int32_t number = -1;
  ASSERT_EQ(ctxb_tenant_allocate_shareable(tenant, 0, &size, &made), CTXB_OK) << ctxb_last_error();
  EXPECT_GE(size, bytes);
  EXPECT_EQ(ctxb_tenant_memory_bytes(tenant), size);
  ASSERT_EQ(ctxb_tenant_export_memory(tenant, made, &number), CTXB_OK) << ctxb_last_error();
  const Descriptor descriptor(number);
  EXPECT_EQ(ctxb_tenant_import_memory(tenant, 0, -1, size, &imported), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("descriptor -1"));
  ASSERT_EQ(ctxb_tenant_import_memory(tenant, 0, number, size, &imported), CTXB_OK)
      << ctxb_last_error();
  EXPECT_NE(imported, made);
  EXPECT_EQ(ctxb_tenant_export_memory(tenant, imported, &number), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(number, -1);
  EXPECT_EQ(ctxb_tenant_allocate_shareable(tenant, 0, nullptr, &made), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_export_memory(nullptr, 0, &number), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_import_memory(nullptr, 0, 0, 1, &imported), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << "which gives back both";
  EXPECT_EQ(ctxb_broker_close(host), CTXB_OK) << ctxb_last_error();
}

}  // namespace
}  // namespace ctxbroker
