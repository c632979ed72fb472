// SPDX-License-Identifier: Apache-2.0
// What one activation of an instance holds in its lease. The plug-in's own allocations are in the
// instance's ledger instead. The destructor gives everything back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "context/resources.hpp"
#include "ctxbroker/plugin.h"
#include "ctxbroker/plugin_instance.hpp"
#include "memory/lent_streams.hpp"
#include "module/kernel.hpp"
#include "module/module_set.hpp"
#include "plugin/descriptor_reader.hpp"
#include "plugin/frame_range.hpp"
#include "plugin/job_graph.hpp"

namespace ctxbroker::detail {

struct Activation {
  std::shared_ptr<Lease> lease;
  ActivationSizes sizes;
  std::uint64_t serial = 0;  // unique in the process; part of every kernel handle
  std::vector<Kernel> kernels;
  std::unique_ptr<ModuleSet> modules;
  // CTXB_UPLOAD_MAX bytes for each job in flight, for uploads in process.
  PinnedMemory staging;
  std::size_t staging_jobs = 0;
  std::byte* staging_now = nullptr;      // the running job's part of it
  std::uint64_t staged = 0;              // bytes of that part that are used
  FrameRanges frames;                    // of each input; empty until somebody asks
  std::optional<std::uint64_t> latency;  // frames; none until somebody asks
  Stream stream;
  LentStream lent;     // that stream, to the plug-in
  JobGraph job_graph;  // last, so that it ends first

  // For at least so many jobs in flight. None is in flight now. Throws Error.
  void make_staging(std::size_t jobs);
};

// Loads the plug-in's modules and creates the rest. The caller is inside the gate of `at`. Throws
// Error.
std::unique_ptr<Activation> make_activation(const std::shared_ptr<LeaseModules>& at,
                                            ModuleService& service, const PluginRecord& plugin,
                                            const ActivationSizes& sizes);

}  // namespace ctxbroker::detail
