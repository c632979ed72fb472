// SPDX-License-Identifier: Apache-2.0
// Measures what one context can do to another.
#include "probe/protocol.hpp"
#include "probe/subject.hpp"

namespace ctxbroker::detail {
namespace {

bool active(const Subject& subject) {
  unsigned int flags = 0;
  int is_active = 0;
  subject.check_call(subject.table().primary_get_state(subject.device(), &flags, &is_active),
                     "cuDevicePrimaryCtxGetState");
  return is_active != 0;
}

// Returns whether CUDA has ended in this context.
bool ended(const Subject& subject, CUcontext context) {
  Inside inside(subject, context);
  CUdeviceptr address = 0;
  return subject.table().mem_alloc(&address, 64) != CUDA_SUCCESS;
}

}  // namespace

void probe_shield(const Subject& subject) {
  const DriverTable& table = subject.table();
  subject.check_entry(table.primary_reset != nullptr && table.primary_get_state != nullptr,
                      "cuDevicePrimaryCtxReset_v2");
  subject.check_call(table.primary_reset(subject.device()), "cuDevicePrimaryCtxReset_v2");
  tell_value("shield.control", active(subject) ? 0 : 1);

  CUcontext again = nullptr;
  subject.check_call(table.primary_retain(&again, subject.device()), "cuDevicePrimaryCtxRetain");
  Inside inside(subject, again);
  constexpr unsigned int written = 4711;
  const CUdeviceptr address = subject.memory(64);
  subject.set_word(address, written);
  const std::vector<CUdevResource> groups = subject.smallest_groups();
  subject.green(groups.front());
  const CUresult refused = table.primary_reset(subject.device());
  tell_value("shield.reset_refused", refused == CUDA_ERROR_NOT_PERMITTED ? 1 : 0);
  unsigned int found = 0;
  const bool intact = active(subject) && subject.read_word(address, &found) == CUDA_SUCCESS;
  tell_value("shield.primary_survives", intact && found == written ? 1 : 0);
}

void probe_fault(const Subject& subject) {
  const DriverTable& table = subject.table();
  CUcontext faulty = subject.private_context();
  CUcontext neighbour = subject.private_context();
  CUcontext elsewhere = nullptr;
  for (std::size_t i = 0; i < subject.driver().handles.size() && elsewhere == nullptr; ++i) {
    const CUdevice other = subject.driver().handles[i];
    if (other == subject.device()) continue;
    subject.check_call(table.ctx_create(&elsewhere, 0, other), "cuCtxCreate_v2");
    subject.pop();
  }
  {
    Inside inside(subject, faulty);
    subject.check_call(subject.launch(subject.kernel("stop"), nullptr, 0), "cuLaunchKernel");
    if (table.ctx_synchronize() == CUDA_SUCCESS) {
      tell_failure("a kernel that traps went well");
      return;
    }
  }
  tell_value("fault.primary", ended(subject, subject.primary()) ? 1 : 0);
  tell_value("fault.private", ended(subject, neighbour) ? 1 : 0);
  if (elsewhere == nullptr) {
    tell_missing("fault.other_device", "there is one device only");
  } else {
    tell_value("fault.other_device", ended(subject, elsewhere) ? 1 : 0);
  }
  // The old contexts are destroyed before a fresh one is made.
  table.ctx_destroy(faulty);
  table.ctx_destroy(neighbour);
  if (elsewhere != nullptr) table.ctx_destroy(elsewhere);
  if (table.primary_reset != nullptr) table.primary_reset(subject.device());
  CUcontext fresh = nullptr;
  tell_value("fault.recovery",
             table.ctx_create(&fresh, 0, subject.device()) == CUDA_SUCCESS ? 1 : 0);
}

void probe_memory(const Subject& subject) {
  CUcontext owner = subject.private_context();
  CUcontext other = subject.private_context();
  constexpr unsigned int written = 41;
  CUdeviceptr address = 0;
  {
    Inside inside(subject, owner);
    address = subject.memory(64);
    subject.set_word(address, written);
  }
  unsigned int found = 0;
  {
    Inside inside(subject, other);
    const bool copied = subject.read_word(address, &found) == CUDA_SUCCESS && found == written;
    tell_value("memory.copy", copied ? 1 : 0);
    // Last: where memory is not shared this is a fault.
    const CUfunction add_one = subject.kernel("add_one");
    const bool ran = subject.launch(add_one, nullptr, address) == CUDA_SUCCESS &&
                     subject.table().ctx_synchronize() == CUDA_SUCCESS;
    if (!ran) {
      tell_value("memory.kernel", 0);
      return;
    }
  }
  Inside inside(subject, owner);
  subject.check_call(subject.read_word(address, &found), "cuMemcpyDtoHAsync_v2");
  tell_value("memory.kernel", found == written + 1 ? 1 : 0);
}

namespace {

void tell_stream(const Subject& subject, const char* name) {
  const CUdeviceptr address = subject.memory(64);
  subject.set_word(address, 0);
  const CUfunction add_one = subject.kernel("add_one");
  const CUstream per_thread = CU_STREAM_PER_THREAD;
  const bool works = subject.launch(add_one, per_thread, address) == CUDA_SUCCESS &&
                     subject.table().stream_synchronize(per_thread) == CUDA_SUCCESS;
  tell_value(name, works ? 1 : 0);
}

}  // namespace

void probe_stream(const Subject& subject) {
  tell_stream(subject, "stream.shared");
  {
    Inside inside(subject, subject.private_context());
    tell_stream(subject, "stream.private");
  }
  const std::vector<CUdevResource> groups = subject.smallest_groups();
  Inside inside(subject, subject.green(groups.front()));
  tell_stream(subject, "stream.green");
}

void probe_partition(const Subject& subject) {
  int multiprocessors = 0;
  subject.check_call(
      subject.table().device_get_attribute(
          &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, subject.device()),
      "cuDeviceGetAttribute");
  tell_value("partition.multiprocessors", multiprocessors);
  const std::vector<CUdevResource> groups = subject.smallest_groups();
  const unsigned int smallest = groups.front().sm.smCount;
  tell_value("partition.smallest", smallest);
  tell_value("partition.groups", static_cast<double>(groups.size()));
  if (2 * smallest > static_cast<unsigned int>(multiprocessors)) {
    tell_missing("partition.alignment", "the device is too small for two partitions");
    return;
  }
  // Asked for one more than the smallest, the driver rounds up.
  const std::vector<CUdevResource> next = subject.split(smallest + 1);
  if (next.empty()) {
    tell_missing("partition.alignment", "the device is not split into larger partitions");
    return;
  }
  tell_value("partition.alignment", next.front().sm.smCount - smallest);
}

}  // namespace ctxbroker::detail
