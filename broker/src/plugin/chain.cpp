#include "ctxbroker/chain.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "context/resources.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/chain_buffers.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

struct Chain::Impl {
  struct Stage {
    Instance* instance = nullptr;
    std::shared_ptr<Lease> lease;
    std::uint64_t activation = 0;  // its serial: another one needs another chain
    CUstream stream = nullptr;     // the activation's
    Event begin, end;              // around this stage's work; end is also the hand-over
  };

  Impl(BrokerImpl& owner, const std::vector<PluginInstance*>& instances,
       const ActivationSizes& limits);
  ~Impl() { broker.remove_chain(); }

  void process(const float* input, float* output, const JobInfo& job);
  void check_job(const float* input, const float* output, const JobInfo& job) const;
  std::uint64_t bytes_of(std::uint32_t width, std::uint32_t height) const noexcept {
    return std::uint64_t{width} * height * channels * sizeof(float);
  }
  void run(const float* input, const JobInfo& job);
  void bring_here(std::size_t stage, std::uint64_t bytes);
  void run_stage(std::size_t stage, const JobInfo& job);
  void fetch(std::uint64_t bytes);
  void add_times() noexcept;
  void settle() noexcept;
  GuardedCall blame(std::size_t stage) const noexcept {
    Instance& instance = *stages[stage].instance;
    return {&instance.tenant(), &instance.counters().strikes, "process"};
  }
  ctxb_buffer buffer(Place where, const JobInfo& job) const noexcept;
  CUdeviceptr address(Place where) const noexcept {
    return buffers.pairs[where.pair].memory[where.side].get();
  }
  void must(std::size_t stage, CUresult status, const char* call, const char* doing);

  BrokerImpl& broker;
  ActivationSizes sizes;
  Media media = Media::image;
  std::uint32_t channels = 4;  // floats per pixel
  std::vector<Stage> stages;
  ChainBuffers buffers;
  PinnedMemory staging;  // the job's samples on their way in and out
  Place place;           // of the running job
};

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "chain: " + why);
}

void check_stages(const std::vector<PluginInstance*>& instances, const BrokerImpl& broker,
                  const ActivationSizes& sizes) {
  if (instances.empty()) refuse("it needs at least one plug-in instance");
  for (PluginInstance* instance : instances) {
    if (instance == nullptr) refuse("an instance is null");
    const std::string name = instance->description().short_name;
    if (&instance->impl().broker() != &broker) refuse(name + " belongs to another broker");
    if (!instance->active()) refuse(name + " is not active");
    if (instance->description().media != instances[0]->description().media) {
      refuse(name + " processes " + to_string(instance->description().media) +
             ", the first one does not");
    }
    if (instance->lease().device != instances[0]->lease().device) {
      refuse(name + " is on another device than the first one");
    }
    const ActivationSizes& active = instance->impl().activation()->sizes;
    if (sizes.max_width > active.max_width || sizes.max_height > active.max_height) {
      refuse(name + " is active for " + std::to_string(active.max_width) + " x " +
             std::to_string(active.max_height) + " only");
    }
  }
  if (sizes.max_width == 0 || sizes.max_height == 0) refuse("a size is 0");
}

}  // namespace

Chain::Impl::Impl(BrokerImpl& owner, const std::vector<PluginInstance*>& instances,
                  const ActivationSizes& limits)
    : broker(owner), sizes(limits) {
  check_stages(instances, broker, sizes);
  media = instances[0]->description().media;
  channels = media == Media::image ? 4 : 1;
  std::vector<std::shared_ptr<Lease>> leases;
  for (PluginInstance* given : instances) {
    Instance& instance = given->impl();
    const Activation& activation = *instance.activation();
    leases.push_back(activation.lease);
    stages.push_back({&instance, activation.lease, activation.serial, activation.stream.get(),
                      make_timing_event(activation.lease), make_timing_event(activation.lease)});
  }
  const std::uint64_t bytes = bytes_of(sizes.max_width, sizes.max_height);
  buffers = make_chain_buffers(leases, bytes);
  staging = make_pinned_memory(leases.front(), bytes);
  broker.add_chain();  // last: nothing above has to be undone here
}

