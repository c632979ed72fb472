// SPDX-License-Identifier: Apache-2.0
#include "seat.hpp"

#include <dlfcn.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "ctxbroker/error.hpp"
#include "support/driver_by_name.hpp"

namespace ctxbroker::soak {
namespace {

struct Misdeed {
  const char* name;
  bool aims = false;            // at something that a neighbour holds
  bool not_in_private = false;  // its own limits may cost a private context gigabytes
  bool once = false;            // costs a context: once in a tenant's life, and not everybody
  bool leaks_stream = false;    // for good, where the library stays in the process
  bool leaks_memory = false;    // the same for libraries on the runtime library
};
// Of tests/fixtures/attacks all but overwrite_memory: contexts of one process share their
// addresses.
constexpr std::array<Misdeed, 20> misdeeds{{
    {"reset"},
    {"reset_v2"},
    {"reset_by_tail_call"},
    {"set_device"},
    {"release"},
    {"release_v2"},
    {"destroy_context", true},
    {"leave_context_pushed"},
    {"pop_too_much"},
    {"take_neighbours_context", true},
    {"create_context_and_leave", false, false, true},
    {"set_limit", false, true},
    {"set_flags"},
    {"free_memory", true},
    {"free_pinned", true},
    {"unload_module", true},
    {"destroy_stream", true},
    {"destroy_event", true},
    {"leave_global_capture", false, false, false, true},
    {"leak_memory", false, false, false, false, true},
}};

// Of a misbehaving tenant, so that what it leaks meets an end.
constexpr std::uint64_t budget = std::uint64_t{256} << 20;

template <typename Function>
Function* as_function(void* address) {
  if (address == nullptr) throw std::runtime_error("a library of the soak lacks a function");
  return reinterpret_cast<Function*>(address);
}

std::string answer(const char* call, int status) {
  return std::string(call) + " " + std::to_string(status);
}

}  // namespace

Seat::Seat(SeatOptions options, Broker* broker, std::mutex& main, Tally& tally)
    : options_(std::move(options)), broker_(broker), main_(main), tally_(tally) {}

Seat::~Seat() = default;

void Seat::open() {
  const std::unique_lock open(open_);
  try {
    const std::lock_guard main(main_);
    load();
    is_open_ = true;
    ++tally_.opened;
  } catch (const std::exception& error) {
    tally_.wrong("open", error.what());
    tenant_.reset();
  }
}

void Seat::load() {
  std::optional<AdoptedLibrary> adopted;
  if (broker_ != nullptr) {
    TenantOptions wanted{options_.lease};
    wanted.unload_at_close = options_.unloads;
    if (options_.misbehaves) wanted.driver_memory_budget = budget;
    tenant_.emplace(broker_->open_tenant("plug-in " + std::to_string(number()), wanted));
    adopted = tenant_->adopt(options_.library);
  } else {
    library_ = dlopen(options_.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }
  const auto symbol = [&](const char* name) {
    return adopted ? adopted->symbol(name) : dlsym(library_, name);
  };
  work_ = as_function<work_function>(symbol(WORK));
  work_on_own_thread_ = as_function<work_function>(symbol(WORK_ON_OWN_THREAD));
  end_work_ = as_function<work_function>(symbol(END_WORK));
  attack_ = as_function<attack_function>(symbol(ATTACK));
  attack_on_own_thread_ = as_function<attack_function>(symbol(ATTACK_ON_OWN_THREAD));
  settled_ = 0;
  lives_ = 1;
  own_resets_ = 0;
  has_made_context_ = false;
  worn_ = false;
}

bool Seat::close() {
  const std::unique_lock open(open_, std::try_to_lock);
  if (!open) return false;
  if (!is_open_) return true;
  const std::unique_lock making(making_);
  made_.reset();
  try {
    if (broker_ == nullptr) {
      dlclose(library_);
    } else {
      // What stays in the process keeps its streams and modules: only who leaves may forget them.
      if (!(options_.misbehaves && options_.unloads)) end_work();
      const std::lock_guard main(main_);
      tally_.strikes += tenant_->strikes();
      tenant_->close();
      tenant_.reset();
    }
  } catch (const std::exception& error) {
    tally_.wrong("close", error.what());
    return false;
  }
  is_open_ = false;
  if (options_.unloads) ++tally_.unloaded;
  return true;
}

void Seat::end_work() {
  WorkOrder order{};
  order.tenant = tenant_->id().value;
  order.generation = life();
  order.was_reset = own_resets_ > 0;
  {
    const Guard guard(*tenant_, options_.device, "end of work");
    end_work_(&order);
  }
  if (order.status != 0) tally_.wrong(answer(order.call, order.status), "at a tenant's end");
}

std::uint64_t Seat::generation() {
  return tenant_ ? tenant_->lease(options_.device).generation : 1;
}

// Of what it keeps: ended by a loss, or by a reset of its own that the runtime library knows of.
std::uint64_t Seat::life() {
  constexpr unsigned above_generations = 40;
  return generation() + (options_.by_runtime ? own_resets_.load() << above_generations : 0);
}

void Seat::job(Random& random) {
  const std::shared_lock open(open_);
  if (!is_open_) return;
  const std::lock_guard working(working_);
  try {
    const unsigned dice = random() % 16;
    const Place place = dice < 2    ? Place::own_thread
                        : dice == 2 ? Place::unguarded
                                    : Place::guarded;
    WorkOrder order{};
    order.seed = random();
    order.tenant = tenant_ ? tenant_->id().value : 1;
    order.generation = life();
    order.was_reset = own_resets_ > 0;
    std::unique_lock making(making_, std::defer_lock);
    if (settled_ != order.generation) making.lock();
    while (!run_work(order, place)) {  // lost at that very moment
      order.generation = life();
      if (!making.owns_lock()) making.lock();
    }
    judge(order, place);
    if (making.owns_lock() && order.status == 0) {
      made_ = order.made;
      made_->context = tenant_ ? tenant_->lease(options_.device).context : nullptr;
    }
  } catch (const Error& error) {
    tally_.wrong(to_string(error.kind()), error.what());
  }
}

// False when the order's life is over before it began.
bool Seat::run_work(WorkOrder& order, Place place) {
  if (place == Place::own_thread) {
    work_on_own_thread_(&order);
    return true;
  }
  if (!tenant_) {
    work_(&order);
    return true;
  }
  if (place == Place::unguarded) {  // a host that forgot its guard: only the code tells whose it is
    work_(&order);
    driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr));
    return true;
  }
  {
    const Guard guard(*tenant_, options_.device, "job");
    if (life() != order.generation) return false;
    work_(&order);
  }
  look_at_thread("a job");
  return true;
}

