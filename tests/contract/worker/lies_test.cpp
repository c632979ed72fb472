// SPDX-License-Identifier: Apache-2.0
// A worker that breaks the rules of the channel: the host ends it, says what it did, and takes no
// harm. Its next process works.
#include <csignal>
#include <thread>

#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

struct Lie {
  Act act;
  const char* text;  // what the end's text says
};

std::ostream& operator<<(std::ostream& stream, const Lie& lie) {
  return stream << "act " << lie.act;
}

class WorkerLieTest : public WorkerTest, public ::testing::WithParamInterface<Lie> {};

TEST_P(WorkerLieTest, LieEndsTheWorkerAndIsNamed) {
  const Lie& lie = GetParam();
  WorkerOptions with = options();
  with.call_timeout = milliseconds(3000);
  Worker worker(with);
  Worker innocent(options("innocent"));
  EXPECT_EQ(say(innocent, Act::echo, "before"), "before");
  EXPECT_EQ(say(worker, Act::echo, "before"), "before");
  const int id = worker.process_id();
  // The worker decides whether the call itself succeeds.
  try {
    say(worker, lie.act);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
  }
  const WorkerExit end = wait_for_end();
  EXPECT_STREQ(to_string(end.cause), "lie");
  EXPECT_THAT(end.text, HasSubstr(lie.text));
  EXPECT_EQ(end.process_id, id);
  EXPECT_TRUE(end.running.empty()) << end.text;  // no plug-in of the SDK's is there
  EXPECT_EQ(say(innocent, Act::echo, "after"), "after");
  EXPECT_EQ(say(worker, Act::echo, "after"), "after");
  EXPECT_NE(worker.process_id(), id);
  EXPECT_EQ(innocent.exits(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerLieTest,
    ::testing::Values(Lie{Act::bad_state, "a state that there is not"},
                      Lie{Act::bad_sequence, "answered a call that nobody has made"},
                      Lie{Act::bad_length, "longer than the room for it"},
                      Lie{Act::long_error, "longer than the room for it"},
                      Lie{Act::answers_nobody,
                          "answered a call twice, or one that nobody has made"},
                      Lie{Act::answers_twice, "answered a call twice, or one that nobody has made"},
                      Lie{Act::all_ones, ""}, Lie{Act::shuts_socket, "closed its socket"},
                      Lie{Act::closes_all, "closed its socket"},
                      Lie{Act::bad_packet, "a packet that is none"},
                      Lie{Act::unknown_packet, "a kind that there is not"},
                      Lie{Act::long_notification, "a kind that there is not"},
                      Lie{Act::packet_without_descriptor, "a kind that there is not"},
                      Lie{Act::two_descriptors, "a packet that is none"}));

// Whatever stands in the channel, the host gets an answer or an error, in its time.
TEST_F(WorkerTest, RandomBytesInTheChannelHarmNobody) {
  WorkerOptions with = options();
  with.call_timeout = milliseconds(500);
  with.threads = 2;
  Worker worker(with);
  for (int round = 0; round < 3; ++round) {
    worker.start();
    std::thread liar([&] {
      try {
        say(worker, Act::random_bytes);
      } catch (const Error&) {
      }
    });
    const auto end = std::chrono::steady_clock::now() + milliseconds(700);
    while (std::chrono::steady_clock::now() < end) {
      const auto begin = std::chrono::steady_clock::now();
      try {
        say(worker, Act::echo, "text");
      } catch (const Error& error) {
        EXPECT_THAT(to_string(error.kind()),
                    ::testing::AnyOf(HasSubstr("context-lost"), HasSubstr("plugin-")));
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
    }
    liar.join();
    worker.kill("the next round");
  }
  worker.pardon();
  EXPECT_EQ(say(worker, Act::echo, "text"), "text");
}

TEST_F(WorkerTest, AFloodOfNotificationsIsNoHarm) {
  std::atomic<int> count{0};
  WorkerOptions with = options();
  with.on_notification = [&](std::uint32_t, const void*, std::size_t) { ++count; };
  Worker worker(with);
  say(worker, Act::floods);
  EXPECT_GT(count, 0);
  kill(worker.process_id(), SIGKILL);
  EXPECT_STREQ(to_string(wait_for_end().cause), "signal");
}

}  // namespace
}  // namespace ctxbroker
