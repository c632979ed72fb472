// Chain: one job.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "context/hung_work.hpp"
#include "ctxbroker/error.hpp"
#include "observe/span.hpp"
#include "plugin/chain_impl.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

void Chain::Impl::must(std::size_t stage, CUresult status, const char* call, const char* doing) {
  stages[stage].lease->report_status(status);
  must_between(stage, status, call, doing);
}

void Chain::Impl::must_be_inside(std::size_t stage, CUresult entered) {
  if (entered == CUDA_SUCCESS) return;
  const Stage& at = stages[stage];
  at.lease->report_status(entered);
  throw at.lease->entry_error(entered, "the lease cannot be entered (plug-in " +
                                           at.instance->description().short_name + ")");
}

// For calls with handles of two leases: which of them is lost is for settle to find out.
void Chain::Impl::must_between(std::size_t stage, CUresult status, const char* call,
                               const char* doing) {
  if (status == CUDA_SUCCESS) return;
  const Stage& at = stages[stage];
  if (is_process_fault(status)) at.lease->report_status(status);
  throw driver_error(
      at.lease->table(), status, call,
      std::string(doing) + " (plug-in " + at.instance->description().short_name + ")",
      at.lease->owner());
}

ctxb_buffer Chain::Impl::buffer(BufferIndex which, const JobInfo& job) const noexcept {
  ctxb_buffer buffer{};
  buffer.size = sizeof buffer;
  buffer.media = media == Media::image ? CTXB_MEDIA_IMAGE : CTXB_MEDIA_AUDIO;
  buffer.data = address(which);
  buffer.row_pitch = std::uint64_t{job.width} * channels * sizeof(float);
  buffer.width = job.width;
  buffer.height = job.height;
  buffer.channels = channels;
  return buffer;
}

// Makes the stage's stream wait for the one before it, and copies to its context where that is
// another one. Inside the stage's guard.
void Chain::Impl::bring_here(std::size_t stage, std::uint64_t bytes) {
  const DriverTable& driver = stages[stage].lease->table();
  CUstream const stream = stages[stage].stream;
  must_between(stage, driver.stream_wait_event(stream, stages[stage - 1].times.end().get(), 0),
               "cuStreamWaitEvent", "the work before cannot be waited for");
  mark_end_of(stage - 1, stream);
  const BufferIndex here{buffers.pair_of_stage[stage], 0};
  if (here.pair == current.pair) return;
  const ScopedSpan span(SpanCategory::copy, "copy between contexts", nullptr, host_tenant, bytes);
  const auto context = [&](BufferIndex which) {
    return buffers.pairs[which.pair].lease->memory_context();
  };
  must_between(stage,
               driver.memcpy_peer_async(address(here), context(here), address(current),
                                        context(current), bytes, stream),
               "cuMemcpyPeerAsync", "the samples cannot be copied between two contexts");
  current = here;
}

// Inside the stage's guard. Moves `current` to where the stage's output is.
void Chain::Impl::run_stage(std::size_t stage, const JobInfo& job) {
  Stage& at = stages[stage];
  const DriverTable& driver = at.lease->table();
  const BufferIndex other{current.pair, 1 - current.side};
  const ctxb_buffer input = buffer(current, job), output = buffer(other, job);
  ctxb_job given{};
  given.position = job.position;
  given.sample_rate = job.sample_rate;
  given.deadline_ns = job.deadline_ns;
  given.inputs = &input;
  given.outputs = &output;
  given.input_count = given.output_count = 1;
  given.discontinuity = job.discontinuity ? 1 : 0;
  must(stage, driver.event_record(at.times.begin().get(), at.stream), "cuEventRecord",
       "the start of the work cannot be marked");
  begun = stage + 1;
  Instance::Processed processed = at.instance->process(given);
  if (processed.outcome.ran() && processed.status == CTXB_AGAIN) {
    // Once more, when all is done that the first try may have enqueued; then it is an error.
    wait(stage, "the plug-in's work failed");
    processed = at.instance->process(given);
  }
  const bool bypass = processed.status == CTXB_BYPASS;
  if (!processed.outcome.ran() || (processed.status != CTXB_OK && !bypass)) {
    throw at.instance->failure("process", processed.outcome, processed.status);
  }
  must(stage, driver.event_record(at.times.end().get(), at.stream), "cuEventRecord",
       "the end of the work cannot be marked");
  if (!bypass) current = other;
}

