// SPDX-License-Identifier: Apache-2.0
// Many threads in one lease, and a tenant that is closed while threads enter it.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/graph.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

class ManyThreadsTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  ManyThreadsTest() : driver(broker.driver().path) {}
  RawDriver driver;
};

TEST_P(ManyThreadsTest, FortyThreadsAreInsideOneLeaseAtOnce) {
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(GetParam())});
  constexpr int threads = 40;
  std::barrier together(threads);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        {
          const Guard guard(tenant);
          const CUcontext inside = driver.current();
          together.arrive_and_wait();
          if (inside == nullptr || driver.current() != inside || driver.stack().size() != 1) {
            ++wrong;
          }
        }
        if (driver.current() != nullptr) ++wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(tenant.strikes(), 0u);
  tenant.close();
}

// More threads than a green lease makes contexts.
TEST_P(ManyThreadsTest, HundredThreadsTakeTurnsInOneLease) {
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(GetParam())});
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < 100; ++i) {
      running.emplace_back([&] {
        for (int use = 0; use < 20; ++use) {
          const Guard guard(tenant);
          if (driver.current() == nullptr) ++wrong;
          std::this_thread::yield();
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  tenant.close();
}

// The control for rules_handles_test.cpp: without the gate, the threads of a plug-in library get
// other handles of a green lease than the one that they retained.
TEST_P(ManyThreadsTest, ThreadsOfAPluginLibraryHaveTheDriversHandlesWithoutTheGate) {
  if (GetParam() != LeaseKind::green) GTEST_SKIP() << "the threads have one context there";
  PluginInstance first = active("meets", GetParam()), second = active("meets", GetParam());
  std::atomic<int> wrong{0};
  const auto use = [&](PluginInstance& instance) {
    try {
      run({&instance});
    } catch (const Error& error) {
      if (std::string(error.what()).find("not the one that was retained") != std::string::npos) {
        ++wrong;
      }
    }
  };
  std::jthread other([&] { use(first); });
  use(second);
  other.join();
  EXPECT_EQ(wrong, 1);
}

// Eight threads enter while another one closes the tenant and opens the next one.
TEST_P(ManyThreadsTest, ATenantIsClosedAndOpenedAgainWhileThreadsEnter) {
  const int rounds = GetParam() == LeaseKind::private_own ? 100 : 1000;
  const Tenant keeper = broker.open_tenant("keeper", {LeaseChoice(LeaseKind::shared)});
  std::deque<Tenant>
      tenants;  // those that were closed stay, because threads may still look at them
  tenants.push_back(broker.open_tenant("filter", {LeaseChoice(GetParam())}));
  std::atomic<Tenant*> open{&tenants.back()};
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, entered{0}, refused{0};
  std::mutex mutex;
  std::string text;
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < 8; ++i) {
      running.emplace_back([&] {
        while (!over) {
          Tenant& tenant = *open.load();
          try {
            const Guard guard(tenant);
            if (driver.current() == nullptr) ++wrong;
            ++entered;
          } catch (const Error& error) {
            ++refused;
            if (error.kind() != ErrorKind::wrong_state) {
              const std::lock_guard lock(mutex);
              text = error.what();
              ++wrong;
            }
          }
          if (driver.current() != nullptr) ++wrong;
          std::this_thread::yield();
        }
      });
    }
    // Each tenant is entered before its end, and a thread meets it closed before the next one
    // opens.
    const auto wait_for_more = [](const std::atomic<int>& count) {
      for (const int before = count; count == before;) std::this_thread::yield();
    };
    for (int round = 0; round < rounds; ++round) {
      wait_for_more(entered);
      for (;;) {
        try {
          tenants.back().close();
          break;
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::wrong_state) ++wrong;
          std::this_thread::yield();
        }
      }
      wait_for_more(refused);
      tenants.push_back(broker.open_tenant("filter", {LeaseChoice(GetParam())}));
      open = &tenants.back();
    }
    over = true;
  }
  EXPECT_EQ(wrong, 0) << text;
}

INSTANTIATE_TEST_SUITE_P(, ManyThreadsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& param) { return std::string(to_string(param.param)); });

// A context that was lost ends early, and nobody is inside it.
TEST_P(ManyThreadsTest, ATenantWhoseLeaseWasLostCanBeClosed) {
  for (const bool polls : {true, false}) {
    Tenant tenant = broker.open_tenant("filter", {LeaseChoice(GetParam())});
    tenant.run(0, [] {});
    broker.force_loss(tenant.id(), 0, "the test wants it");
    if (polls) broker.poll();
    tenant.run(0, [] {});
    {
      const Guard guard(tenant);
      EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { tenant.close(); }),
                  ::testing::HasSubstr("while a thread is inside"));
    }
    tenant.run(0, [] {});
    tenant.close();
  }
}

class ManyGraphsTest : public BrokerTest, public ::testing::WithParamInterface<int> {};

// Each graph has a thread of its own.
TEST_P(ManyGraphsTest, GraphsOfOneLibraryRunOnAsManyThreads) {
  const int graphs = GetParam();
  std::vector<PluginInstance> instances;
  std::deque<Graph> all;
  for (int i = 0; i < graphs; ++i) {
    instances.push_back(create("affine"));
    instances.back().set_parameter("factor", i + 1);
    instances.back().activate(test_sizes);
  }
  for (PluginInstance& instance : instances) {
    all.emplace_back(broker, std::vector{&instance}, test_sizes);
  }
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::string text;
  std::barrier together(graphs);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < graphs; ++i) {
      threads.emplace_back([&, i] {
        std::vector<float> input(64U * 64 * 4, 1.0F), output(input.size());
        together.arrive_and_wait();
        try {
          for (int job = 0; job < 10; ++job) {
            all[static_cast<std::size_t>(i)].process(input.data(), output.data(),
                                                     {.width = 64, .height = 64});
            for (const float sample : output) {
              if (sample != static_cast<float>(i + 1)) ++wrong;
            }
          }
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          text = error.what();
          ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0) << text;
}

INSTANTIATE_TEST_SUITE_P(, ManyGraphsTest, ::testing::Values(24, 64));

}  // namespace
}  // namespace ctxbroker
