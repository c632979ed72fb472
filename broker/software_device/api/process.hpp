// What the driver holds for the whole process.
#pragma once

#include <memory>
#include <vector>

#include "api/context.hpp"
#include "api/context_table.hpp"
#include "api/cuda_api.hpp"
#include "api/device.hpp"
#include "api/event.hpp"
#include "api/green.hpp"
#include "api/handle_table.hpp"
#include "api/memory_registry.hpp"
#include "api/module.hpp"
#include "api/settings.hpp"
#include "api/stream.hpp"

namespace ctxbroker::software {

// Made by cuInit, never destroyed: other threads may be inside a call when the process ends. A
// driver is one per process by its interface, hence the static access.
class Process {
 public:
  // cuInit. Later calls return what the first did.
  static CUresult initialise();
  // May a call be answered? NOT_INITIALIZED, DEINITIALIZED, NOT_PERMITTED in a host function.
  static CUresult admission() noexcept;
  // The first fault of a kernel, which ends CUDA for the process; success while there was none.
  static CUresult fault() noexcept;
  static void raise_fault(CUresult status) noexcept;
  // Only after a successful cuInit.
  static Process& instance() noexcept;

  std::vector<std::unique_ptr<Device>> devices;
  ContextTable contexts;
  HandleTable<Stream, CUstream, HandleKind::stream> streams;
  HandleTable<Event, CUevent, HandleKind::event> events;
  HandleTable<Module, CUmodule, HandleKind::module> modules;
  HandleTable<Function, CUfunction, HandleKind::function> functions;
  DescriptorTable descriptors;
  MemoryRegistry memory;

 private:
  explicit Process(const Settings& settings);
  static void end() noexcept;
};

// A number that no other object of this process has.
std::uint64_t next_id() noexcept;

}  // namespace ctxbroker::software