void Chain::Impl::run(const float* input, const JobInfo& job) {
  const std::uint64_t bytes = bytes_of(job.width, job.height);
  std::memcpy(staging.get(), input, bytes);
  current = {};
  ++job_number;
  marked = true;
  begun = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    Stage& at = stages[stage];
    const ContextGuard guard(at.lease->target(), blame(stage));
    must_be_inside(stage, guard.status());
    at.times.tie_clocks(at.lease->table(), at.stream);
    if (stage == 0) {
      const ScopedSpan span(SpanCategory::copy, "upload", nullptr, host_tenant, bytes);
      must(stage,
           at.lease->table().memcpy_htod_async(address(current), staging.get(), bytes, at.stream),
           "cuMemcpyHtoDAsync_v2", "the samples cannot be uploaded");
    } else {
      bring_here(stage, bytes);
    }
    run_stage(stage, job);
  }
  fetch(bytes);
}

// Downloads and waits: the one wait of a job. Waiting needs no context, so other threads can be in
// the lease meanwhile.
void Chain::Impl::fetch(std::uint64_t bytes) {
  const std::size_t last = stages.size() - 1;
  const Stage& at = stages[last];
  {
    const ContextGuard guard(at.lease->target());
    must_be_inside(last, guard.status());
    const ScopedSpan span(SpanCategory::copy, "download", nullptr, host_tenant, bytes);
    must(last,
         at.lease->table().memcpy_dtoh_async(staging.get(), address(current), bytes, at.stream),
         "cuMemcpyDtoHAsync_v2", "the samples cannot be downloaded");
  }
  wait(last, "the job's work on the device failed");
}

void Chain::Impl::add_times() noexcept {
  for (Stage& stage : stages) {
    std::uint64_t nanoseconds = 0;
    {
      const ContextGuard guard(stage.lease->target());
      if (guard.status() == CUDA_SUCCESS) {
        nanoseconds = stage.times.take(*stage.lease, stage.instance->description().short_name);
      }
    }
    stage.instance->set_in_flight(false);
    WorkCounters* const counters[] = {&stage.instance->counters(), &stage.lease->work()};
    for (WorkCounters* each : counters) {
      each->jobs.fetch_add(1, std::memory_order_relaxed);
      each->device_nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
    }
  }
}

// Waits for a stage's stream.
void Chain::Impl::wait(std::size_t stage, const char* doing) {
  const Stage& at = stages[stage];
  const ScopedSpan span(SpanCategory::wait, "wait", nullptr, host_tenant);
  CUresult status = wait_for(at.lease->table(), at.stream, broker.job_timeout());
  if (status == CUDA_ERROR_TIMEOUT) {
    give_up_hung();
    status = at.lease->table().stream_synchronize(at.stream);  // it had ended after all
  }
  must(stage, status, "cuStreamSynchronize", doing);
}

// Some stage's work hangs. It is the first one in the chain that has not ended; those behind wait
// for it and are innocent. Throws Error (context_lost), unless all have ended just now.
void Chain::Impl::give_up_hung() {
  const Instance* guilty = nullptr;
  for (Stage& stage : stages) {
    const CUresult status = stage.lease->table().stream_query(stage.stream);
    if (status == CUDA_SUCCESS) {
      stage.instance->set_in_flight(false);
      continue;
    }
    if (guilty == nullptr) {
      guilty = stage.instance;
      stage.instance->hang(*stage.lease, stage.stream);
    } else if (stage.lease != guilty->lease()) {
      stage.lease->hang_behind(stage.stream);
    }
  }
  if (guilty == nullptr) return;
  throw Error(ErrorKind::context_lost,
              "the work of plug-in " + guilty->description().short_name + " did not end within " +
                  std::to_string(broker.job_timeout().count()) +
                  " ms; its lease is hung, and the plug-in is not used any more",
              {.call = "process",
               .device = guilty->lease()->device_ordinal(),
               .tenant = guilty->tenant().name});
}

