// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls about graphs and jobs, right ones and wrong ones, beside a model that
// knows what has to come of each. Every sequence is repeatable from its seed.
//
// CTXB_SEQUENCE_SECONDS=600 goes on for ten minutes, and CTXB_SEQUENCE_SEED=17 begins with seed 17.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "job_sequence_player.hpp"

namespace ctxbroker {
namespace {

constexpr int steps = 80;  // of one sequence

unsigned from_environment(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

// Two hosts take turns, each with a broker of its own. Returns what went wrong first, or "".
std::string play(Player& one, Player& two) {
  for (int step = 0; step < steps; ++step) {
    one.step();
    two.step();
  }
  one.end();
  two.end();
  return one.wrong().empty() ? two.wrong() : one.wrong();
}

class JobSequenceTest : public BrokerTest {
 protected:
  static PluginInstance bystander(Broker& broker) {
    PluginInstance made =
        broker.create(broker.load(test_plugin("behaviours_unloadable")), "affine");
    made.activate({16, 16, 0, false});
    return made;
  }
};

TEST_F(JobSequenceTest, RandomCallsGiveTheResultsOfTheModel) {
  const std::chrono::seconds limit(from_environment("CTXB_SEQUENCE_SECONDS", 0));
  const unsigned first = from_environment("CTXB_SEQUENCE_SEED", 1);
  const unsigned count = broker.driver().kind == DriverChoice::software ? 50 : 10;
  Broker other = Broker::open(options());
  Tally tally;
  {
    PluginInstance here = bystander(broker), there = bystander(other);
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned seed = first;
         seed < first + count || std::chrono::steady_clock::now() - begin < limit; ++seed) {
      Player one(broker, there, seed, tally), two(other, here, ~seed, tally);
      const std::string wrong = play(one, two);
      if (!wrong.empty()) FAIL() << "seed " << seed << ": " << wrong;
      ++tally.sequences;
    }
  }
  std::cout << tally.sequences << " pairs of sequences: " << tally.finished << " jobs finished, "
            << tally.renewed << " of them after a loss; " << tally.failed
            << " failed as they had to, " << tally.lost << " were lost, " << tally.refused
            << " calls were refused\n";
  // The control: all of that happens.
  EXPECT_GT(tally.finished, 10 * tally.sequences);
  EXPECT_GT(tally.refused, 10 * tally.sequences);
  EXPECT_GT(tally.failed, 0U);
  EXPECT_GT(tally.renewed, 0U);
  other.close();  // nothing is alive
  broker.close();
}

}  // namespace
}  // namespace ctxbroker