void Chain::Impl::must(std::size_t stage, CUresult status, const char* call, const char* doing) {
  if (status == CUDA_SUCCESS) return;
  const Stage& at = stages[stage];
  at.lease->note(status);
  throw driver_error(
      at.lease->table(), status, call,
      std::string(doing) + " (plug-in " + at.instance->description().short_name + ")",
      at.lease->owner());
}

void Chain::Impl::check_job(const float* input, const float* output, const JobInfo& job) const {
  if (input == nullptr || output == nullptr) refuse("input or output is null");
  if (job.width == 0 || job.height == 0) refuse("the job's width or height is 0");
  if (job.width > sizes.max_width || job.height > sizes.max_height) {
    refuse("a job of " + std::to_string(job.width) + " x " + std::to_string(job.height) +
           " does not fit into " + std::to_string(sizes.max_width) + " x " +
           std::to_string(sizes.max_height));
  }
  if (!std::isfinite(job.sample_rate) || job.sample_rate < 0) refuse("the sample rate is no rate");
  for (const Stage& stage : stages) {
    const Activation* activation = stage.instance->activation();
    if (activation == nullptr || activation->serial != stage.activation) {
      throw Error(ErrorKind::wrong_state,
                  "chain: plug-in " + stage.instance->description().short_name +
                      " was deactivated since the chain was made; make a new chain");
    }
    if (stage.lease->lost()) {
      throw Error(ErrorKind::context_lost, "chain: the context of plug-in " +
                                               stage.instance->description().short_name +
                                               " is gone; deactivate and activate it again");
    }
  }
}

ctxb_buffer Chain::Impl::buffer(Place where, const JobInfo& job) const noexcept {
  ctxb_buffer buffer{};
  buffer.size = sizeof buffer;
  buffer.media = media == Media::image ? CTXB_MEDIA_IMAGE : CTXB_MEDIA_AUDIO;
  buffer.data = address(where);
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
  must(stage, driver.stream_wait_event(stream, stages[stage - 1].end.get(), 0), "cuStreamWaitEvent",
       "the work before cannot be waited for");
  const Place here{buffers.pair_of_stage[stage], 0};
  if (here.pair == place.pair) return;
  const auto context = [&](Place where) { return buffers.pairs[where.pair].lease->context(); };
  must(stage,
       driver.memcpy_peer_async(address(here), context(here), address(place), context(place), bytes,
                                stream),
       "cuMemcpyPeerAsync", "the samples cannot be copied between two contexts");
  place = here;
}

// Inside the stage's guard. Moves `place` to where the stage's output is.
void Chain::Impl::run_stage(std::size_t stage, const JobInfo& job) {
  Stage& at = stages[stage];
  const DriverTable& driver = at.lease->table();
  const Place other{place.pair, 1 - place.side};
  const ctxb_buffer input = buffer(place, job), output = buffer(other, job);
  ctxb_job given{};
  given.position = job.position;
  given.sample_rate = job.sample_rate;
  given.deadline_ns = job.deadline_ns;
  given.inputs = &input;
  given.outputs = &output;
  given.input_count = given.output_count = 1;
  given.discontinuity = job.discontinuity ? 1 : 0;
  must(stage, driver.event_record(at.begin.get(), at.stream), "cuEventRecord",
       "the start of the work cannot be marked");
  Instance::Processed processed = at.instance->process(given);
  if (processed.outcome.ran() && processed.status == CTXB_AGAIN) {
    // Once more, when all is done that the first try may have enqueued; then it is an error.
    must(stage, driver.stream_synchronize(at.stream), "cuStreamSynchronize",
         "the plug-in's work failed");
    processed = at.instance->process(given);
  }
  const bool bypass = processed.status == CTXB_BYPASS;
  if (!processed.outcome.ran() || (processed.status != CTXB_OK && !bypass)) {
    throw at.instance->failure("process", processed.outcome, processed.status);
  }
  must(stage, driver.event_record(at.end.get(), at.stream), "cuEventRecord",
       "the end of the work cannot be marked");
  if (!bypass) place = other;
}