// After a failure: waits for what was enqueued, so that the buffers can be used again, or freed
// when the next job renews a lease. A context that was given up still works.
void Chain::Impl::settle() noexcept {
  for (const Stage& stage : stages) {
    if (!stage.lease->can_wait()) continue;
    const ScopedSpan span(SpanCategory::wait, "wait after a failure", nullptr, host_tenant);
    const CUresult status = stage.lease->report_status(
        wait_for(stage.lease->table(), stage.stream, broker.end_timeout()));
    if (status == CUDA_ERROR_TIMEOUT) stage.instance->hang(*stage.lease, stage.stream);
  }
}

std::uint32_t* Chain::Impl::end_mark(std::size_t stage) const noexcept {
  auto* const samples = static_cast<float*>(staging.get());
  const std::uint64_t count = bytes_of(sizes.max_width, sizes.max_height) / sizeof(float);
  return reinterpret_cast<std::uint32_t*>(samples + count) + stage;
}

// In the stream of the next stage, whose own work comes after the mark.
void Chain::Impl::mark_end_of(std::size_t stage, CUstream stream) noexcept {
  const auto address = reinterpret_cast<CUdeviceptr>(end_mark(stage));
  const DriverTable& driver = stages[stage + 1].lease->table();
  if (driver.memset_d32_async(address, job_number, 1, stream) != CUDA_SUCCESS) marked = false;
}

// After a fault that the job has met. Each stage waits for the one before it, so only the first one
// that has not ended can have caused it. The work of the others is no longer taken for a suspect.
void Chain::Impl::throw_fault(const Error& seen) {
  std::size_t first = 0, end = begun;
  if (marked) {
    while (first < begun && std::atomic_ref(*end_mark(first)).load() == job_number) ++first;
    end = std::min(first + 1, begun);
  }
  std::string names;
  for (std::size_t stage = first; stage < end; ++stage) {
    names += (names.empty() ? "" : ", ") + stages[stage].instance->description().short_name;
  }
  const auto is_suspect = [&](const Stage& one) {
    return std::any_of(stages.begin() + static_cast<std::ptrdiff_t>(first),
                       stages.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](const Stage& suspect) { return suspect.instance == one.instance; });
  };
  for (const Stage& stage : stages) {
    if (!is_suspect(stage)) stage.instance->set_in_flight(false);
  }
  const Stage& at = stages[std::min(first, stages.size() - 1)];
  const std::string who =
      end == first       ? "the job failed while no work of its plug-ins was under way"
      : end == first + 1 ? "the work of plug-in " + names + " failed"
                         : "the work of one of the plug-ins " + names + " failed";
  throw driver_error(at.lease->table(), broker.fault().status(), seen.origin().call.c_str(), who,
                     at.lease->owner());
}

void Chain::Impl::process(const float* input, float* output, JobInfo job) {
  check_job(input, output, job);
  const ScopedSpan span(SpanCategory::job, "job", nullptr, host_tenant, job.width, job.height);
  if (renew_lost_stages()) job.discontinuity = true;
  try {
    run(input, job);
  } catch (const Error& error) {
    settle();
    if (broker.fault().happened()) throw_fault(error);
    throw;
  } catch (...) {
    settle();
    throw;
  }
  std::memcpy(output, staging.get(), bytes_of(job.width, job.height));
  add_times();
}

}  // namespace ctxbroker
