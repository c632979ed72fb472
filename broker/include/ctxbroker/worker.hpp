// SPDX-License-Identifier: Apache-2.0
/// @file
/// Worker processes for hosts whose plug-ins have a format of their own. If a plug-in crashes,
/// hangs or ends CUDA, only the plug-ins of its worker stop. worker_module.h is the other side.
/// docs/workers_own_format.md shows how to use both, and docs/workers.md says what a worker costs
/// and what it protects from.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/record.hpp"
#include "ctxbroker/running_call.hpp"

namespace ctxbroker {

namespace detail {
class GraphClient;
class HostSegment;
class WorkerImpl;
struct LentBlock;
}  // namespace detail

/// What a worker does at the moment.
enum class WorkerState {
  missing,   ///< There is no process. The next call starts one.
  starting,  ///< The process is starting.
  ready,     ///< It takes calls.
  /// Its last start failed. Worker::start tries again, and so does the next call after pardon. The
  /// next call of a WorkerGraph tries again, unless it is a job with dry_while_away.
  failed,
  quarantined,  ///< It has ended too often. Calls fail until Worker::pardon.
  closed,       ///< The host has closed it.
};

/// Returns "missing", "starting", ... Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(WorkerState state) noexcept;

/// Why a worker's process ended.
enum class WorkerExitCause {
  exited,         ///< Code in it called exit.
  signal,         ///< A signal ended it: a segmentation fault, an abort, a kill from outside.
  out_of_memory,  ///< It ran into its memory limit, or the system killed it to get memory.
  late,           ///< A call did not end within its timeout.
  stopped,        ///< It was stopped (SIGSTOP), or did not run for heartbeat_timeout.
  lie,            ///< It broke the rules of the messages between the two processes.
  cuda_ended,     ///< It said that its CUDA context is lost: CUDA has ended in it, or work hangs.
  by_host,        ///< The host called Worker::kill.
};

/// Returns "exited", "signal", "out-of-memory", ... Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(WorkerExitCause cause) noexcept;

/// A call that was in a worker when the worker ended.
struct WorkerCallInFlight {
  std::uint32_t type = 0;     ///< WorkerMessage::type.
  std::uint64_t subject = 0;  ///< WorkerMessage::subject.
};

/// How a worker's process ended.
struct WorkerExit {
  WorkerExitCause cause = WorkerExitCause::exited;
  int process_id = 0;
  int exit_status = -1;  ///< -1 when a signal ended the process.
  int signal = 0;        ///< The signal that ended the process, or 0.
  /// The messages that were sent to the process and had no answer yet.
  std::vector<WorkerCallInFlight> in_flight;
  /// The functions of plug-ins that were running in the process. Their plug-ins are suspects. Only
  /// functions of plug-ins that are written with ctxbroker's SDK are listed. `elapsed` is zero.
  std::vector<RunningCall> running{};
  std::string text;  ///< One sentence with the worker's name and what the members above say.
  /// What comes next: "the next call starts it again". The text of an error has `text` and `next`.
  std::string next{};
  std::string output;  ///< What the process printed last: at most 4 KiB.
};

/// Takes a worker's notification. The bytes are valid during the call, and untrusted.
using WorkerNotification =
    std::function<void(std::uint32_t type, const void* data, std::size_t bytes)>;

/// How to run a worker.
struct WorkerOptions {
  std::string name;              ///< What records call it. It must not be empty.
  std::filesystem::path module;  ///< The host's module, which ctxbroker-worker loads.
  /// The host's own worker program, which calls ctxb_worker_serve. Give this or `module`.
  std::filesystem::path program{};
  /// Variables ("NAME=VALUE") that the process gets besides HOME, LANG, LD_LIBRARY_PATH, PATH,
  /// TMPDIR, TZ and those whose names begin with CUDA_, CTXBROKER_ or NVIDIA_. While a broker is
  /// open in the host's process, those are as they were when the first one was opened. If the host
  /// may have an MPS server, CUDA_MPS_PIPE_DIRECTORY is /dev/null, unless this list has it.
  std::vector<std::string> environment{};
  std::size_t message_bytes = 4096;  ///< The longest message and answer: 256 bytes to 128 KiB.
  unsigned calls_at_once = 8;        ///< 1 to 64. Further calls wait for their turn.
  unsigned threads = 1;              ///< Threads of the worker that handle messages, 1 to 64.
  /// How long whoever waits for a message looks for it again and again before it sleeps. With a
  /// longer time, answers come faster and take more processor time. Zero: it sleeps at once.
  std::chrono::microseconds spin{50};

