// SPDX-License-Identifier: Apache-2.0
// Random sequences of guards with the gate in force, on many threads in many leases, while further
// tenants come, move and go. Every sequence is repeatable from its seed.
#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "lease_contexts.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

constexpr int threads = 8;
constexpr unsigned sequences = 1000;  // of all threads together
constexpr int steps = 8;              // of one sequence
constexpr int deepest = 4;

// Holds the broker, the contexts and the tenants that the threads share.
class GuardedThreadsTest : public ::testing::Test {
 protected:
  GuardedThreadsTest() : broker(Broker::open()) {
    driver_call("cuDevicePrimaryCtxRetain", &primary, 0);
    driver_call("cuCtxCreate_v2", &own, 0U, 0);
    driver_call("cuCtxPopCurrent_v2", &own);
    for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green,
                                 LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
      TenantOptions options{LeaseChoice(kind)};
      options.unload_at_close = true;  // other tests' tenants have the same libraries
      tenants.push_back(broker.open_tenant(to_string(kind), options));
      leases.push_back(tenants.back().lease());
      contexts.add(leases.back());
    }
    // One of each kind has code that misbehaves.
    for (const char* access : {"attacks_proc_address", "attacks_dlsym", "attacks_linked"}) {
      libraries.push_back(tenants[libraries.size()].adopt(test_library(access)));
      attacks.push_back(reinterpret_cast<attack_function*>(libraries.back().symbol(ATTACK)));
    }
  }
  void TearDown() override {
    driver_call("cuCtxDestroy_v2", own);
    driver_call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  friend class Player;
  Broker broker;
  std::mutex opening;  // a broker is for one thread at a time
  std::vector<Tenant> tenants;
  std::vector<LeaseInfo> leases;  // the tenants'
  LeaseContexts contexts;
  std::vector<AdoptedLibrary> libraries;       // of the first tenants
  std::vector<attack_function*> attacks;       // the libraries'
  CUcontext primary = nullptr, own = nullptr;  // the host's
};

// One sequence, on one thread.
class Player {
 public:
  Player(GuardedThreadsTest& field, unsigned seed)
      : field_(field),
        random_(seed),
        // On a real driver each takes a fifth of a second, for all threads.
        may_make_contexts_(driver_is_software() || seed % 100 == 0) {}

