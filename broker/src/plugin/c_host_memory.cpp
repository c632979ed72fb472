// SPDX-License-Identifier: Apache-2.0
// host_memory.h: the functions of host memory.
#include <utility>

#include "ctxbroker/host_memory.hpp"
#include "plugin/c_host.hpp"

struct ctxb_host_memory {
  ctxbroker::HostMemory memory;
};

namespace {

using ctxbroker::detail::answered;

}  // namespace

ctxb_status ctxb_host_memory_make(ctxb_broker* broker, uint64_t bytes, ctxb_host_memory** memory) {
  if (memory != nullptr) *memory = nullptr;
  return answered(broker != nullptr && memory != nullptr, "broker or memory is null",
                  [&] { *memory = new ctxb_host_memory{broker->broker.host_memory(bytes)}; });
}

ctxb_status ctxb_host_memory_register(ctxb_broker* broker, void* address, uint64_t bytes,
                                      ctxb_host_memory** memory) {
  if (memory != nullptr) *memory = nullptr;
  return answered(broker != nullptr && memory != nullptr, "broker or memory is null", [&] {
    *memory = new ctxb_host_memory{broker->broker.register_memory(address, bytes)};
  });
}

void* ctxb_host_memory_data(const ctxb_host_memory* memory) {
  return memory == nullptr ? nullptr : memory->memory.data();
}

uint32_t ctxb_host_memory_is_registered(const ctxb_host_memory* memory) {
  return memory != nullptr && memory->memory.is_registered() ? 1 : 0;
}

void ctxb_host_memory_destroy(ctxb_host_memory* memory, uint32_t* released) {
  const bool is_released = memory == nullptr || memory->memory.reset();
  if (released != nullptr) *released = is_released ? 1 : 0;
  delete memory;
}
