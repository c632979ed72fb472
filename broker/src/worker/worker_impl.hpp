// SPDX-License-Identifier: Apache-2.0
// A worker on the host's channel: its processes, one after another, and who may start and end them.
//
// States, under `mutex_`:
//
//   missing --call, start--> starting --the module's start is good--> ready
//   starting --it is not, or the process ends--> failed
//   ready, starting --the process ends--> missing, or quarantined when the budget is spent
//   failed --start--> starting            failed, quarantined --pardon--> missing
//   any --close--> closed
//
// The worker's thread (supervise) starts each process, because a process gets PR_SET_PDEATHSIG for
// the THREAD that started it. It reads the process's output and packets, notices its exit within
// milliseconds, looks for hangs, and is the only one that waits for the process. Other threads only
// request its end, and kill it.
//
// On a GPU, the system needs up to a second to end a process, because the driver gives back what it
// has there. Until then, kernels and copies may still write into memory that was lent to the
// process. If no memory was lent to it, its exit is reported as soon as /proc shows that it is
// dying. It is then a leaving process, and the next one can start.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context/host_pages.hpp"
#include "ctxbroker/worker.hpp"
#include "observe/recorder.hpp"
#include "process/foreign_descriptor.hpp"
#include "process/maker.hpp"
#include "worker/host_channel.hpp"
#include "worker/lent_blocks.hpp"
#include "worker/packet.hpp"

namespace ctxbroker::detail {

class WorkerImpl;

constexpr std::chrono::seconds kill_patience{2};  // of supervision, with the system
constexpr std::chrono::seconds end_patience{3};   // longer, of who waits for supervision
constexpr std::size_t most_polled = 4;            // by supervision, besides leaving processes

struct LentBlock {
  const Maker maker;
  std::mutex mutex;                 // for the owner
  std::weak_ptr<WorkerImpl> owner;  // a graph's stand-by takes it over
  std::atomic<std::uint64_t> handle{0};
  std::atomic<unsigned> jobs{0};     // of a graph, which use it
  std::atomic<bool> is_over{false};  // and is taken back when they have ended
  bool is_private = false;           // of the library, which drops it when the process ends
  const std::shared_ptr<HostPages> pages;

  explicit LentBlock(std::shared_ptr<HostPages> shared) : pages(std::move(shared)) {}
  std::shared_ptr<WorkerImpl> find_owner() {
    const std::lock_guard lock(mutex);
    return owner.lock();
  }
};

// One process.
struct WorkerProcess {
  WorkerProcess(const Shape& shape, Clock::duration spin, std::function<void()> look,
                std::shared_ptr<Closer> closer);
  ~WorkerProcess() { closer->close(std::move(socket)); }  // with what nobody has received
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int id = 0;
  const std::shared_ptr<Closer> closer;
  Descriptor pidfd, socket, output;
  Descriptor memory_file;
  Mapping memory;
  HostChannel channel;
  std::uint64_t oom_kills = 0;  // of the control group, when it started

  // Supervision only.
  bool socket_ended = false, is_reaped = false;
  bool is_traced = false;  // it has died, and another process has to see that first
  std::uint32_t heartbeat = 0;
  Clock::time_point beat_at, looked_at;
  std::string last_output, line;
  unsigned lines_told = 0;

  // Under the worker's mutex.
  bool peaceful = false;                 // its end is no crash, because its start has failed
  bool is_stopping = false;              // the host closes it
  std::optional<WorkerExitCause> asked;  // somebody has killed it, for this reason
  std::string asked_text;
  Clock::time_point killed_at;
  bool has_descriptors = false;  // one has been passed, by whatever side: it may be of memory
  bool is_leaving = false;       // its end is told before the system has ended it
  bool ended = false;            // all is known about its end
  std::string end_text;
};

class WorkerImpl : public std::enable_shared_from_this<WorkerImpl> {
 public:
  static std::shared_ptr<WorkerImpl> make(WorkerOptions options);
  WorkerImpl(const WorkerImpl&) = delete;
  WorkerImpl& operator=(const WorkerImpl&) = delete;

