// Random sequences of entering, leaving, stealing, leaking and resetting, on many threads in many
// leases. Every sequence is repeatable from its seed.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "broker_fixture.hpp"
#include "raw_driver.hpp"

namespace ctxbroker {
namespace {

constexpr int threads = 8;
constexpr int sequences = 1000;  // of all threads together
constexpr int steps = 12;        // of one sequence
constexpr int deepest = 5;

struct Player {
  const RawDriver& driver;
  std::vector<Tenant>& tenants;
  std::mt19937 random;
  std::string wrong;        // the first thing that was
  unsigned inside = 0;      // which tenant the innermost guard is of
  bool same_lease = false;  // as the guard around it

  Player(const RawDriver& its_driver, std::vector<Tenant>& its_tenants, unsigned seed)
      : driver(its_driver), tenants(its_tenants), random(seed) {}

  unsigned draw(unsigned below) {
    return std::uniform_int_distribution<unsigned>(0, below - 1)(random);
  }

  // What careless code does to a thread's stack.
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
        driver.on_device("cuDevicePrimaryCtxReset", 0);
        return;
      default:
        driver.set_current(nullptr);
        return;
    }
  }
  CUcontext other_context() {
    return tenants[draw(static_cast<unsigned>(tenants.size()))].lease().context;
  }

  void play(int depth) {
    for (int step = 0; step < steps && wrong.empty(); ++step) {
      // Nested guards look at the top only, and in the lease that is entered already not even at
      // that when they end; the outermost answers for the whole stack.
      const auto before = depth == 0 ? driver.stack() : std::vector<CUcontext>{driver.current()};
      {
        const unsigned chosen = draw(static_cast<unsigned>(tenants.size()));
        const unsigned outer = std::exchange(inside, chosen);
        Tenant& tenant = tenants[chosen];
        const Guard guard(tenant);
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
  const RawDriver driver(broker.driver().path);
  std::vector<Tenant> tenants;
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::shared, LeaseKind::private_own,
                               LeaseKind::private_own, LeaseKind::green, LeaseKind::green}) {
    tenants.push_back(broker.open_tenant(to_string(kind), {kind}));
    static_cast<void>(tenants.back().lease());
  }
  std::atomic<int> next{0};
  std::array<std::string, threads> wrong;
  std::vector<std::thread> running;
  for (int index = 0; index < threads; ++index) {
    running.emplace_back([&, index] {
      for (int seed = next++; seed < sequences; seed = next++) {
        Player player(driver, tenants, static_cast<unsigned>(seed));
        const bool with_own = seed % 2 == 0;
        if (with_own) driver.push(tenants[0].lease().context);
        player.play(0);
        driver.pop_all();
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
  for (Tenant& tenant : tenants) {
    strikes += tenant.strikes();
    EXPECT_EQ(tenant.lease().state, LeaseState::ready);
  }
  EXPECT_GT(strikes, 100u) << "the sequences did misbehave";
}

// The positive control: the same misdeeds without a guard do leave another stack behind.
TEST_F(BrokerTest, WithoutGuardsTheSameSequencesLeaveDisorder) {
  const RawDriver driver(broker.driver().path);
  std::vector<Tenant> tenants;
  tenants.push_back(broker.open_tenant("one", {LeaseKind::private_own}));
  tenants.push_back(broker.open_tenant("two", {LeaseKind::private_own}));
  int disorder = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    driver.push(tenants[0].lease().context);
    const auto before = driver.stack();
    Player(driver, tenants, seed).misbehave();
    disorder += driver.stack() == before ? 0 : 1;
    driver.pop_all();
  }
  EXPECT_GT(disorder, 20);
}

}  // namespace
}  // namespace ctxbroker
