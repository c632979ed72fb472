// SPDX-License-Identifier: Apache-2.0
// The functions of the runtime library whose results in a lease differ from a bare process's, and
// why. docs/runtime_functions.md shows these reasons.
#include "runtime_functions.hpp"

namespace ctxbroker {

namespace {

constexpr unsigned in_greens = in_green | in_partition, in_all = in_shared | in_private | in_greens;

// Each names what is different for a plug-in's author, and what to do instead.
constexpr const char* reset =
    "The device is not reset, because that would end the neighbours' work, and memory that was "
    "allocated before is still there: free what you have allocated.";
constexpr const char* flags =
    "The runtime library refuses flags in a private lease without asking the driver, because the "
    "current context is not the primary one: use `cuCtxSetFlags`.";
constexpr const char* peers =
    "The runtime library refuses this in a private lease without asking the driver, because the "
    "current context is not the primary one: use `cuCtxEnablePeerAccess` and "
    "`cuCtxDisablePeerAccess`.";
constexpr const char* per_thread =
    "Only calls with `cudaStreamPerThread` fail, as in all functions with a stream, because a "
    "green lease has no default stream for each thread: use the job's stream or one of your own, "
    "or set the flag `CTXB_PLUGIN_PER_THREAD_STREAM` (a host sets "
    "`TenantOptions::per_thread_streams`) and get a shared lease.";
constexpr const char* non_blocking =
    "In a green lease every stream has `cudaStreamNonBlocking`, so neither it nor the default "
    "stream waits for the other: order their work with events, or use one stream.";
constexpr const char* clusters =
    "It counts the clusters that fit onto the multiprocessors of the lease, which is what your "
    "launches get: ask in the lease where you launch.";
constexpr const char* limits =
    "All plug-ins on the device share its limits, so only a value that is not above the present "
    "one succeeds: if you need more, ask for a private lease (`.lease(CTXB_LEASE_PRIVATE)`), "
    "which has limits of its own.";
constexpr const char* graph_memory =
    "The graphs of all plug-ins share the device's graph memory, so `cudaDeviceGraphMemTrim`, "
    "which the test calls before, frees nothing: read the figures as those of the whole device.";
constexpr const char* watermarks =
    "The graphs of all plug-ins share the high watermarks, so no plug-in resets them: compare "
    "readings of the current figures.";
constexpr const char* logs =
    "The callback would be told of the errors of all plug-ins, and could be called after your "
    "code has left the process: read the log with `cudaLogsCurrent` and `cudaLogsDumpToMemory`.";
constexpr const char* notification =
    "The callback could be called after your code has left the process: ask `cudaMemGetInfo`, and "
    "handle allocations that fail.";
constexpr const char* no_callback = "Nothing can be registered, so there is nothing to unregister.";

}  // namespace

const std::vector<AllowedDifference>& allowed_differences() {
  static const std::vector<AllowedDifference> all = {
      {"cudaDeviceRegisterAsyncNotification", in_all, notification},
      {"cudaDeviceUnregisterAsyncNotification", in_all, no_callback},
      {"cudaLogsRegisterCallback", in_all, logs},
      {"cudaLogsUnregisterCallback", in_all, no_callback},
      {"cudaDeviceReset", in_all, reset},
      {"cudaDeviceGetGraphMemAttribute", in_all, graph_memory},
      {"cudaDeviceSetGraphMemAttribute", in_all, watermarks},
      {"cudaDeviceSetLimit", in_shared | in_greens, limits},
      {"cudaSetDeviceFlags", in_private, flags},
      {"cudaDeviceEnablePeerAccess", in_private, peers},
      {"cudaDeviceDisablePeerAccess", in_private, peers},
      {"cudaStreamCreate", in_greens, non_blocking},
      {"cudaStreamGetFlags", in_greens, non_blocking},
      {"cudaStreamGetFlags", in_greens, per_thread},
      {"cudaStreamSynchronize", in_greens, per_thread},
      {"cudaStreamQuery", in_greens, per_thread},
      {"cudaEventRecord", in_greens, per_thread},
      {"cudaLaunchKernel", in_greens, per_thread},
      {"cudaMemcpyAsync", in_greens, per_thread},
      {"cudaMemsetAsync", in_greens, per_thread},
      {"cudaMallocAsync", in_greens, per_thread},
      {"cudaGraphLaunch", in_greens, per_thread},
      {"cudaOccupancyMaxActiveClusters", in_partition, clusters},
  };
  return all;
}

std::vector<std::string> compare(const FunctionResults& alone, const FunctionResults& leased,
                                 unsigned place, const std::vector<AllowedDifference>& meant) {
  std::vector<std::string> complaints;
  const auto is_meant = [&](const std::string& name) {
    for (const AllowedDifference& one : meant)
      if (name == one.function && (one.places & place) != 0) return true;
    return false;
  };
  if (alone.names != leased.names) complaints.emplace_back("other functions have run");
  for (const auto& [name, answer] : alone.answers) {
    const auto found = leased.answers.find(name);
    if (found == leased.answers.end()) continue;
    const bool differs = found->second != answer;
    if (differs && !is_meant(name)) {
      const auto said = leased.said.find(name);
      complaints.push_back(name + "\n    alone: " + answer + "\n    lease: " + found->second +
                           (said != leased.said.end() ? said->second : ""));
    } else if (!differs && is_meant(name)) {
      complaints.push_back(name + " is as alone; take it out of allowed_differences()");
    }
  }
  return complaints;
}

}  // namespace ctxbroker
