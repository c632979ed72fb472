// SPDX-License-Identifier: Apache-2.0
// Memory and events that two processes share by the handles of cuIpc*. The other process is this
// program again, which gets the handles in its environment.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "driver.hpp"
#include "support/child_process.hpp"

namespace ctxbroker::test {
namespace {

constexpr std::size_t words = 100'000;
constexpr const char* memory_variable = "CTXB_IPC_MEMORY";
constexpr const char* event_variable = "CTXB_IPC_EVENT";
constexpr const char* ready_line = "the other process waits\n";

template <class Handle>
std::string text_of(const Handle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    std::array<char, 3> digits = {};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

template <class Handle>
Handle handle_of(const char* variable) {
  Handle handle = {};
  const char* text = std::getenv(variable);
  EXPECT_NE(text, nullptr) << "started by another test only";
  if (text == nullptr) return handle;
  EXPECT_EQ(std::strlen(text), 2 * sizeof handle.reserved);
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  return handle;
}

class IpcTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int supported = 0;
    ASSERT_EQ(d.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device),
              CUDA_SUCCESS);
    if (supported == 0) GTEST_SKIP() << "no memory is shared between processes here";
  }

  static void expect_good_end(const ChildResult& other) {
    EXPECT_EQ(other.exit_code, 0) << other.output;
  }

  unsigned word(CUdeviceptr address, std::size_t index) const {
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address + 4 * index, sizeof value), CUDA_SUCCESS);
    return value;
  }
  CUipcMemHandle memory_handle(CUdeviceptr address) const {
    CUipcMemHandle handle = {};
    EXPECT_EQ(d.cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    return handle;
  }
};

constexpr unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

TEST_F(IpcTest, DISABLED_OtherProcessAddsOneToSharedMemory) {
  const auto handle = handle_of<CUipcMemHandle>(memory_variable);
  CUdeviceptr address = 0, again = 0;
  EXPECT_EQ(d.cuIpcOpenMemHandle_v2(&address, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(d.cuIpcOpenMemHandle_v2(&address, handle, flags), CUDA_SUCCESS);
  EXPECT_EQ(d.cuIpcOpenMemHandle_v2(&again, handle, flags), CUDA_SUCCESS);
  EXPECT_EQ(again, address);
  EXPECT_EQ(word(address, 0), 41u);
  unsigned count = words;
  void* arguments[] = {&address, &count};
  EXPECT_EQ(launch("add_one", nullptr, arguments, (count + 127) / 128, 128), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  EXPECT_EQ(word(address, words - 1), 42u) << "it is still open once";
  EXPECT_EQ(d.cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  unsigned value = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, sizeof value), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(IpcTest, AnotherProcessWritesMemory) {
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4 * words), CUDA_SUCCESS);
  ASSERT_EQ(fill(address, 41, words, nullptr), CUDA_SUCCESS);
  const CUipcMemHandle handle = memory_handle(address);
  expect_good_end(run_child("IpcTest.DISABLED_OtherProcessAddsOneToSharedMemory",
                            {{memory_variable, text_of(handle)}}));
  EXPECT_EQ(word(address, 0), 42u);
  EXPECT_EQ(word(address, words - 1), 42u);
  EXPECT_EQ(text_of(memory_handle(address)), text_of(handle)) << "asked again, the same";
  unsigned count = words;
  void* arguments[] = {&address, &count};
  EXPECT_EQ(launch("add_one", nullptr, arguments, (count + 127) / 128, 128), CUDA_SUCCESS);
  EXPECT_EQ(word(address, words / 2), 43u);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(IpcTest, OnlyMemoryOfCuMemAllocHasAHandle) {
  CUipcMemHandle handle = {};
  CUdeviceptr managed = 0, opened = 0, address = 0;
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&pinned, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(d.cuIpcGetMemHandle(&handle, device_address(pinned)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuIpcGetMemHandle(&handle, managed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuIpcGetMemHandle(&handle, 0x1000), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(d.cuIpcGetMemHandle(nullptr, address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuIpcOpenMemHandle_v2(&opened, memory_handle(address), flags),
            CUDA_ERROR_INVALID_CONTEXT)
      << "it is for other processes";
}

TEST_F(IpcTest, DISABLED_OtherProcessWaitsForASharedEvent) {
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuIpcOpenMemHandle_v2(&address, handle_of<CUipcMemHandle>(memory_variable), flags),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuIpcOpenEventHandle(&event, handle_of<CUipcEventHandle>(event_variable)),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  unsigned count = 1;
  void* arguments[] = {&address, &count};
  EXPECT_EQ(launch("add_one", stream, arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::fputs(ready_line, stdout);
  std::fflush(stdout);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(word(address, 0), 6u) << "the kernel here ran after the one there";
  EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

TEST_F(IpcTest, AnotherProcessWaitsForAnEvent) {
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  CUipcEventHandle event_handle = {};
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(address, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  const CUipcMemHandle memory = memory_handle(address);
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuIpcGetEventHandle(&event_handle, event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS) << "not recorded yet";
  std::optional<ChildProcess> other;
  {
    Hold hold(function("hold"), stream);
    ASSERT_EQ(fill(address, 5, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    other.emplace(
        test_again("IpcTest.DISABLED_OtherProcessWaitsForASharedEvent",
                   {{memory_variable, text_of(memory)}, {event_variable, text_of(event_handle)}}));
    EXPECT_TRUE(other->read_until(ready_line, std::chrono::seconds(60))) << other->output();
  }
  expect_good_end(other->wait());
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(word(address, 0), 6u);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
}

TEST_F(IpcTest, OnlyInterprocessEventsHaveAHandle) {
  CUevent event = nullptr;
  CUipcEventHandle handle = {};
  EXPECT_EQ(d.cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_NE(d.cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