  void play() {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      change_own_stack();
      change_guests();
      const Stack before = own_stack_;
      use_guard(0);
      EXPECT_EQ(current(), before.empty() ? nullptr : before.back());
      // To look at all of it makes the next guard look, too.
      if (draw(4) == 0) {
        EXPECT_EQ(stack(), before);
      }
    }
    EXPECT_EQ(stack(), own_stack_);
    guests_.clear();
    EXPECT_EQ(stack(), own_stack_);
    while (current() != nullptr) pop();
  }

  // One thing that a library may do to the thread.
  void disturb() {
    constexpr const char* names[] = {
        "leave_context_pushed",    "pop_too_much", "set_device",
        "take_neighbours_context", "reset",        "create_context_and_leave",
        "leave_global_capture"};
    AttackTarget target{};
    target.context = field_.leases[draw(field_.leases.size())].context;
    // A real driver forbids the other threads much while a capture is open, guests for one.
    std::size_t known = std::size(names) - (driver_is_software() ? 0 : 1);
    if (!may_make_contexts_) --known;
    field_.attacks[draw(field_.attacks.size())](names[draw(known)], &target);
  }

 private:
  // A tenant of this thread's alone.
  struct Guest {
    Tenant tenant;
    LeaseInfo lease;
  };

  unsigned draw(std::size_t below) {
    return std::uniform_int_distribution<unsigned>(0, static_cast<unsigned>(below) - 1)(random_);
  }

  void use_guard(int depth) {
    const std::size_t chosen = draw(field_.tenants.size() + guests_.size());
    const bool is_guest = chosen >= field_.tenants.size();
    const std::size_t guest = is_guest ? chosen - field_.tenants.size() : 0;
    const LeaseInfo lease = is_guest ? guests_[guest].lease : field_.leases[chosen];
    const TenantId outer = std::exchange(inside_, lease.tenant);
    const CUcontext before = current();
    {
      const Guard guard(is_guest ? guests_[guest].tenant : field_.tenants[chosen]);
      const CUcontext entered = current();
      EXPECT_TRUE(is_guest ? entered == lease.context : field_.contexts.is_right(entered, lease))
          << lease.tenant_name;
      if (draw(4) == 0) disturb();
      if (draw(8) == 0 && guests_.size() > 1) std::swap(guests_.front(), guests_.back());
      for (unsigned nested = depth < deepest ? draw(3) : 0; nested > 0; --nested) {
        use_guard(depth + 1);
      }
      if (draw(4) == 0) disturb();
    }
    inside_ = outer;
    // A guard in the lease that is entered already leaves it to the one around it to repair.
    if (depth > 0 && lease.tenant != outer) {
      EXPECT_EQ(current(), before) << lease.tenant_name;
    }
  }

  // The host's thread has up to two contexts of the host's own.
  void change_own_stack() {
    if (draw(3) != 0) return;
    if (own_stack_.size() == 2 || (!own_stack_.empty() && draw(2) == 0)) {
      pop();
      own_stack_.pop_back();
    } else {
      own_stack_.push_back(draw(2) == 0 ? field_.primary : field_.own);
      driver_call("cuCtxPushCurrent_v2", own_stack_.back());
    }
  }
  static void pop() {
    CUcontext popped = nullptr;
    EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &popped), CUDA_SUCCESS);
  }

  // One comes, moves or goes.
  void change_guests() {
    switch (draw(12)) {
      case 0:
        if (guests_.size() < 3) guests_.push_back(open_guest());
        return;
      case 1:
        if (!guests_.empty()) guests_.front() = open_guest();  // where another one was
        return;
      case 2:
        if (!guests_.empty()) close_guest();
        return;
      case 3:
        if (!guests_.empty()) {
          Tenant elsewhere = std::move(guests_.back().tenant);
          elsewhere.run(0, [&] { EXPECT_EQ(current(), guests_.back().lease.context); });
          guests_.back().tenant = std::move(elsewhere);
        }
        return;
      default:
        return;
    }
  }
  Guest open_guest() {
    constexpr LeaseKind kinds[] = {LeaseKind::shared, LeaseKind::green, LeaseKind::private_own};
    const LeaseKind kind = kinds[draw(may_make_contexts_ ? 3 : 2)];
    std::unique_lock lock(field_.opening);
    Tenant tenant = field_.broker.open_tenant("guest", {LeaseChoice(kind)});
    lock.unlock();
    LeaseInfo lease = tenant.lease();
    return {std::move(tenant), std::move(lease)};
  }
  void close_guest() {
    Guest going = std::move(guests_.back());
    guests_.pop_back();
    going.tenant.close();
    EXPECT_THROW(const Guard closed(going.tenant), Error);
  }

  GuardedThreadsTest& field_;
  std::mt19937 random_;
  bool may_make_contexts_;
  Stack own_stack_;  // what the host pushed
  std::vector<Guest> guests_;
  TenantId inside_{};  // of the innermost guard
};

TEST_F(GuardedThreadsTest, AThousandRandomSequencesLeaveEveryThreadAsItWas) {
  ASSERT_TRUE(broker.gate().in_force) << broker.gate().reason;
  std::atomic<unsigned> next{0};
  std::vector<std::thread> running;
  for (int index = 0; index < threads; ++index) {
    running.emplace_back([&] {
      for (unsigned seed = next++; seed < sequences && !HasFailure(); seed = next++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Player(*this, seed).play();
      }
    });
  }
  for (auto& thread : running) thread.join();
  std::uint64_t strikes = 0;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    strikes += tenants[i].strikes();
    const LeaseInfo lease = tenants[i].lease();
    EXPECT_EQ(lease.state, LeaseState::ready);
    EXPECT_EQ(lease.generation, leases[i].generation) << "none was made anew";
  }
  EXPECT_GT(strikes, 100U) << "the sequences did misbehave";
}

// The positive control: what a guard repairs stays where there is none.
TEST_F(GuardedThreadsTest, DisturbancesStayWithoutGuards) {
  int disorder = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    driver_call("cuCtxPushCurrent_v2", own);
    Player(*this, seed).disturb();
    disorder += stack() == Stack{own} ? 0 : 1;
    CUcontext popped = nullptr;
    while (current() != nullptr) driver_call("cuCtxPopCurrent_v2", &popped);
  }
  EXPECT_GT(disorder, 20);
}

}  // namespace
}  // namespace ctxbroker
