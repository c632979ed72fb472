// What stands behind ctxbroker::Chain.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/resources.hpp"
#include "ctxbroker/chain.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"
#include "plugin/stage_times.hpp"

namespace ctxbroker {
namespace detail {

// A run of stages whose leases share memory. They pass the image back and forth between its two
// buffers.
struct BufferPair {
  std::shared_ptr<Lease> lease;  // of the run's first stage
  DeviceMemory memory[2];
};

struct ChainBuffers {
  std::vector<BufferPair> pairs;
  std::vector<std::size_t> pair_of_stage;
};

// Where a job's samples are now.
struct BufferIndex {
  std::size_t pair = 0;
  std::size_t side = 0;
};

}  // namespace detail

struct Chain::Impl {
  struct Stage {
    detail::Instance* instance = nullptr;
    std::shared_ptr<detail::Lease> lease;
    std::uint64_t activation = 0;  // its serial: another one needs another chain
    CUstream stream = nullptr;     // the activation's
    detail::StageTimes times;
  };

  Impl(detail::BrokerImpl& owner, const std::vector<PluginInstance*>& instances,
       const ActivationSizes& limits);
  ~Impl() { broker.remove_chain(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void process(const float* input, float* output, JobInfo job);

  // Set-up.
  void build();
  void check_job(const float* input, const float* output, const JobInfo& job) const;
  bool renew_lost_stages();

  // One job.
  void run(const float* input, const JobInfo& job);
  void bring_here(std::size_t stage, std::uint64_t bytes);
  void run_stage(std::size_t stage, const JobInfo& job);
  void fetch(std::uint64_t bytes);
  void add_times() noexcept;
  void settle() noexcept;
  void mark_end_of(std::size_t stage, CUstream stream) noexcept;
  std::uint32_t* end_mark(std::size_t stage) const noexcept;
  void throw_fault(const Error& seen);
  void wait(std::size_t stage, const char* doing);
  void give_up_hung();
  void must_be_inside(std::size_t stage, CUresult entered);
  void must(std::size_t stage, CUresult status, const char* call, const char* doing);
  void must_between(std::size_t stage, CUresult status, const char* call, const char* doing);

  detail::GuardedCall blame(std::size_t stage) const noexcept {
    detail::Instance& instance = *stages[stage].instance;
    return {.tenant = &instance.tenant(),
            .strikes = &instance.counters().strikes,
            .function = "process",
            .plugin = instance.description().short_name.c_str()};
  }
  std::uint64_t bytes_of(std::uint32_t width, std::uint32_t height) const noexcept {
    return std::uint64_t{width} * height * channels * sizeof(float);
  }
  ctxb_buffer buffer(detail::BufferIndex which, const JobInfo& job) const noexcept;
  CUdeviceptr address(detail::BufferIndex which) const noexcept {
    return buffers.pairs[which.pair].memory[which.side].get();
  }

  detail::BrokerImpl& broker;
  ActivationSizes sizes;
  Media media = Media::image;
  std::uint32_t channels = 4;  // floats per pixel
  std::vector<Stage> stages;
  detail::ChainBuffers buffers;
  // The job's samples on their way in and out, and then a mark for each stage: the number of the
  // last job whose work the stage has ended. A mark can still be read after a fault, when the
  // driver answers nothing any more.
  detail::PinnedMemory staging;
  std::uint32_t job_number = 0;
  bool marked = true;     // the running job has a mark for each stage that another one follows
  std::size_t begun = 0;  // stages of the running job whose plug-in was called
  detail::BufferIndex current;  // of the running job
  bool built = false;           // false when the last build failed: the next job tries again
};

}  // namespace ctxbroker