void Seat::judge(const WorkOrder& order, Place place) {
  constexpr const char* places[] = {"guarded", "own thread", "unguarded"};
  constexpr int out_of_memory = 2;
  const std::string kind = options_.mode + ", " + to_string(options_.lease) + ", " +
                           places[static_cast<std::size_t>(place)];
  const std::string where = "plug-in " + std::to_string(number());
  const bool renewed = settled_ != 0 && settled_ != order.generation;
  settled_ = order.status == 0 ? order.generation : 0;
  if (order.wrong != 0) {
    ++tally_.wrong_outputs;
    tally_.wrong("wrong output (" + kind + ")",
                 where + ", " + std::to_string(order.wrong) + " values");
  } else if (order.status == 0) {
    ++tally_.jobs;
    if (renewed) ++tally_.rebuilt;
  } else if (life() != order.generation) {
    tally_.expected("job while its life ended: " + answer(order.call, order.status));
  } else if (order.status == out_of_memory && options_.misbehaves) {
    tally_.expected("its budget is used up: " + answer(order.call, order.status));
    worn_ = true;
  } else {
    tally_.wrong(answer(order.call, order.status) + " (" + kind + ")", where);
  }
}

void Seat::look_at_thread(const char* after) {
  CUcontext current = nullptr;
  driver_call("cuCtxGetCurrent", &current);
  if (current == nullptr) return;
  tally_.wrong("the host's thread has a context current", after);
  driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr));
}

void Seat::attack(Random& random, Seat& victim) {
  const Misdeed& misdeed = misdeeds[random() % misdeeds.size()];
  const bool on_own_thread = random() % 3 == 0;
  const std::shared_lock open(open_);
  if (!is_open_) return;
  if (misdeed.not_in_private && options_.lease.kind == LeaseKind::private_own) return;
  if (misdeed.once && (!options_.makes_contexts || has_made_context_.exchange(true))) return;
  const bool leaks = misdeed.leaks_stream || (misdeed.leaks_memory && options_.by_runtime);
  if (leaks && !options_.unloads) return;
  AttackTarget target{};
  // The neighbour's handles are real ones while it is attacked. Nobody waits here: two may attack
  // each other.
  std::shared_lock<std::shared_mutex> victims_open, making;
  if (misdeed.aims) {
    if (&victim == this) return;
    victims_open = std::shared_lock(victim.open_, std::try_to_lock);
    making = std::shared_lock(victim.making_, std::try_to_lock);
    if (!victims_open || !making || !victim.made_) return;
    target = *victim.made_;
  }
  // The runtime library is not made for a reset beside other work of its own.
  std::unique_lock<std::mutex> alone;
  if (options_.by_runtime) alone = std::unique_lock(working_);
  try {
    int status = 0;
    if (on_own_thread) {
      status = attack_on_own_thread_(misdeed.name, &target);
    } else if (!tenant_) {
      status = attack_(misdeed.name, &target);
    } else {
      {
        const Guard guard(*tenant_, options_.device, "attack");
        status = attack_(misdeed.name, &target);
      }
      look_at_thread(misdeed.name);
    }
    ++tally_.attacks;
    if (status == 0 && std::string_view(misdeed.name).starts_with("reset")) {
      ++tally_.resets;
      if (options_.by_runtime) ++own_resets_;
    }
    tally_.expected(std::string("attack ") + answer(misdeed.name, status));
  } catch (const Error& error) {
    tally_.wrong(to_string(error.kind()), error.what());
  }
}

void Seat::lose() {
  const std::shared_lock open(open_);
  if (!is_open_ || !tenant_) return;
  // A life that was given up keeps its context, or its multiprocessors, until the tenant ends.
  const bool is_dear =
      options_.lease.kind == LeaseKind::private_own || options_.lease.multiprocessors != 0;
  if (is_dear && lives_.load() >= 2) {
    worn_ = true;
  } else if (broker_->force_loss(tenant_->id(), options_.device, "the soak asks for it")) {
    ++lives_;
    ++tally_.losses;
    if (options_.lease.kind == LeaseKind::green) ++tally_.green_losses;
  }
}

}  // namespace ctxbroker::soak