  void start();
  // Ends the process that there is, because an answer of its cannot be right.
  [[noreturn]] void refuse(const std::string& why);
  // The choice for a call when there is no process: to start one, or to throw Error (context_lost).
  enum class Absent : std::uint8_t { start, refuse };
  std::size_t call(const WorkerMessage& message, void* reply, std::size_t capacity,
                   std::chrono::microseconds timeout, Absent absent = Absent::start);
  // Calls a process that the caller knows, without a lock. If that has been forgotten since, does
  // the same as call with Absent::refuse.
  std::size_t call(const std::weak_ptr<WorkerProcess>& known, const WorkerMessage& message,
                   void* reply, std::size_t capacity, std::chrono::microseconds timeout);
  // Returns the process that there is, for such calls, or nothing.
  std::weak_ptr<WorkerProcess> process() const;
  // A block for the process that there is, which is the library's own, or for each one to come.
  enum class LentTo : std::uint8_t { each_process, this_process };
  std::shared_ptr<LentBlock> lend(std::size_t bytes, LentTo to = LentTo::each_process) {
    return lend(HostPages::make(bytes), to);
  }
  // Not for pages of the host, which other processes cannot map.
  std::shared_ptr<LentBlock> lend(std::shared_ptr<HostPages> pages,
                                  LentTo to = LentTo::each_process);
  void take_back(const LentBlock& block) noexcept;
  LentBlocks lent_blocks() const;
  // Returns how often the list of lent blocks has changed. Takes no lock.
  std::uint64_t lent_changes() const noexcept { return lent_changes_; }
  // Takes over the blocks lent to `before`, the worker that this one replaces. If the process does
  // not take them all, it is ended.
  void take_blocks_of(WorkerImpl& before);
  bool is_lent(std::uint64_t handle, std::uint64_t bytes) const;
  std::uint64_t pass_descriptor(int descriptor, Absent absent = Absent::start);
  int take_descriptor(std::uint64_t number);
  WorkerState state() const;
  std::string reason() const;
  std::optional<WorkerExit> last_exit() const;
  std::uint64_t exits() const;
  int process_id() const;
  void kill(const std::string& reason);
  void pardon();
  // Also in a callback, where it does not wait for the process.
  void close() noexcept;
  // Takes over what is known of the processes of another worker, which this one replaces, and says
  // so in `in_charge`. Returns false, and does nothing, when its own process has ended.
  bool follow(const WorkerImpl& before, std::atomic<bool>& in_charge);
  // The process of `other` was to replace this one's, and has ended before that.
  void count_end_of(const WorkerImpl& other);
  // No process replaces this one's: the worker has failed, until pardon or start.
  void give_up(const std::string& why) noexcept;
  void tell(Severity severity, std::string text) const;

 private:
  explicit WorkerImpl(WorkerOptions options);
  ~WorkerImpl() = default;
  // Ends it. In a callback, its thread destroys it when it has left the callback. A forked process
  // leaves all of it alone.
  static void end(WorkerImpl* worker) noexcept;
  bool is_in_callback() const noexcept {
    return std::this_thread::get_id() == supervisor_.get_id();
  }

  using Lock = std::unique_lock<std::mutex>;
  using Process = std::shared_ptr<WorkerProcess>;

  // Calls.
  void check_maker() const;  // throws Error in a forked process
  Process ready_process(bool asked_by_host);
  Process present_process(Absent absent);
  Process start_process();
  void start_module(const Process& process);
  std::size_t call_process(const Process& process, const WorkerMessage& message, void* reply,
                           std::size_t capacity, std::chrono::microseconds timeout);
  void check_message(const WorkerMessage& message, const void* reply, std::size_t capacity,
                     std::chrono::microseconds timeout) const;
  void add_block(const std::shared_ptr<LentBlock>& block);
  void own_block(const std::shared_ptr<LentBlock>& block);
  void forget_block(std::uint64_t handle) noexcept;
  void give_block(const Process& process, const LentBlock& block, Clock::time_point deadline);
  std::size_t own_call(const Process& process, const WorkerMessage& message, void* reply,
                       std::size_t capacity, Clock::time_point deadline);
  void request_kill(WorkerProcess& process, WorkerExitCause cause, const std::string& text);
  void stop(const Process& process);
  [[noreturn]] void throw_end(const Process& process);
  void send_descriptor(const Process& process, std::uint64_t number, int descriptor,
                       Clock::time_point deadline);

