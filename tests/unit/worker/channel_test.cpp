// SPDX-License-Identifier: Apache-2.0
// Both ends of a worker's channel in one process.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ctxbroker/plugin.h"
#include "worker/host_channel.hpp"
#include "worker/packet.hpp"
#include "worker/worker_channel.hpp"

namespace ctxbroker::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Shape shape{4, 256};

struct Memory {
  Memory()
      : file(sealed_memory("channel_test", channel_bytes(shape))),
        mapping(file.get(), channel_bytes(shape)) {}
  std::byte* get() const { return mapping.get(); }
  CellHead& cell(std::uint32_t index) const { return cell_of(get(), shape, index); }
  Descriptor file;
  Mapping mapping;
};

Clock::time_point in(Clock::duration time) {
  return Clock::now() + time;
}

// A worker that answers with the message, and with an error to type 13.
class Echo {
 public:
  Echo(const Memory& memory, Clock::duration spin, unsigned threads)
      : channel_(memory.get(), shape, spin) {
    for (unsigned i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        for (Request request; channel_.take(request);) {
          const std::string text(reinterpret_cast<const char*>(request.data), request.bytes);
          channel_.reply(request, request.type == 13 ? CTXB_ERROR : CTXB_OK, text.data(),
                         text.size());
        }
      });
    }
  }
  ~Echo() {
    channel_.stop();
    for (auto& thread : threads_) thread.join();
  }

 private:
  WorkerChannel channel_;
  std::vector<std::thread> threads_;
};

CallResult say(HostChannel& host, std::uint32_t type, const std::string& text, std::string& answer,
               Clock::duration time = seconds(20)) {
  answer.assign(shape.message_bytes, '\0');
  const CallResult result =
      host.call({type, 5, text.data(), text.size()}, answer.data(), answer.size(), in(time));
  answer.resize(result.bytes);
  return result;
}

class ChannelTest : public ::testing::TestWithParam<int> {};