void Chain::Impl::run(const float* input, const JobInfo& job) {
  const std::uint64_t bytes = bytes_of(job.width, job.height);
  std::memcpy(staging.get(), input, bytes);
  place = {};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const Stage& at = stages[stage];
    const Guard guard(at.lease->target(), blame(stage));
    must(stage, guard.status(), "cuCtxPushCurrent_v2", "the lease cannot be entered");
    if (stage == 0) {
      must(stage,
           at.lease->table().memcpy_htod_async(address(place), staging.get(), bytes, at.stream),
           "cuMemcpyHtoDAsync_v2", "the samples cannot be uploaded");
    } else {
      bring_here(stage, bytes);
    }
    run_stage(stage, job);
  }
  fetch(bytes);
}

// Downloads and waits: the one wait of a job.
void Chain::Impl::fetch(std::uint64_t bytes) {
  const std::size_t last = stages.size() - 1;
  const Stage& at = stages[last];
  const Guard guard(at.lease->target());
  must(last, guard.status(), "cuCtxPushCurrent_v2", "the lease cannot be entered");
  must(last, at.lease->table().memcpy_dtoh_async(staging.get(), address(place), bytes, at.stream),
       "cuMemcpyDtoHAsync_v2", "the samples cannot be downloaded");
  must(last, at.lease->table().stream_synchronize(at.stream), "cuStreamSynchronize",
       "the job's work on the device failed");
}

void Chain::Impl::add_times() noexcept {
  for (Stage& stage : stages) {
    float milliseconds = 0;
    const CUresult status = guarded(stage.lease->target(), {}, [&] {
      return stage.lease->table().event_elapsed_time(&milliseconds, stage.begin.get(),
                                                     stage.end.get());
    });
    Counters& counters = stage.instance->counters();
    counters.jobs.fetch_add(1, std::memory_order_relaxed);
    if (status != CUDA_SUCCESS || !(milliseconds > 0)) continue;
    counters.device_nanoseconds.fetch_add(static_cast<std::uint64_t>(milliseconds * 1e6F),
                                          std::memory_order_relaxed);
  }
}

// After a failure: waits for what was enqueued, so that the buffers can be used again.
void Chain::Impl::settle() noexcept {
  for (const Stage& stage : stages) {
    if (stage.lease->lost()) continue;
    stage.lease->note(guarded(stage.lease->target(), {}, [&] {
      return stage.lease->table().stream_synchronize(stage.stream);
    }));
  }
}

void Chain::Impl::process(const float* input, float* output, const JobInfo& job) {
  check_job(input, output, job);
  try {
    run(input, job);
  } catch (...) {
    settle();
    throw;
  }
  std::memcpy(output, staging.get(), bytes_of(job.width, job.height));
  add_times();
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): by value, so that hosts can hand a list over
Chain::Chain(Broker& broker, std::vector<PluginInstance*> stages, const ActivationSizes& sizes)
    : impl_(std::make_unique<Impl>(broker.impl(), stages, sizes)) {}
Chain::Chain(Chain&&) noexcept = default;
Chain& Chain::operator=(Chain&&) noexcept = default;
Chain::~Chain() = default;

void Chain::process(const float* input, float* output, const JobInfo& job) {
  if (impl_ == nullptr) throw Error(ErrorKind::wrong_state, "chain: it was moved away");
  impl_->process(input, output, job);
}

}  // namespace ctxbroker
