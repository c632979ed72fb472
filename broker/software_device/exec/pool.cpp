// SPDX-License-Identifier: Apache-2.0
// The threads of one device, and the spreading of a launch's blocks over them.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "exec/block.hpp"
#include "exec/fault.hpp"
#include "limits/limits.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::software::exec {
namespace {

// From this many threads on, a launch is worth waking the others for at once.
constexpr std::uint64_t many_threads = 16384;
constexpr auto patience = std::chrono::microseconds(20);

// Kernels see default rounding and subnormal numbers, whatever the calling thread has set (audio
// hosts flush subnormals).
class FloatEnvironment {
 public:
  FloatEnvironment() {
#ifdef __SSE2__
    saved_ = _mm_getcsr();
    _mm_setcsr(0x1f80);
#endif
  }
  ~FloatEnvironment() {
#ifdef __SSE2__
    _mm_setcsr(saved_);
#endif
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  unsigned saved_ = 0;
};

struct Job {
  Launch launch;
  std::vector<std::max_align_t> parameters;  // a copy, so that a kernel cannot reach the caller's
  std::uint64_t blocks = 0, chunk = 1;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<bool> end = false;  // a block has faulted
  std::mutex mutex;               // guards outcome
  Outcome outcome;

  explicit Job(const Launch& from) : launch(from) {
    const std::size_t bytes = from.parameters.size();
    parameters.resize(bytes / sizeof(std::max_align_t) + 1);
    if (bytes != 0) std::memcpy(parameters.data(), from.parameters.data(), bytes);
    launch.parameters = {reinterpret_cast<const std::byte*>(parameters.data()), bytes};
    blocks = std::uint64_t{from.grid.x} * from.grid.y * from.grid.z;
  }

  // Of a cooperative launch: every block with its own memory, and those that nobody runs just now.
  std::vector<std::unique_ptr<BlockRunner>> runners;
  std::mutex turns_mutex;
  std::vector<std::size_t> waiting, next_round;
  std::atomic<std::uint64_t> unfinished = 0;

  // False: they would take more memory than a launch may. Throws std::bad_alloc.
  bool start_all() {
    limits::Allowance memory(limits::launch_memory);
    for (std::uint64_t index = 0; index < blocks; ++index) {
      runners.push_back(std::make_unique<BlockRunner>());
      runners.back()->prepare(launch);
      if (!memory.take(runners.back()->frame_bytes())) return false;
      runners.back()->begin(block_at(index));
      waiting.push_back(index);
    }
    unfinished = blocks;
    return true;
  }

  // A block that waits for its turn; all others come first before one has its next. None: others
  // run the rest.
  std::optional<std::size_t> take_turn() {
    const std::lock_guard lock(turns_mutex);
    if (waiting.empty()) waiting.swap(next_round);
    if (waiting.empty()) return std::nullopt;
    const std::size_t taken = waiting.back();
    waiting.pop_back();
    return taken;
  }
  void end_turn(std::size_t index) {
    const std::lock_guard lock(turns_mutex);
    next_round.push_back(index);
  }

  bool open() const {
    if (launch.cooperative) return unfinished.load(std::memory_order_relaxed) != 0 && !end;
    return next.load(std::memory_order_relaxed) < blocks;
  }

  bool stopped() const {
    return end.load(std::memory_order_relaxed) ||
           (launch.stop != nullptr && launch.stop->load(std::memory_order_relaxed));
  }

  void fail(Fault fault, const std::string& message) {
    const std::lock_guard lock(mutex);
    if (outcome.fault == Fault::none || outcome.fault == Fault::stopped) {
      // A fault of this launch makes the other threads stop: theirs is not the reason.
      if (outcome.fault == Fault::stopped && fault == Fault::stopped) return;
      outcome.fault = fault;
      outcome.message = message;
    }
    end.store(true, std::memory_order_relaxed);
  }

  Dim3 block_at(std::uint64_t index) const {
    const std::uint64_t x = launch.grid.x, y = launch.grid.y;
    return {static_cast<std::uint32_t>(index % x), static_cast<std::uint32_t>(index / x % y),
            static_cast<std::uint32_t>(index / x / y)};
  }
};

}  // namespace

struct WorkerPool::Impl {
  std::mutex mutex;
  std::condition_variable start, done;
  Job* job = nullptr;  // what helpers may join
  unsigned helping = 0;
  bool quit = false;
  std::vector<std::thread> helpers;
  BlockRunner own;

  void offer(Job& to) {
    {
      const std::lock_guard lock(mutex);
      job = &to;
    }
    start.notify_all();
  }

  Outcome run_together(Job& together, unsigned threads) {
    const std::string kernel = "kernel " + together.launch.kernel->name;
    try {
      if (!together.start_all()) {
        together.fail(Fault::trap, kernel + " needs " + limits::beyond(limits::launch_memory));
        return std::move(together.outcome);
      }
    } catch (const std::bad_alloc&) {
      together.fail(Fault::trap, kernel + ": not enough host memory for all of its blocks at once");
      return std::move(together.outcome);
    }
    const bool shared = threads > 1 && together.blocks > 1;
    if (shared) offer(together);
    take_turns(together);
    if (shared) withdraw();
    if (together.unfinished != 0) together.fail(Fault::stopped, kernel + " was stopped");
    for (const auto& runner : together.runners) {
      together.outcome.thread_instructions += runner->take_instructions();
    }
    return std::move(together.outcome);
  }

