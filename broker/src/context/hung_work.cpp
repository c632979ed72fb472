// SPDX-License-Identifier: Apache-2.0
#include "context/hung_work.hpp"

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "context/guard.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::milliseconds between_looks{20};
constexpr std::chrono::microseconds moment{50};
// How long a call that makes something has at least, when no tenant has work that could be in the
// way: the machine may be too busy to make it within a short limit.
constexpr std::chrono::seconds least_for_a_busy_machine{10};

// Most calls return at once, and whoever sleeps wakes up late: both sides look for a moment first,
// outside the lock.
template <typename IsTrue>
void look_for_a_moment(IsTrue&& is_true) {
  const auto end = std::chrono::steady_clock::now() + moment;
  while (!is_true() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// "2 x device memory (8192 bytes)"
std::string counted(const PutOff& line) {
  std::string text = std::to_string(line.count) + " x " + line.what;
  if (line.bytes != 0) text += " (" + std::to_string(line.bytes) + " bytes)";
  return text;
}

// "tenant blur" or "tenants blur and glow"
std::string in_words(const std::vector<std::string>& tenants) {
  std::string text = tenants.size() == 1 ? "tenant " : "tenants ";
  for (std::size_t index = 0; index < tenants.size(); ++index) {
    if (index != 0) text += index + 1 == tenants.size() ? " and " : ", ";
    text += tenants[index];
  }
  return text;
}

void add_to(std::vector<PutOff>& list, const Ending& ending) {
  auto line = std::find_if(list.begin(), list.end(), [&](const PutOff& one) {
    return one.tenant == ending.tenant->id && one.what == ending.what;
  });
  if (line == list.end()) {
    line = list.insert(list.end(), {ending.tenant->id, 0, ending.tenant->name, ending.what});
  }
  ++line->count;
  line->bytes += ending.bytes;
}

}  // namespace

bool HungWork::is_own_thread() const noexcept {
  return ending_thread_.load(std::memory_order_acquire) == std::this_thread::get_id();
}

HungWork::~HungWork() {
  if (!thread_.joinable()) return;
  if (is_own_thread()) {  // it touches nothing of the family any more
    thread_.detach();
    return;
  }
  {
    const Lock lock(mutex_);
    over_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

bool HungWork::idle() const noexcept {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && markers_.empty() && !looking_ && left_ == 0;
}

// Under the lock.
bool HungWork::is_hung_here() const noexcept {
  return std::any_of(markers_.begin(), markers_.end(),
                     [](const auto& marker) { return !marker->is_elsewhere; });
}

void HungWork::update() noexcept {
  hung_.store(!markers_.empty(), std::memory_order_release);
  // Nobody looks at the work of a family that is abandoned.
  const bool counts = !over_ && is_hung_here();
  if (counts != counted_) {
    of_device(hung_on_devices, device_).fetch_add(counts ? 1 : -1, std::memory_order_acq_rel);
  }
  counted_ = counts;
  done_.notify_all();  // whoever waits for an ending, or for the end of hung work, looks again
  const bool any = blocked_ || left_ != 0 || !markers_.empty();
  if (any_.exchange(any, std::memory_order_acq_rel) == any) return;
  hung_families.fetch_add(any ? 1 : -1, std::memory_order_acq_rel);
}

void HungWork::add(std::function<bool()> has_ended, std::string culprit) {
  auto marker = std::make_shared<Marker>(Marker{std::move(has_ended), std::move(culprit)});
  Lock lock(mutex_);
  markers_.push_back(std::move(marker));
  update();
  ++requests_;
  wake_.notify_all();
  start();
}

// Returns whether work hangs on the device, in this family or in another one. Then the family waits
// for that work, too. Families that only wait do not wait for each other.
bool HungWork::has_to_be_behind_device() {
  const auto is_clear = [device = device_] {
    return of_device(hung_on_devices, device).load(std::memory_order_acquire) == 0;
  };
  if (is_clear()) return false;
  auto marker = std::make_shared<Marker>(Marker{is_clear, {}, true});
  const Lock lock(mutex_);
  markers_.push_back(std::move(marker));
  update();
  return true;
}

bool HungWork::enqueue(const std::shared_ptr<Task>& task) {
  {
    Lock lock(mutex_);
    tasks_.push_back(task);
    if (!start()) {
      tasks_.pop_back();
      return false;
    }
    wake_.notify_all();
  }
  ++requests_;  // and whoever looks finds the lock free
  if (!any()) look_for_a_moment([&] { return task->done.load(std::memory_order_acquire); });
  return true;
}

template <typename IsOver>
bool HungWork::wait_within_limit(Lock& lock, IsOver&& is_over) {
  if (limit_ > std::chrono::milliseconds::zero()) return done_.wait_for(lock, limit_, is_over);
  done_.wait(lock, is_over);
  return true;
}

// Under the lock: the call that is open does not return in its time.
void HungWork::block() noexcept {
  blocked_ = true;
  update();
}

CUresult HungWork::wait_for_all(std::function<CUresult()> perform) {
  if (is_in_callback()) return CUDA_ERROR_NOT_PERMITTED;
  if (is_own_thread()) return perform();
  const auto task = std::make_shared<Task>();
  task->ending.call = std::move(perform);
  if (!enqueue(task)) return task->ending.perform();
  if (task->done) return task->status;
  Lock lock(mutex_);
  const auto is_over = [&] { return task->done || is_hung(); };
  if (!wait_within_limit(lock, is_over)) {
    block();
    done_.wait(lock, is_over);
  }
  if (wait_within_limit(lock, [&] { return task->done.load(); })) return task->status;
  return CUDA_ERROR_NOT_READY;
}

// Under the lock.
std::string HungWork::what_is_waited_for() const {
  if (is_hung_here()) return "work that hangs on " + name_ + " ends";
  if (!markers_.empty()) {
    return "work that hangs elsewhere on device " + std::to_string(device_) + " ends";
  }
  return "work on " + name_ + " ends, which hangs or takes longer than " +
         std::to_string(limit_.count()) + " ms";
}

std::optional<CUresult> HungWork::end(Ending ending) {
  if (is_in_callback()) return ending.settle(CUDA_ERROR_NOT_PERMITTED);
  // The family's own thread performs an ending at once, because it cannot wait for itself. Such an
  // ending follows from an earlier one.
  const bool is_behind = ending.is_behind_device && has_to_be_behind_device();
  const bool may_wait = ending.may_wait || any() || is_anything_in_the_making();
  if (!is_behind && (is_own_thread() || !may_wait)) {
    return ending.settle(ending.perform());
  }
  const auto task = std::make_shared<Task>();
  task->ending = std::move(ending);
  if (!enqueue(task)) return task->ending.settle(task->ending.perform());  // this thread waits
  if (task->done) return task->ending.settle(task->status);
  Lock lock(mutex_);
  if (!wait_within_limit(lock, [&] { return task->done || any(); })) block();
  if (task->done) {
    lock.unlock();
    return task->ending.settle(task->status);
  }
  std::vector<PutOff> told;
  add_to(told, task->ending);
  const auto tenant = task->ending.tenant;
  const bool first = !task->ending.quiet && *task->ending.what != 0 &&
                     std::none_of(tasks_.begin(), tasks_.end(), [&](const auto& other) {
                       return other->is_listed() && other->ending.tenant == tenant;
                     });
  task->put_off = true;
  const std::string work = what_is_waited_for();
  lock.unlock();
  if (first) {
    tenant->log(Severity::warning, "ledger",
                "put off until " + work + ": " + counted(told.front()) +
                    "; BrokerMetrics::put_off lists all that waits for it");
  }
  return std::nullopt;
}

template <typename IsOver>
bool HungWork::wait_until(Lock& lock, std::chrono::steady_clock::time_point deadline,
                          IsOver&& is_over) {
  if (limit_ > std::chrono::milliseconds::zero()) return done_.wait_until(lock, deadline, is_over);
  done_.wait(lock, is_over);
  return true;
}

// Under the lock: a making of that kind is not begun.
bool HungWork::is_in_the_way_of(bool light_making) const noexcept {
  return light_making ? light_left_ != 0 : left_ != 0 || is_hung();
}

std::optional<CUresult> HungWork::make(MakeRequest request) {
  if (is_own_thread()) return request.perform();
  const auto deadline = request.since + limit_;
  const auto longer = request.longer;
  const bool is_light = request.is_light;
  const auto making = std::make_shared<Making>();
  making->request = std::move(request);
  Lock lock(mutex_);
  wait_until(lock, deadline,
             [&] { return !is_in_the_way_of(is_light) || (!is_light && is_hung()); });
  if (is_in_the_way_of(is_light)) return std::nullopt;
  lock.unlock();
  if (!is_light) {
    in_the_making.fetch_add(1, std::memory_order_acq_rel);
    making->counted.reset(&in_the_making, [](auto* count) { count->fetch_sub(1); });
  }
  try {
    start_own_thread([self = shared_from_this(), making] { self->make_apart(making); }).detach();
  } catch (const std::system_error&) {
    return making->request.perform();  // no thread can be had: this one waits
  }
  lock.lock();
  const auto is_over = [&] { return making->done || (!is_light && is_hung()); };
  const auto is_decided = [&] {
    return is_over() || (making->probed && longer > std::chrono::milliseconds::zero());
  };
  if (!wait_until(lock, deadline, is_decided) && limit_ < least_for_a_busy_machine) {
    lock.unlock();
    const bool is_in_the_way = busy_ == nullptr || is_anybody_busy();
    lock.lock();
    if (!is_in_the_way) {
      wait_until(lock, deadline - limit_ + least_for_a_busy_machine, is_decided);
    }
  }
  if (making->probed) wait_until(lock, deadline + longer, is_over);
  if (making->done) return making->status;
  making->left = true;
  ++left_;
  light_left_ += is_light ? 1 : 0;
  update();
  return std::nullopt;
}

bool HungWork::is_anybody_busy() const noexcept {
  try {
    return busy_->is_anybody_busy(*this);
  } catch (...) {  // out of memory: it is not known
    return true;
  }
}

// On a thread of its own.
void HungWork::make_apart(const std::shared_ptr<Making>& making) noexcept {
  MakeRequest& request = making->request;
  const bool is_light = request.is_light;
  work_for_owner(request.owner);
  if (request.probe) request.probe();
  Lock lock(mutex_);
  making->probed = true;
  done_.notify_all();
  if (!making->left) {
    lock.unlock();
    making->status = request.perform();
    lock.lock();
    making->done = true;
  }
  making->counted.reset();
  if (!making->left) {  // what it kept alive is the caller's
    request = {};
    done_.notify_all();
    return;
  }
  if (over_) {  // it keeps things alive whose device may be gone by then: see abandon
    static_cast<void>(new (std::nothrow) std::shared_ptr<Making>(making));
    return;
  }
  lock.unlock();
  if (making->done && making->status == CUDA_SUCCESS && request.undo) request.undo();
  lock.lock();
  --left_;
  light_left_ -= is_light ? 1 : 0;
  update();
  ++requests_;
  wake_.notify_all();
  lock.unlock();
  request = {};  // which may be the last to know a lease
}

std::vector<std::string> HungWork::culprits() const {
  const Lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& marker : markers_) {
    const std::string& name = marker->culprit;
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
  }
  return names;
}

std::string HungWork::why_not_made() const {
  std::vector<std::string> names = culprits();
  if (!names.empty()) return "work of " + in_words(names) + " hangs on " + name_;
  const std::string late =
      " has not ended within " + std::to_string(limit_.count()) + " ms on " + name_;
  if (busy_ != nullptr) names = busy_->busy_in(*this);
  if (!names.empty()) return "work of " + in_words(names) + late;
  return "work that the broker does not know of, perhaps the host's own," + late +
         " (or the machine is too busy)";
}

// Under the lock: there is something to do. False: no thread does it.
bool HungWork::start() {
  if (over_) return performing_;
  try {
    if (!thread_.joinable()) thread_ = start_own_thread([this] { work(); });
  } catch (const std::system_error&) {
    return false;  // the next one tries again
  }
  self_ = shared_from_this();
  return true;
}

void HungWork::work() {
  const std::weak_ptr<HungWork> family = weak_from_this();
  Lock lock(mutex_);
  ending_thread_.store(std::this_thread::get_id(), std::memory_order_release);
  // Nothing is ended while something is made, because the one may be in the other.
  const auto is_ready = [this] { return !tasks_.empty() && left_ == 0; };
  for (;;) {
    if (self_ != nullptr && tasks_.empty() && markers_.empty()) {
      std::shared_ptr<HungWork> self = std::move(self_);
      lock.unlock();
      self.reset();  // if this was not the last owner, the last one waits for this thread
      if (family.expired()) return;
      lock.lock();
    }
    if (over_) return;
    if (!markers_.empty()) {
      wake_.wait_for(lock, between_looks, [this] { return over_; });
      if (!over_) look(lock);
    } else if (is_ready()) {
      perform_next(lock);
    } else {
      const std::uint64_t before = requests_;
      lock.unlock();
      look_for_a_moment([&] { return requests_ != before; });
      lock.lock();
      wake_.wait(lock, [&] { return over_ || is_ready() || !markers_.empty(); });
    }
  }
}

// Looks at each marker once, and drops those whose work has ended. A thing that a dropped marker
// kept alive may end here, which this thread may do.
void HungWork::look(Lock& lock) {
  std::vector<std::shared_ptr<Marker>> looked_at = markers_;
  looking_ = true;
  lock.unlock();
  std::erase_if(looked_at, [](const auto& marker) { return !marker->has_ended(); });
  lock.lock();
  std::erase_if(markers_, [&](const auto& marker) {
    return std::find(looked_at.begin(), looked_at.end(), marker) != looked_at.end();
  });
  update();
  lock.unlock();
  looked_at.clear();
  lock.lock();
  looking_ = false;
}

void HungWork::perform_next(Lock& lock) {
  std::shared_ptr<Task> task = tasks_.front();
  performing_ = true;
  lock.unlock();
  work_for_owner(task->ending.tenant == nullptr ? nullptr : task->ending.tenant->lasting_name);
  const int contexts = task->ending.is_behind_device ? 1 : 0;
  of_device(contexts_ending, device_).fetch_add(contexts, std::memory_order_acq_rel);
  const CUresult status = task->ending.perform();
  of_device(contexts_ending, device_).fetch_sub(contexts, std::memory_order_acq_rel);
  task->ending.call = nullptr;  // and with it whatever it kept alive
  task->ending.lease = nullptr;
  lock.lock();
  performing_ = blocked_ = false;
  update();
  task->status = status;
  task->done = true;
  done_.notify_all();
  if (task->put_off) {
    lock.unlock();
    task->ending.settle(status);
    task->ending.after = nullptr;
    lock.lock();
  }
  tasks_.pop_front();
  done_.notify_all();
  if (task->is_listed()) tell_of_end(lock, task->ending);
  lock.unlock();
  task.reset();  // the caller may have left it, and it keeps things alive
  lock.lock();
}

// One record says what a tenant had to wait for, when nothing of it waits any more.
void HungWork::tell_of_end(Lock& lock, const Ending& ending) noexcept {
  const auto tenant = ending.tenant;
  try {
    add_to(ended_, ending);
    const bool waits = std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
      return task->is_listed() && task->ending.tenant == tenant;
    });
    if (waits) return;
    std::string text;
    std::erase_if(ended_, [&](const PutOff& line) {
      if (line.tenant != tenant->id) return false;
      text += (text.empty() ? "" : ", ") + counted(line);
      return true;
    });
    lock.unlock();
    tenant->log(
        Severity::info, "ledger",
        "the work that hung on " + name_ + " has ended, and so has what was put off: " + text);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
  if (!lock.owns_lock()) lock.lock();
}

bool HungWork::wait_until_clear() {
  if (is_in_callback()) return !is_hung();
  Lock lock(mutex_);
  return wait_within_limit(lock, [this] { return !is_hung(); });
}

bool HungWork::wait_for_put_off() {
  if (is_in_callback()) return false;
  Lock lock(mutex_);
  if (tasks_.empty() || is_hung()) return false;
  const std::shared_ptr<Task> last = tasks_.back();
  wait_within_limit(lock, [&] { return last->done || is_hung(); });
  return last->done;
}

std::vector<PutOff> HungWork::put_off() const {
  std::vector<PutOff> list;
  const std::lock_guard lock(mutex_);
  for (const auto& task : tasks_) {
    if (task->is_listed()) add_to(list, task->ending);
  }
  return list;
}

// Leaves for good what is still put off. It keeps leases alive whose device may be gone by then, so
// it must never be ended.
void HungWork::abandon() noexcept {
  Lock lock(mutex_);
  over_ = true;
  update();
  wake_.notify_all();
  if (!is_own_thread() && !performing_ && thread_.joinable()) {
    lock.unlock();
    thread_.join();
    lock.lock();
  }
  if (tasks_.empty() && markers_.empty()) return;
  try {
    static auto& left = *new std::vector<std::shared_ptr<HungWork>>();  // reachable, for good
    static std::mutex all;
    const std::lock_guard one(all);
    left.push_back(shared_from_this());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: see below
  }
}

}  // namespace ctxbroker::detail
