// SPDX-License-Identifier: Apache-2.0
// Stream captures that tenants' code or the host has begun and that have not ended yet. While a
// thread has one, the driver refuses calls of the thread that are unsafe in a capture, such as
// allocations, and the capture becomes invalid: also when the calls are another tenant's, whose
// guard stands inside. So others' code works in the relaxed mode, in which they are not refused.
#pragma once

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "context/thread_state.hpp"

namespace ctxbroker::detail {

// One for the process, because streams belong to the process. Any thread.
class OpenCaptures {
 public:
  static OpenCaptures& all();

  // `owner` ends what is left open: a guard's frame, or a tenant. Null: the host's, which is left
  // to the host. Without memory for that, the capture is its code's to end.
  void begun(const void* owner, CUstream stream, CUcontext context) noexcept;
  // It has ended, on whatever thread.
  void ended(CUstream stream) noexcept;

  // Protects the driver's call that begins a capture. Lives from before that call until `begun`.
  class Beginning {
   public:
    Beginning() noexcept : lock_(all().beginning_) {}

   private:
    std::shared_lock<std::shared_mutex> lock_;
  };
  // A capture of a plug-in's job by the broker. It ends with this object. The object stays on its
  // thread.
  class OfJob {
   public:
    OfJob() noexcept {
      all().of_jobs_.fetch_add(1, std::memory_order_acq_rel);
      thread_state.captures_job = true;
    }
    ~OfJob() {
      all().of_jobs_.fetch_sub(1, std::memory_order_acq_rel);
      thread_state.captures_job = false;
    }
    OfJob(const OfJob&) = delete;
    OfJob& operator=(const OfJob&) = delete;
  };
  // Returns whether the calling thread captures anything: on a stream of its code, or a job.
  bool captures_here() noexcept { return thread_state.captures_job || is_open_here(); }
  // Makes a call that would end captures. If a capture is open or about to begin, returns
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED without the call.
  template <typename Call>
  CUresult call_if_none(Call&& call) noexcept {
    const std::lock_guard turn(turn_);
    const std::unique_lock lock(beginning_, std::try_to_lock);
    const bool is_free = lock.owns_lock() && count_.load(std::memory_order_acquire) == 0 &&
                         of_jobs_.load(std::memory_order_acquire) == 0;
    return is_free ? call() : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  // Returns whether the calling thread has begun one that has not ended. No lock if no thread has.
  bool is_open_here() noexcept {
    return count_.load(std::memory_order_acquire) != 0 && find_here();
  }

  // The streams with a capture that the owner has left open. Throws std::bad_alloc.
  std::vector<CUstream> left_by(const void* owner);

  // Calls end(stream) for each that the owner has left open. The stream cannot end meanwhile,
  // because drivers crash on the handle of one that has ended: `end` holds a lock that guards
  // take too, so it calls the driver and takes no lock of a tenant. Those that a call is about to
  // end with their streams stay, and nobody ends them.
  template <typename End>
  void end_left(const void* owner, End&& end) noexcept {
    const std::lock_guard lock(mutex_);
    for (Open& one : open_) {
      if (one.owner == owner && one.ends != 0) one.owner = nullptr;
    }
    std::erase_if(open_, [&](const Open& one) {
      if (one.owner != owner) return false;
      end(one.stream);
      return true;
    });
    count_.store(open_.size(), std::memory_order_release);
  }

 private:
  friend class EndingCaptures;
  struct Open {
    const void* owner;
    CUstream stream;
    CUcontext context;
    std::uint64_t thread;  // each thread has its own CU_STREAM_PER_THREAD
    unsigned ends = 0;     // calls that are about to end the stream
  };
  bool find_here() noexcept;
  template <typename IsOver>
  void forget(IsOver&& is_over) noexcept;
  template <typename Change>
  void change(Change&& change) noexcept;

  std::mutex turn_;  // one call_if_none at a time
  std::shared_mutex beginning_;
  std::mutex mutex_;
  std::vector<Open> open_;
  std::atomic<std::size_t> count_{0};  // of open_
  std::atomic<std::size_t> of_jobs_{0};
};

// The captures that a call of the driver is about to end with their stream, or with a context. They
// are open until the driver has agreed. From then on the handle may be another stream's, so those
// that are begun after this are not among them. Any thread.
class EndingCaptures {
 public:
  explicit EndingCaptures(CUstream stream) noexcept;  // null: of none
  explicit EndingCaptures(CUcontext context) noexcept;
  // To be called once, after the driver's call. False: the driver has refused.
  void settle(bool has_ended) const noexcept;

 private:
  void begin() const noexcept;
  bool is_among(const OpenCaptures::Open& one) const noexcept;

  CUstream stream_ = nullptr;
  CUcontext context_ = nullptr;
  std::uint64_t thread_ = thread_number();
};

// While it lives, the calling thread is in the relaxed mode, if it has a capture open.
class BesideCaptures {
 public:
  explicit BesideCaptures(const DriverTable& driver) noexcept
      : driver_(OpenCaptures::all().is_open_here() ? &driver : nullptr) {
    if (driver_ != nullptr) driver_->exchange_capture_mode(&mode_);
  }
  ~BesideCaptures() {
    if (driver_ != nullptr) driver_->exchange_capture_mode(&mode_);
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  const DriverTable* const driver_;  // null: there is no capture
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Returns whether the stream has work that is not done. A stream that is captured may not be
// asked, because that would end the capture: it has none that is known.
inline bool is_busy(const DriverTable& driver, CUstream stream) noexcept {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool may_ask = driver.stream_is_capturing == nullptr ||
                       (driver.stream_is_capturing(stream, &capture) == CUDA_SUCCESS &&
                        capture == CU_STREAM_CAPTURE_STATUS_NONE);
  return may_ask && driver.stream_query(stream) == CUDA_ERROR_NOT_READY;
}

}  // namespace ctxbroker::detail
