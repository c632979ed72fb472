// SPDX-License-Identifier: Apache-2.0
// Work on the device that does not end in its time, and what has to wait for it.
//
// A context family is a set of contexts whose memory is one: a device's primary context with all
// green contexts on it, or one private context. The driver frees memory of a family only when all
// work of the family is done, so one hung kernel holds up every tenant in it. It makes no green
// context and loads no module before that either. Each family has one HungWork.
//
// HungWork::end ends a thing or puts it off. The broker and the gate use it to end modules,
// streams, contexts of leases, and memory of the driver. Two things do not go through it:
// - Memory from a tenant's store, because its free never waits for a neighbour. It is put off only
//   while work of the tenant itself is known to hang.
// - Contexts, graphs and pools that a tenant's own code ends, because the gate's rules do more.
//
// What has to wait while it is made goes through HungWork::make, which makes it or says in time
// that it cannot.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context/ending.hpp"
#include "context/tenant_identity.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Makes a call in a context, on a family's own thread. No guard is needed there, because no code of
// a plug-in has ever run on it. Captures of other threads are left alone. A context that cannot be
// entered or left is tried once more, because what is ended would be lost for good.
template <typename Call>
CUresult call_in(const DriverTable& table, CUcontext context, Call&& call) noexcept {
  CUcontext popped = nullptr;
  CUresult status = table.ctx_push(context);
  if (status != CUDA_SUCCESS) status = table.ctx_push(context);
  if (status != CUDA_SUCCESS) return status;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  table.exchange_capture_mode(&mode);
  status = call();
  table.exchange_capture_mode(&mode);
  if (table.ctx_pop(&popped) != CUDA_SUCCESS) table.ctx_pop(&popped);
  return status;
}

// The time that the driver's compiler may take, beside the limit for work on the device.
inline constexpr std::chrono::seconds compiler_time{60};

// One thing that is to be made. Its functions own or keep alive everything that they use, because
// the calling thread may have left by then. Until it leaves, the caller keeps all that alive, too.
// None of the functions may throw.
struct MakeRequest {
  const char* owner = nullptr;  // TenantIdentity::lasting_name of who wants it, or null
  // A call that waits for the same work as `perform` and makes nothing. With it, `perform` may take
  // `longer` than the limit, because something else than work takes the time. Empty: there is none.
  std::function<void()> probe{};
  std::chrono::milliseconds longer{0};
  std::function<CUresult()> perform;
  // The call waits for other makings alone, and not for work. So it is made beside hung work, too,
  // and beside makings that are left behind, but not beside one of its own kind.
  bool is_light = false;
  // Called after a `perform` that has succeeded and that nobody waits for any more. What waits in
  // the family is ended after it.
  std::function<void()> undo{};
  // The limit counts from here, so that what the caller has waited for before is a part of it.
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

// Knows whose work has not ended. The room above implements it. Any thread.
class BusyTenants {
 public:
  virtual ~BusyTenants() = default;
  // Returns the names of the tenants that have work in the family. Throws std::bad_alloc.
  virtual std::vector<std::string> busy_in(const HungWork& family) = 0;
  // Returns whether any has, also where it is not known which. Throws std::bad_alloc.
  virtual bool is_anybody_busy(const HungWork& family) { return !busy_in(family).empty(); }
};

// A line of the list of what is put off.
struct PutOff {
  TenantId tenant;
  int device = 0;
  std::string tenant_name, what;
  std::uint64_t count = 0, bytes = 0;
};

// Any thread. In a function that the driver calls (ThreadState::callback_of), nothing waits here
// and nothing is ended: that is CUDA_ERROR_NOT_PERMITTED, as from the driver, because the work that
// is waited for may be the function's own.
class HungWork : public std::enable_shared_from_this<HungWork> {
 public:
  // `device` is the device's ordinal. `limit` is how long an ending is waited for; zero: as long as
  // it takes. `busy` may be null; it outlives the family. `where` ends the family's name in
  // messages: " in a private context".
  HungWork(int device, std::chrono::milliseconds limit, BusyTenants* busy = nullptr,
           const std::string& where = {})
      : device_(device),
        name_("device " + std::to_string(device) + where),
        limit_(limit),
        busy_(busy) {}

  ~HungWork();
  HungWork(const HungWork&) = delete;
  HungWork& operator=(const HungWork&) = delete;

  std::chrono::milliseconds limit() const noexcept { return limit_; }

  // Returns whether work of the family is known to hang: a lease's work did not end in its time.
  bool is_hung() const noexcept { return hung_.load(std::memory_order_acquire); }
  // Returns whether endings that would wait for work are put off: work hangs, or a call has waited
  // for longer than the limit and has not returned.
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  // Returns whether any() is true for a family of the process.
  static bool anywhere() noexcept { return hung_families.load(std::memory_order_acquire) != 0; }
  // Returns whether nothing hangs, nothing is put off, and no ending is under way.
  bool idle() const noexcept;
  // Returns whether a step that has to come after the family's work has to be queued in the family.
  // On its own thread, everything that came before is done.
  bool has_to_be_awaited() const noexcept { return !is_own_thread() && !idle(); }

  // Work hangs until `has_ended` says true. It is asked every few milliseconds by the family's own
  // thread, and must not wait. It keeps alive what it looks at. `culprit` is whose work it is;
  // empty: the work waits for another's. Throws std::bad_alloc.
  void add(std::function<bool()> has_ended, std::string culprit = {});

  // Ends something. The call's status when it was made within the limit. No value: it is put off.
  // A call that may wait is made on the family's own thread, because nobody knows beforehand
  // whether it returns: when it does not within the limit, the family counts as hung from then on,
  // and the call ends with the work that it waits for. At most one such call is open in a family.
  // What is put off is done in the order in which it came. Throws std::bad_alloc; then nothing was
  // done.
  std::optional<CUresult> end(Ending ending);