  // Supervision, on the worker's thread.
  void supervise() noexcept;
  void spawn();
  void watch(const Process& process);
  void wait_for(std::span<pollfd> files, std::chrono::milliseconds time) noexcept;
  void read_packets(WorkerProcess& process);
  void keep_descriptor(WorkerProcess& process, std::uint64_t number, Descriptor descriptor);
  bool read_output(WorkerProcess& process, bool all);
  void look_for_hang(WorkerProcess& process);
  bool is_about_to_end(const WorkerProcess& process) const;
  bool may_leave(const WorkerProcess& process) const;
  bool finish_early(const Process& process);
  void finish(const Process& process, std::optional<int> status);
  void see_off() noexcept;
  WorkerExit describe(WorkerProcess& process, std::optional<int> status);
  static bool has_stopped(const WorkerProcess& process, const WorkerExit& exit);
  static bool is_peaceful(const WorkerProcess& process, const WorkerExit& exit);
  bool publish(WorkerProcess& process, WorkerExit& exit);
  void end_in_failure(const Process& process, std::string why);

  // The crash budget, with the lock.
  void count_crash(Clock::time_point now);
  bool is_budget_spent() const;
  std::string quarantine_in_words() const;
  void wake() const noexcept;

  const Maker maker_;
  const WorkerOptions options_;
  const Shape shape_;
  Recorder recorder_;
  const std::shared_ptr<Closer> closer_;
  Packet packet_;  // what arrives; supervision only
  Descriptor wake_;
  std::vector<Process> leaving_;  // whose end is told. Supervision only, as the next one
  std::vector<pollfd> polled_;    // has room for all of them

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<WorkerState> state_{WorkerState::missing};  // a job looks at it without the mutex
  std::string reason_;
  Process process_;
  bool start_wanted_ = false;
  bool close_wanted_ = false;
  std::string spawn_error_;
  std::optional<WorkerExit> last_exit_;
  std::atomic<std::uint64_t> exits_{0};  // likewise
  std::vector<Clock::time_point> crashes_;
  std::vector<std::shared_ptr<LentBlock>> lent_;
  std::atomic<std::uint64_t> lent_changes_{0};  // changed with the mutex
  std::uint64_t next_handle_ = 1;
  std::array<std::pair<std::uint64_t, Descriptor>, 16> descriptors_;
  std::size_t next_descriptor_ = 0;

  bool ends_with_thread_ = false;  // supervision only
  std::thread supervisor_;         // the last member: it uses all others
};

// Names a message of this type: "message 3", "the module's start", "a job".
std::string message_in_words(std::uint32_t type);
// The environment of a worker. It finds no MPS server, unless `added` names one.
std::vector<std::string> worker_environment(std::vector<std::string> added);
std::uint64_t oom_kills() noexcept;  // in this process's control group; 0 when nobody counts

// The state of a process's main thread, as /proc has it.
struct ProcessLook {
  char state = '?';  // '?': it cannot be read
  bool is_dying = false;
  int status = 0;  // how it ends, as waitpid tells it; 0 also when that is not known
};
ProcessLook look_at(int id);
// Waits until the system has ended the process. Returns its status, -1 when other code of the host
// has waited for it, or nothing when it takes longer.
std::optional<int> reap(WorkerProcess& process, std::chrono::milliseconds patience) noexcept;
// Waits for what the process has made of the host's children (clone with CLONE_PARENT), as far as
// it has ended and is in the process's group. On the thread that has started the process.
void reap_siblings(const WorkerProcess& process) noexcept;

}  // namespace ctxbroker::detail
