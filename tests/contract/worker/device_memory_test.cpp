// SPDX-License-Identifier: Apache-2.0
// The host's device memory, which a module of another format uses. The host passes a descriptor.
#include "ctxbroker/device_memory.hpp"

#include <unistd.h>

#include <numeric>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/stream.hpp"
#include "support/raw_driver.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

TEST_F(WorkerTest, WorkerModuleUsesTheHostsDeviceMemory) {
  Broker broker = Broker::open();
  Tenant tenant = broker.open_tenant("frames");
  const RawDriver driver(broker.driver().path);
  const Stream stream(tenant);
  std::vector<float> expected(4096);
  std::iota(expected.begin(), expected.end(), 1.0F);
  const std::size_t bytes = expected.size() * sizeof(float);
  const DeviceMemory memory = DeviceMemory::shareable(tenant, bytes);
  tenant.run(
      0, [&] { ASSERT_EQ(driver.store(expected, memory.address(), stream.get()), CUDA_SUCCESS); });
  Worker worker(options());
  for (int process = 0; process < 2; ++process) {
    const int descriptor = memory.export_descriptor();
    const std::uint64_t number = worker.pass_descriptor(descriptor);
    close(descriptor);
    EXPECT_EQ(ask(worker, Act::scale_frame, number, bytes, 3), expected.size());
    for (float& value : expected) value *= 3;
    std::vector<float> got(expected.size());
    tenant.run(0,
               [&] { EXPECT_EQ(driver.fetch(got, memory.address(), stream.get()), CUDA_SUCCESS); });
    EXPECT_EQ(got, expected);
    worker.kill("the next process gets the same memory");
  }
  // The control: the memory is that of the descriptor.
  const std::uint64_t number = worker.pass_descriptor(STDOUT_FILENO);
  EXPECT_THAT(
      error_of(ErrorKind::plugin_failed, [&] { ask(worker, Act::scale_frame, number, bytes, 3); }),
      HasSubstr("is not device memory"));
}

}  // namespace
}  // namespace ctxbroker
