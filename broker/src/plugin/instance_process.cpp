// SPDX-License-Identifier: Apache-2.0
// Instance: one job.
#include <algorithm>

#include "module/use_gate.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/host_call.hpp"
#include "plugin/instance.hpp"
#include "plugin/status_text.hpp"

namespace ctxbroker::detail {

Instance::Processed Instance::process(ctxb_job job, std::size_t in_flight) noexcept {
  // [audio]: no lock unless the plug-in asked for one, no allocation unless the host asked for
  // graphs.
  std::unique_lock<std::mutex> one_at_a_time(library_->process_mutex(), std::defer_lock);
  if (plugin().one_at_a_time) one_at_a_time.lock();
  Phase before = Phase::active;
  if (!phase_.compare_exchange_strong(before, Phase::processing, std::memory_order_acq_rel)) {
    // The graph entered the lease before it was lost, so a guard would let the job in.
    failures_.clear();
    return before == Phase::lost ? lost("process") : busy(before);
  }
  // Waits only while idle modules of the lease are unloaded, which is never done in real time.
  const UseScope use(modules_->gate());
  set_in_flight(true);
  activation_->staging_now =
      static_cast<std::byte*>(activation_->staging.get()) + in_flight * CTXB_UPLOAD_MAX;
  job.size = sizeof job;
  job.stream = activation_->stream;
  job.parameters = parameters_.snapshot();
  job.parameter_count = parameters_.count();
  const Processed processed =
      activation_->job_graph.wanted() ? process_as_graph(job) : call_process(job);
  phase_.store(Phase::active, std::memory_order_release);
  return processed;
}

Instance::Processed Instance::call_process(const ctxb_job& job) noexcept {
  failures_.clear();
  activation_->staged = 0;
  process_thread_.store(std::this_thread::get_id(), std::memory_order_release);
  const std::uint64_t launched = launches();
  launches_before_job_ = launched;
  Processed processed;
  const RunningSide running(host_);
  processed.outcome = call_plugin(activation_->lease->target(), call("process"),
                                  [&] { processed.status = object_->process(object_, &job); });
  count_launches_since(launched, *activation_->lease);
  activation_->lease->report_status(processed.outcome.entered);
  process_thread_.store({}, std::memory_order_release);
  return processed;
}

std::string Instance::last_kernels() const {
  constexpr std::size_t most = 8;
  if (activation_ == nullptr) return {};
  std::vector<const Kernel*> launched;
  for (const Kernel& kernel : activation_->kernels) {
    if (kernel.last_launch > launches_before_job_) launched.push_back(&kernel);
  }
  std::sort(launched.begin(), launched.end(),
            [](const Kernel* a, const Kernel* b) { return a->last_launch < b->last_launch; });
  std::string names;
  for (std::size_t i = 0; i < std::min(launched.size(), most); ++i) {
    names += (i == 0 ? (launched.size() == 1 ? "kernel " : "kernels ") : ", ") + launched[i]->name;
  }
  return launched.size() > most ? names + ", ..." : names;
}

// What a failed capture has seen was never enqueued, so the job is given once more, without one. A
// plug-in that counts its jobs has counted this one then: it is told to forget its history.
Instance::Processed Instance::process_as_graph(const ctxb_job& job) noexcept {
  const std::shared_ptr<Lease>& lease = activation_->lease;
  JobGraph& graph = activation_->job_graph;
  const ContextGuard guard(lease->target());
  if (guard.status() != CUDA_SUCCESS) return call_process(job);  // and that says it
  activation_->modules->bring_all();  // nothing can be loaded in a capture
  const JobGraph::Outcome begun = graph.begin(lease->table(), activation_->stream);
  if (!begun.ok()) {
    lease->report_status(begun.status);
    if (lease->lost()) return lost(begun.what, begun.status);
    give_up_graphs(begun);
    return call_process(job);
  }
  const std::uint64_t launched = launches();
  const Processed processed = call_process(job);
  const bool worked = processed.outcome.ran() && processed.status >= 0;
  const JobGraph::Outcome ended = graph.end(lease, activation_->stream, worked);
  if (ended.ok()) {
    if (worked) counters_.graph_jobs.fetch_add(1, std::memory_order_relaxed);
    return processed;
  }
  lease->report_status(ended.status);
  if (processed.outcome.threw) return processed;
  const std::uint64_t dropped = launches() - launched;
  counters_.launches.fetch_sub(dropped, std::memory_order_relaxed);
  lease->work().launches.fetch_sub(dropped, std::memory_order_relaxed);
  if (lease->lost()) return worked ? lost(ended.what, ended.status) : processed;
  give_up_graphs(ended);
  ctxb_job again = job;
  again.discontinuity = 1;
  return call_process(again);
}

// What a job is answered whose lease is gone, before the plug-in has seen it.
Instance::Processed Instance::lost(const char* what, CUresult status) noexcept {
  Processed processed{{}, CTXB_ERROR_CONTEXT_LOST};
  try {
    const std::string driver = status == CUDA_SUCCESS
                                   ? "the lease's context is gone"
                                   : status_text(activation_->lease->table(), status);
    refuse(*this, processed.status, std::string(what) + ": " + driver, status);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
  return processed;
}

// What a job is answered that the host gave beside another one or beside a deactivation.
Instance::Processed Instance::busy(Phase now) noexcept {
  Processed processed;
  try {
    refuse(*this, processed.status,
           std::string("the job, because the instance is ") + to_string(now));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
  return processed;
}

void Instance::give_up_graphs(const JobGraph::Outcome& why) noexcept {
  activation_->job_graph.give_up();
  try {
    const std::string driver =
        why.status == CUDA_SUCCESS
            ? ""
            : " (" + status_text(activation_->lease->table(), why.status) + ")";
    tenant().log(Severity::warning, "graph",
                 "plug-in " + description_.short_name + ": its jobs cannot be graphs: " + why.what +
                     driver +
                     "; until it is activated again, its jobs are enqueued call by call, and this "
                     "job is repeated");
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
}

}  // namespace ctxbroker::detail
