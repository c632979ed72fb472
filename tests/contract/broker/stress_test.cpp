// SPDX-License-Identifier: Apache-2.0
// Random sequences of entering, leaving, stealing, leaking and resetting, on many threads in many
// leases. Every sequence is repeatable from its seed.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <initializer_list>
#include <random>
#include <thread>
#include <utility>

#include "broker_fixture.hpp"
#include "lease_contexts.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

constexpr int threads = 8;
constexpr int sequences = 1000;  // of all threads together
constexpr int steps = 12;        // of one sequence
constexpr int deepest = 5;

// The objects that the threads share.
struct Field {
  const RawDriver driver;
  std::vector<Tenant> tenants;
  std::vector<LeaseInfo> leases;  // the tenants'
  LeaseContexts contexts;

  Field(Broker& broker, std::initializer_list<LeaseKind> kinds) : driver(broker.driver().path) {
    for (const LeaseKind kind : kinds) {
      tenants.push_back(broker.open_tenant(to_string(kind), {LeaseChoice(kind)}));
      leases.push_back(tenants.back().lease());
      contexts.add(leases.back());
    }
  }
};

struct Player {
  Field& field;
  const RawDriver& driver = field.driver;
  std::mt19937 random;
  std::string wrong;        // the first thing that was
  unsigned inside = 0;      // which tenant the innermost guard is of
  bool same_lease = false;  // as the guard around it

  Player(Field& its_field, unsigned seed) : field(its_field), random(seed) {}

  unsigned draw(unsigned below) {
    return std::uniform_int_distribution<unsigned>(0, below - 1)(random);
  }

  // Makes one of the mistakes that careless code makes with a thread's context stack, or resets the
  // device.
  void misbehave() {
    switch (draw(6)) {
      case 0:
        return driver.push(other_context());  // leaks
      case 1:
        return driver.pop_if_any();  // steals
      case 2:
        return driver.pop_all();
      case 3:
        return driver.set_current(other_context());
      case 4:
        driver.call("cuDevicePrimaryCtxReset", 0);
        return;
      default:
        driver.set_current(nullptr);
        return;
    }
  }
  unsigned draw_tenant() { return draw(static_cast<unsigned>(field.tenants.size())); }
  CUcontext other_context() { return field.leases[draw_tenant()].context; }

  void play(int depth) {
    for (int step = 0; step < steps && wrong.empty(); ++step) {
      // Nested guards look at the top only, and in the lease that is entered already not even at
      // that when they end; the outermost answers for the whole stack.
      const auto before = depth == 0 ? driver.stack() : std::vector<CUcontext>{driver.current()};
      {
        const unsigned chosen = draw_tenant();
        const unsigned outer = std::exchange(inside, chosen);
        const Guard guard(field.tenants[chosen]);
        if (!field.contexts.is_right(driver.current(), field.leases[chosen])) {
          wrong = "a guard led into something else than its lease";
        }
        if (depth == 0 && driver.stack().size() != 1) {
          wrong = "inside a guard there is more than its own context";
        }
        if (depth < deepest && draw(3) == 0) play(depth + 1);
        inside = outer;
        same_lease = depth > 0 && chosen == outer;
        if (draw(2) == 0) misbehave();
      }
      const auto after = depth == 0 ? driver.stack() : std::vector<CUcontext>{driver.current()};
      if (after != before && !same_lease)
        wrong = "a guard left the thread's stack other than it was";
      if (draw(4) == 0) return;
    }
  }
};

TEST_F(BrokerTest, AThousandRandomSequencesLeaveEveryThreadAsItWas) {
  Field field(broker, {LeaseKind::shared, LeaseKind::shared, LeaseKind::private_own,
                       LeaseKind::private_own, LeaseKind::green, LeaseKind::green});
  std::atomic<int> next{0};
  std::array<std::string, threads> wrong;
  std::vector<std::thread> running;
  for (int index = 0; index < threads; ++index) {
    running.emplace_back([&, index] {
      for (int seed = next++; seed < sequences; seed = next++) {
        Player player(field, static_cast<unsigned>(seed));
        const bool with_own = seed % 2 == 0;
        if (with_own) field.driver.push(field.leases[0].context);
        player.play(0);
        field.driver.pop_all();
        if (player.wrong.empty()) continue;
        wrong[static_cast<std::size_t>(index)] =
            "seed " + std::to_string(seed) + ": " + player.wrong;
        return;
      }
    });
  }
  for (auto& thread : running) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
  std::uint64_t strikes = 0;
  for (std::size_t i = 0; i < field.tenants.size(); ++i) {
    strikes += field.tenants[i].strikes();
    const LeaseInfo lease = field.tenants[i].lease();
    EXPECT_EQ(lease.state, LeaseState::ready);
    EXPECT_EQ(lease.generation, field.leases[i].generation) << "none was made anew";
  }
  EXPECT_GT(strikes, 100u) << "the sequences did misbehave";
}

// The positive control: the same misdeeds without a guard do leave another stack behind.
TEST_F(BrokerTest, RandomSequencesWithoutGuardsLeaveDisorder) {
  Field field(broker, {LeaseKind::private_own, LeaseKind::private_own});
  const RawDriver& driver = field.driver;
  int disorder = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    driver.push(field.leases[0].context);
    const auto before = driver.stack();
    Player(field, seed).misbehave();
    disorder += driver.stack() == before ? 0 : 1;
    driver.pop_all();
  }
  EXPECT_GT(disorder, 20);
}

// The control for what is looked at inside: a thread in another lease's context is seen to be.
TEST_F(BrokerTest, ALeasesContextIsRightInNoOtherLease) {
  Field field(broker, {LeaseKind::shared, LeaseKind::private_own, LeaseKind::private_own,
                       LeaseKind::green, LeaseKind::green});
  for (std::size_t own = 0; own < field.tenants.size(); ++own) {
    const auto is_right_here_alone = [&] {
      const Guard guard(field.tenants[own]);
      const CUcontext current = field.driver.current();
      EXPECT_TRUE(field.contexts.is_right(current, field.leases[own]));
      for (std::size_t other = 0; other < field.leases.size(); ++other) {
        EXPECT_EQ(field.contexts.is_right(current, field.leases[other]), own == other);
      }
    };
    const Guard guard(field.tenants[own]);
    is_right_here_alone();
    std::thread(is_right_here_alone).join();  // in a green lease that is a sibling
    EXPECT_FALSE(field.contexts.is_right(nullptr, field.leases[own]));
  }
}

}  // namespace
}  // namespace ctxbroker