TEST_P(ChannelTest, ChannelCarriesCallsOfManyThreads) {
  const std::chrono::microseconds spin(GetParam());
  const Memory memory;
  HostChannel host(memory.get(), shape, spin);
  const Echo worker(memory, spin, 3);
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {  // more than there are cells
    callers.emplace_back([&host, i] {
      for (int k = 0; k < 300; ++k) {
        const std::string text = std::to_string(i) + " " + std::to_string(k);
        std::string answer;
        const CallResult result = say(host, k % 7 == 0 ? 13 : 1, text, answer);
        ASSERT_EQ(result.end, ReplyOutcome::replied);
        if (k % 7 == 0) {
          EXPECT_EQ(result.text.data(), text);
        } else {
          EXPECT_EQ(answer, text);
        }
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_FALSE(host.busy());
  EXPECT_FALSE(host.touched_idle_cell());
}

INSTANTIATE_TEST_SUITE_P(Spin, ChannelTest, ::testing::Values(0, 50));

TEST(Channel, ACallWithoutAWorkerIsLateAndStaysASuspect) {
  const Memory memory;
  HostChannel host(memory.get(), shape, {});
  std::string answer;
  EXPECT_EQ(say(host, 3, "text", answer, milliseconds(20)).end, ReplyOutcome::late);
  ASSERT_EQ(host.in_flight().size(), 1U);
  EXPECT_EQ(host.in_flight()[0].type, 3U);
  EXPECT_EQ(host.in_flight()[0].subject, 5U);
  EXPECT_FALSE(host.touched_idle_cell());
}

TEST(Channel, ACallThatGetsNoAnswerForLongAsksForALook) {
  const Memory memory;
  int looks = 0;
  HostChannel host(memory.get(), shape, {}, [&] { ++looks; });
  std::string answer;
  EXPECT_EQ(say(host, 3, "text", answer, milliseconds(1)).end, ReplyOutcome::late);
  EXPECT_EQ(looks, 0);
  EXPECT_EQ(say(host, 3, "text", answer, milliseconds(500)).end, ReplyOutcome::late);
  EXPECT_GE(looks, 1);
  EXPECT_LE(looks, 100);
}

TEST(Channel, TheFifthCallOfFourFindsNoRoom) {
  const Memory memory;
  HostChannel host(memory.get(), shape, {});
  std::string answer;
  for (int i = 0; i < 4; ++i) say(host, 1, "", answer, milliseconds(1));
  EXPECT_EQ(say(host, 1, "", answer, milliseconds(20)).end, ReplyOutcome::crowded);
}

TEST(Channel, EndOfTheChannelFreesEveryCaller) {
  const Memory memory;
  HostChannel host(memory.get(), shape, {});
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&host] {
      std::string answer;
      EXPECT_EQ(say(host, 1, "", answer).end, ReplyOutcome::gone);
    });
  }
  std::this_thread::sleep_for(milliseconds(50));
  host.end();
  EXPECT_FALSE(host.busy());
  for (auto& caller : callers) caller.join();
  std::string answer;
  EXPECT_EQ(say(host, 1, "", answer).end, ReplyOutcome::gone);
}

TEST(Channel, AWriteToAnIdleCellIsSeen) {
  const Memory memory;
  HostChannel host(memory.get(), shape, {});
  for (const std::uint32_t state : {1U, 2U, 3U, 99U}) {
    memory.cell(2).state = state;
    EXPECT_TRUE(host.touched_idle_cell()) << state;
    memory.cell(2).state = 0;
  }
  EXPECT_FALSE(host.touched_idle_cell());
  memory.cell(0).state = 3;
  std::string answer;
  EXPECT_EQ(say(host, 1, "", answer).end, ReplyOutcome::lie);
}

TEST(Channel, TheWorkerRefusesARequestThatIsTooLong) {
  const Memory memory;
  WorkerChannel worker(memory.get(), shape, {});
  memory.cell(1).bytes = shape.message_bytes + 1;
  memory.cell(1).state = static_cast<std::uint32_t>(CellState::request);
  std::thread taker([&] {
    Request request;
    EXPECT_FALSE(worker.take(request));
  });
  while (memory.cell(1).state != static_cast<std::uint32_t>(CellState::reply)) {
    std::this_thread::yield();
  }
  worker.stop();
  taker.join();
  EXPECT_EQ(static_cast<std::int32_t>(memory.cell(1).status), CTXB_ERROR_INVALID_ARGUMENT);
}

TEST(Channel, TheWorkerTakesTheOldestRequestFirst) {
  const Memory memory;
  WorkerChannel worker(memory.get(), shape, {});
  const std::array<std::uint32_t, 3> sequences{2, 0xFFFFFFFE, 1};  // they wrap
  for (std::uint32_t i = 0; i < sequences.size(); ++i) {
    memory.cell(i).sequence = sequences[i];
    memory.cell(i).state = static_cast<std::uint32_t>(CellState::request);
  }
  for (const std::uint32_t expected : {1U, 2U, 0U}) {
    Request request;
    ASSERT_TRUE(worker.take(request));
    EXPECT_EQ(request.cell, expected);
    worker.reply(request, CTXB_OK, nullptr, 0);
  }
}

TEST(Packets, PacketsAreSentWithADescriptor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor one(ends[0]);
  Descriptor other(ends[1]);
  Packet packet;
  EXPECT_EQ(receive_packet(one.get(), packet), Received::nothing);
  PacketHead head;
  head.kind = PacketKind::descriptor;
  head.number = 77;
  head.bytes = 4;
  ASSERT_TRUE(send_packet(other.get(), head, "four", other.get()));
  ASSERT_EQ(receive_packet(one.get(), packet), Received::packet);
  EXPECT_EQ(packet.head.number, 77U);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(packet.body()), 4), "four");
  EXPECT_GE(packet.descriptor.get(), 0);
  packet.descriptor.close();
  ASSERT_EQ(send(other.get(), "short", 5, 0), 5);
  EXPECT_EQ(receive_packet(one.get(), packet), Received::bad);
  other.close();
  EXPECT_EQ(receive_packet(one.get(), packet), Received::ended);
}

TEST(Packets, AHelloIsChecked) {
  const Hello good{{8, 4096}, 1, 50};
  const auto read = [](const Hello& hello, std::size_t bytes = sizeof(Hello)) {
    Hello copy;
    return read_hello(reinterpret_cast<const std::byte*>(&hello), bytes, copy);
  };
  EXPECT_TRUE(read(good));
  EXPECT_FALSE(read(good, sizeof(Hello) - 1));
  for (const Hello& bad :
       {Hello{{0, 4096}, 1, 0}, Hello{{65, 4096}, 1, 0}, Hello{{8, 100}, 1, 0},
        Hello{{8, 1 << 20}, 1, 0}, Hello{{8, 4096}, 0, 0}, Hello{{8, 4096}, 65, 0}}) {
    EXPECT_FALSE(read(bad));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