  // Makes something. The call's status when it returned in its time. No value: it did not, or it
  // was not even tried, because work is known to hang: see why_not_made. The calls are made on a
  // thread of their own, which is left behind when they do not return. While one is left behind, no
  // other one is begun. Throws std::bad_alloc; then nothing was done.
  std::optional<CUresult> make(MakeRequest request);
  // Returns whether a call that ends a context is open on the device, of any broker in the process:
  // see Ending::is_behind_device.
  static bool is_context_ending(int device) noexcept {
    return of_device(contexts_ending, device).load(std::memory_order_acquire) != 0;
  }
  // Returns the names of those whose work is known to hang here. Throws std::bad_alloc.
  std::vector<std::string> culprits() const;
  // Returns whether a call of `make` is open in the process. It may wait for work, and hold up
  // calls that wait for none.
  static bool is_anything_in_the_making() noexcept {
    return in_the_making.load(std::memory_order_acquire) != 0;
  }
  // Says what a `make` without a value has met: "work of tenant blur hangs on device 0". Asks the
  // driver whose work has not ended. Throws std::bad_alloc.
  std::string why_not_made() const;

  // A wait for all work of the family, which `perform` makes on the family's own thread. It takes
  // as long as the work does. When something is known to hang, it is CUDA_ERROR_NOT_READY after the
  // limit. Endings of others that come meanwhile are put off after the limit.
  CUresult wait_for_all(std::function<CUresult()> perform);

  // Waits on the calling thread until nothing is hung, no longer than the limit. True: nothing is.
  bool wait_until_clear();

  // For whoever needs the memory: waits until all that is put off has ended, no longer than the
  // limit. False: there was nothing, or it takes longer, or something is known to hang.
  bool wait_for_put_off();

  std::vector<PutOff> put_off() const;

  // For the end of whoever owns the family: its thread ends, what is put off is never done.
  void abandon() noexcept;

 private:
  struct Task {
    Ending ending;
    CUresult status = CUDA_SUCCESS;
    std::atomic<bool> done{false};  // `status` is there
    bool put_off = false;
    bool is_listed() const noexcept { return put_off && *ending.what != 0; }
  };
  struct Making {
    MakeRequest request;
    std::shared_ptr<std::atomic<int>> counted{};  // in in_the_making; null: it is light
    CUresult status = CUDA_SUCCESS;
    bool probed = false, done = false;  // `probe` has returned; `status` is there
    bool left = false;                  // nobody waits for it
  };
  struct Marker {
    std::function<bool()> has_ended;
    std::string culprit;
    bool is_elsewhere = false;  // the work is another family's on the device
  };
  using Lock = std::unique_lock<std::mutex>;

  // Puts it into the queue, and looks for a moment whether it gets done. False: no thread can be
  // had for it. Throws std::bad_alloc.
  bool enqueue(const std::shared_ptr<Task>& task);
  // False when it is not over within the limit.
  template <typename IsOver>
  bool wait_within_limit(Lock& lock, IsOver&& is_over);
  template <typename IsOver>
  bool wait_until(Lock& lock, std::chrono::steady_clock::time_point deadline, IsOver&& is_over);
  bool start();
  bool is_anybody_busy() const noexcept;
  void make_apart(const std::shared_ptr<Making>& making) noexcept;
  void work();
  void look(Lock& lock);
  void perform_next(Lock& lock);
  void tell_of_end(Lock& lock, const Ending& ending) noexcept;
  void update() noexcept;
  bool is_hung_here() const noexcept;
  std::string what_is_waited_for() const;
  bool has_to_be_behind_device();
  void block() noexcept;
  bool is_own_thread() const noexcept;
  bool is_in_the_way_of(bool light_making) const noexcept;

  // The number of families for which any() is true. It is the process's, because the gate reads it
  // on every wait, before it knows the context.
  static inline constinit std::atomic<int> hung_families{0};
  // Calls of `make` that have not returned, without light ones.
  static inline constinit std::atomic<int> in_the_making{0};
  // A count for each device. It is the process's, because the families of all brokers share the
  // devices. Devices from the last number on share its count.
  using OfDevices = std::array<std::atomic<int>, 64>;
  static std::atomic<int>& of_device(OfDevices& counts, int device) noexcept {
    return counts[std::min(static_cast<std::size_t>(device), counts.size() - 1)];
  }
  static inline constinit OfDevices hung_on_devices{};  // families in which work hangs
  static inline constinit OfDevices contexts_ending{};  // open calls that end a context

  const int device_;
  const std::string name_;
  const std::chrono::milliseconds limit_;
  BusyTenants* const busy_;
  std::atomic<bool> any_{false}, hung_{false};
  std::atomic<std::uint64_t> requests_{0};
  mutable std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<std::shared_ptr<Task>> tasks_;  // the first one may be under way
  std::vector<std::shared_ptr<Marker>> markers_;
  unsigned left_ = 0;               // makings that are left behind
  unsigned light_left_ = 0;         // the light ones of these
  std::vector<PutOff> ended_;       // what was put off and has ended, of tenants that wait for more
  std::shared_ptr<HungWork> self_;  // while something is left to be done
  std::thread thread_;              // from the first ending on
  std::atomic<std::thread::id> ending_thread_{};
  bool performing_ = false, looking_ = false, blocked_ = false;
  bool over_ = false;     // the thread ends
  bool counted_ = false;  // in hung_on_devices
};

}  // namespace ctxbroker::detail