  std::chrono::milliseconds start_timeout{10'000};  ///< For the process, `start` and lent blocks.
  /// How long a call takes at most, unless it says so itself. A worker that is late is ended.
  std::chrono::milliseconds call_timeout{5'000};
  /// While calls are in the worker, its process must run at least this often. This counts from the
  /// moment when it first does; until then, start_timeout holds. Zero: no check, for debuggers.
  std::chrono::milliseconds heartbeat_timeout{2'000};

  std::uint64_t memory_limit = 0;  ///< Bytes of private memory (RLIMIT_DATA). 0: no limit.
  std::uint64_t file_limit = 0;    ///< Open descriptors (RLIMIT_NOFILE). 0: as many as the host.
  std::uint64_t core_limit = 0;    ///< Bytes of a core file (RLIMIT_CORE). 0: none is written.

  /// False: the process can open no sockets but Unix ones, and neither can its children. `socket`
  /// answers EACCES. The start fails when the system cannot hold that.
  bool network = true;
  /// False: the process can trace or signal no other process but its children, and the host's
  /// memory is out of its reach. The start fails before Linux 6.12 and without Landlock.
  bool other_processes = true;

  /// A worker that ends this often within crash_window is quarantined. All causes count except
  /// WorkerExitCause::by_host. A failed start counts if the process ended in it. 0: no limit.
  unsigned crash_limit = 3;
  std::chrono::milliseconds crash_window{60'000};  ///< Exits that are longer ago do not count.
  /// For each such time that passes without an exit, the oldest exit is forgiven. 0: none is.
  std::chrono::milliseconds quiet_interval{30'000};

  RecordSink records{};  ///< Takes the worker's log. May be empty.
  /// Called in the host's process when the worker's process has ended for another reason than a
  /// close in peace, on a thread that the library has made for this worker. It must return quickly.
  /// It may close or destroy this worker, but not call it. May be empty.
  std::function<void(const WorkerExit&)> on_exit{};
  /// Called for each notification of the module, on the same thread and with the same rules.
  WorkerNotification on_notification{};
};

/// One message for a worker.
struct WorkerMessage {
  std::uint32_t type = 0;     ///< The host's own number, below 0xFFFF0000.
  std::uint64_t subject = 0;  ///< The host's own number for the plug-in. Reports of exits name it.
  const void* data = nullptr;
  std::size_t bytes = 0;  ///< At most WorkerOptions::message_bytes.
};

/// A block of memory that the host and its worker share. Worker::lend returns it. It is move-only,
/// and its end takes the block back. Take it back before the worker is closed, and never while a
/// call that names it is in flight.
///
/// As long as the worker lives, it can write here at any time: copy first, then check the copy.
class CTXB_API WorkerBuffer {
 public:
  WorkerBuffer() = default;
  WorkerBuffer(WorkerBuffer&&) noexcept = default;
  WorkerBuffer& operator=(WorkerBuffer&& other) noexcept;
  ~WorkerBuffer();

  [[nodiscard]] void* data() const& noexcept;        ///< Page-aligned; null after a move.
  void* data() const&& = delete;                     // The block ends with the buffer: keep it.
  [[nodiscard]] std::size_t bytes() const noexcept;  ///< 0 after a move.
  /// The number that messages use for the block. A worker never uses a handle again for another
  /// block.
  [[nodiscard]] std::uint64_t handle() const noexcept;

 private:
  friend class Worker;
  friend class detail::GraphClient;
  friend class detail::HostSegment;
  explicit WorkerBuffer(std::shared_ptr<detail::LentBlock> block) : block_(std::move(block)) {}
  std::shared_ptr<detail::LentBlock> block_;
};

/// One worker process after another, under supervision.
///
/// The constructor checks the options and starts nothing. The first call starts the process, and so
/// does the first call after its exit. Move-only; a moved-from worker can only be destroyed or
/// assigned to.
///
/// The host trusts nothing that comes from the process. If the process crashes, hangs or breaks the
/// rules of the messages, it is ended, the calls in it throw `context_lost` with the reason, and
/// `on_exit` and a record say who, why, and what comes next. Other workers go on.
///
/// The worker reports the exit of a process as soon as it knows it. The next process can then
/// start, even if the system is still ending the old one. If the two sides share memory, by lend or
/// by a descriptor that either has passed, the report waits until the old process is gone, because
/// its work on a GPU may write there until then. It also waits for an exit with status 0, and with
/// WorkerOptions::core_limit.
///
/// Threads: all functions but close, moves and the destructor may be called on any thread, several
/// at once. The callbacks run in the host's process, on a thread that the library has made for this
/// worker.
class CTXB_API Worker {
 public:
  /// @throws Error  `invalid_argument`, which names the option; `plugin_not_found` when there is no
  ///                such module or program.
  explicit Worker(WorkerOptions options);
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  /// Closes the worker.
  ~Worker();

  /// Starts the process now, if there is none. It tries again after a failed start.
  ///
  /// @throws Error  `plugin_load` when the process or the module cannot start, with the reason;
  ///                `wrong_state` when the worker is quarantined or closed, or in a callback of
  ///                this worker.
  void start();

  /// Sends a message and waits for the answer. Allocates nothing when the worker is ready and
  /// answers well.
  ///
  /// @param message   what to send.
  /// @param reply     gets the answer. May be null when capacity is 0.
  /// @param capacity  how many bytes `reply` has room for.
  /// @param timeout   how long the call may take. Zero: WorkerOptions::call_timeout. A start comes
  ///                  on top, with its own timeout.
  /// @return the answer's length in bytes. The answer is untrusted.
  /// @throws Error  `plugin_failed` when the worker's module returned an error, with its text;
  ///                `context_lost` when the process ended, with the reason; `plugin_load` and
  ///                `wrong_state` as start; `invalid_argument`.
  std::size_t call(const WorkerMessage& message, void* reply = nullptr, std::size_t capacity = 0,
                   std::chrono::microseconds timeout = {});

  /// Lends the worker a block of memory, which is filled with zeros. Each later process gets the
  /// same block with its handle and its contents. At most 4,096 blocks are lent at a time.
  ///
  /// @throws Error  `invalid_argument` for 0 bytes; `out_of_host_memory`; `system_limit`;
  ///                `wrong_state` for too many blocks; what call throws.
  [[nodiscard]] WorkerBuffer lend(std::size_t bytes);

  /// Whether a handle that came from the worker names a block that is lent to it now, at least this
  /// long. Use it before you follow such a handle.
  [[nodiscard]] bool is_lent(std::uint64_t handle, std::uint64_t bytes) const;

  /// Passes a copy of a descriptor to the worker, for example of device memory that is shared by
  /// file descriptor. Name its number in a message. A process that starts later does not have it.
  ///
  /// @throws Error  `invalid_argument`; what call throws.
  [[nodiscard]] std::uint64_t pass_descriptor(int descriptor);

  /// Takes a descriptor that the worker has passed under this number. The worker keeps the last 16.
  /// All are of memory: a memory file (memfd_create), or memory that a driver shares. A process
  /// that passes anything else is ended, because the end of a socket, for example, can take long.
  ///
  /// @return the descriptor, which the caller closes; -1 when there is none. It is untrusted.
  [[nodiscard]] int take_descriptor(std::uint64_t number);

  [[nodiscard]] WorkerState state() const;  ///< The state at this moment.
  /// Why the state is what it is, in one sentence; empty when nothing went wrong.
  [[nodiscard]] std::string reason() const;
  /// How the last process ended; nothing when none has, or when close ended it in peace.
  [[nodiscard]] std::optional<WorkerExit> last_exit() const;
  /// How many processes have ended for another reason than a close in peace.
  [[nodiscard]] std::uint64_t exits() const;
  [[nodiscard]] int process_id() const;  ///< 0 when there is no process.

  /// Ends the process by force. Calls in it throw `context_lost`, and a start that is going on
  /// throws `plugin_load`. The exit does not count towards crash_limit, and the next call starts a
  /// process again.
  ///
  /// @param reason  one sentence for records.
  void kill(const std::string& reason);

  /// Forgives all exits, and lifts a quarantine and the state after a failed start. The next call
  /// starts the process.
  void pardon();

  /// Ends the process in peace: `stop` is called, and the process exits. It has call_timeout for
  /// both; then force is used. If the process crashes or hangs there, on_exit and a record say so,
  /// as they do at any other time. Waits up to two seconds for processes that the system has not
  /// ended yet. A second call does nothing. No other call may run.
  void close() noexcept;

 private:
  friend class WorkerBuffer;
  friend class detail::GraphClient;
  std::shared_ptr<detail::WorkerImpl> impl_;
};

}  // namespace ctxbroker
