// SPDX-License-Identifier: Apache-2.0
// What the driver holds for the whole process.
#pragma once

#include <memory>
#include <vector>

#include "api/array.hpp"
#include "api/context.hpp"
#include "api/context_table.hpp"
#include "api/cuda_api.hpp"
#include "api/device.hpp"
#include "api/event.hpp"
#include "api/graph.hpp"
#include "api/green.hpp"
#include "api/handle_table.hpp"
#include "api/library.hpp"
#include "api/link.hpp"
#include "api/memory_pool.hpp"
#include "api/memory_registry.hpp"
#include "api/module.hpp"
#include "api/settings.hpp"
#include "api/stream.hpp"
#include "api/user_object.hpp"
#include "api/virtual_memory.hpp"

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
  // Forgets everything since cuInit, which is needed again. CUDA_ERROR_NOT_READY when another
  // thread has a context current or waits for work.
  static CUresult restart() noexcept;
  // Only after a successful cuInit.
  static Process& instance() noexcept;

  std::vector<std::unique_ptr<Device>> devices;
  ContextTable contexts;
  HandleTable<Stream, CUstream, HandleKind::stream> streams;
  EndedStreams ended_streams;
  HandleTable<Event, CUevent, HandleKind::event> events;
  HandleTable<Module, CUmodule, HandleKind::module> modules;
  HandleTable<Function, CUfunction, HandleKind::function> functions;
  HandleTable<Library, CUlibrary, HandleKind::library> libraries;
  HandleTable<LibraryKernel, CUkernel, HandleKind::kernel> kernels;
  HandleTable<Link, CUlinkState, HandleKind::link> links;
  HandleTable<MemoryPool, CUmemoryPool, HandleKind::pool> pools;
  HandleTable<Array, CUarray, HandleKind::array> arrays;
  HandleTable<Graph, CUgraph, HandleKind::graph> graphs;
  HandleTable<GraphNode, CUgraphNode, HandleKind::graph_node> graph_nodes;
  HandleTable<GraphExec, CUgraphExec, HandleKind::graph_exec> graph_execs;
  HandleTable<UserObject, CUuserObject, HandleKind::user_object> user_objects;
  DescriptorTable descriptors;
  MemoryRegistry memory{devices};
  VirtualMemory virtual_memory;

 private:
  Process(const Settings& settings, const Process* before);
  void forget();

  // The life before this one, or null: other threads may keep streams of its contexts.
  const Process* const before_;
  static void end() noexcept;
};

}  // namespace ctxbroker::software