  void withdraw() {
    std::unique_lock lock(mutex);
    job = nullptr;
    done.wait(lock, [&] { return helping == 0; });
  }

  void help() {
    BlockRunner runner;
    std::unique_lock lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return quit || (job != nullptr && job->open()); });
      if (quit) return;
      Job& current = *job;
      ++helping;
      lock.unlock();
      if (current.launch.cooperative) {
        take_turns(current);
      } else {
        work(current, runner, [] {});
      }
      lock.lock();
      if (--helping == 0) done.notify_all();
    }
  }

  // Takes blocks until none is left. `idle_helpers` is called at a good moment to wake others.
  template <class Wake>
  static void work(Job& job, BlockRunner& runner, Wake wake);
  // The same for a cooperative launch.
  static void take_turns(Job& job);
};

namespace {

template <class Wake>
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it overlooks a template's final
class JobInterrupt final : public Interrupt {
 public:
  JobInterrupt(Job& job, Wake& wake) : job_(job), wake_(wake) {}
  bool should_stop() override {
    if (job_.open()) wake_();
    return job_.stopped();
  }

 private:
  Job& job_;
  Wake& wake_;
};

}  // namespace

void WorkerPool::Impl::take_turns(Job& job) {
  const FloatEnvironment environment;
  while (job.unfinished.load(std::memory_order_acquire) != 0 && !job.stopped()) {
    const std::optional<std::size_t> index = job.take_turn();
    if (!index) {
      std::this_thread::yield();
      continue;
    }
    BlockRunner& runner = *job.runners[*index];
    bool finished = false;
    const Fault fault = runner.advance(finished);
    if (fault != Fault::none) {
      job.fail(fault, runner.message());
    } else if (finished) {
      job.unfinished.fetch_sub(1, std::memory_order_acq_rel);
    } else {
      job.end_turn(*index);
    }
  }
}

template <class Wake>
void WorkerPool::Impl::work(Job& job, BlockRunner& runner, Wake wake) {
  const FloatEnvironment environment;
  try {
    runner.prepare(job.launch);
    JobInterrupt<Wake> interrupt(job, wake);
    const auto began = std::chrono::steady_clock::now();
    while (!job.stopped()) {
      const std::uint64_t first = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
      if (first >= job.blocks) break;
      const std::uint64_t last = std::min(first + job.chunk, job.blocks);
      for (std::uint64_t index = first; index < last && !job.stopped(); ++index) {
        const Fault fault = runner.run(job.block_at(index), interrupt);
        if (fault != Fault::none) {
          job.fail(fault, fault == Fault::stopped
                              ? "kernel " + job.launch.kernel->name + " was stopped"
                              : runner.message());
          break;
        }
      }
      if (job.open() && std::chrono::steady_clock::now() - began > patience) wake();
    }
    if (job.launch.stop != nullptr && job.launch.stop->load() && !job.end.load()) {
      job.fail(Fault::stopped, "kernel " + job.launch.kernel->name + " was stopped");
    }
  } catch (const std::bad_alloc&) {
    job.fail(Fault::trap,
             "kernel " + job.launch.kernel->name +
                 ": not enough host memory for its registers, shared and local memory");
  }
  const std::lock_guard lock(job.mutex);
  job.outcome.thread_instructions += runner.take_instructions();
}

WorkerPool::WorkerPool(unsigned threads) : impl_(std::make_unique<Impl>()) {
  try {
    for (unsigned i = 1; i < threads; ++i) {
      impl_->helpers.push_back(ctxbroker::detail::start_own_thread([this] { impl_->help(); }));
    }
  } catch (const std::system_error&) {
    // Fewer threads, then: the caller of run is always one.
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->quit = true;
  }
  impl_->start.notify_all();
  for (std::thread& helper : impl_->helpers) helper.join();
}

unsigned WorkerPool::threads() const noexcept {
  return static_cast<unsigned>(impl_->helpers.size()) + 1;
}

Outcome WorkerPool::run(const Launch& launch) {
  Job job(launch);
  if (launch.cooperative) return impl_->run_together(job, threads());
  const std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const std::uint64_t workers = this->threads();
  job.chunk = std::clamp<std::uint64_t>(job.blocks / (workers * 8), 1, 64);
  bool offered = workers == 1 || job.blocks <= 1;
  const bool at_once = !offered && job.blocks * threads >= many_threads;
  const auto wake = [&] {
    if (offered) return;
    offered = true;
    impl_->offer(job);
  };
  if (at_once) wake();
  Impl::work(job, impl_->own, wake);
  if (offered) impl_->withdraw();
  return std::move(job.outcome);
}

}  // namespace ctxbroker::software::exec
