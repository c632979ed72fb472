// SPDX-License-Identifier: Apache-2.0
// What one activation of an instance holds in its lease. The destructor gives that back, except for
// the stream: that is in the ledger, as what the plug-in allocates is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "context/resources.hpp"
#include "ctxbroker/plugin.h"
#include "ctxbroker/plugin_instance.hpp"
#include "ledger/holding.hpp"
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
  CUstream stream = nullptr;             // lent to the plug-in with each job
  std::unique_ptr<Activation> earlier;   // another one that ended while a call was inside
  JobGraph job_graph;                    // last, so that it ends first

  // The holder of what this activation has in the ledger.
  Holder holder() const noexcept {
    return {.tenant = lease->tenant().id, .origin = Origin::sdk, .activation = serial};
  }
  // For at least so many jobs in flight. None is in flight now. Throws Error.
  void make_staging(std::size_t jobs);
};

}  // namespace ctxbroker::detail
