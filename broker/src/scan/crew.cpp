// SPDX-License-Identifier: Apache-2.0
#include "scan/crew.hpp"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "process/child_program.hpp"
#include "scan/protocol.hpp"

namespace ctxbroker::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_line = std::size_t{64} << 20;  // bytes
// The program keeps the deadline itself. This is for one that a library has stopped.
constexpr auto grace = 2s;

struct Member {
  std::unique_ptr<ChildProgram> program;
  bool is_ready = false;
  std::optional<std::size_t> file;  // that it is at
  Clock::time_point deadline;
};

class Crew {
 public:
  Crew(const CrewOrders& orders, const std::vector<std::filesystem::path>& files)
      : orders_(orders),
        files_(files),
        members_(std::clamp<std::size_t>(files.size(), 1, orders.at_once)) {}

  CrewResult work() {
    while (end_.trouble.empty() && !end_.stopped) {
      for (Member& member : members_) give_work(member);
      const bool busy = std::any_of(members_.begin(), members_.end(),
                                    [](const Member& one) { return one.file.has_value(); });
      if (!busy) break;
      wait();
      for (Member& member : members_) hear(member);
    }
    return end_;
  }

 private:
  void give_work(Member& member) {
    if (member.file || next_ == files_.size() || end_.stopped || !end_.trouble.empty()) return;
    if (!orders_.begins(next_)) {
      end_.stopped = true;
      return;
    }
    const std::string line = request_line({files_[next_], orders_.deadline});
    // One that ended while it had nothing to do is replaced.
    if (member.program == nullptr || !member.program->send(line)) {
      member.is_ready = false;
      try {
        member.program =
            std::make_unique<ChildProgram>(orders_.program, std::vector<std::string>{serve_word});
      } catch (const std::system_error& error) {
        end_.trouble = std::string("cannot be started: ") + error.what();
        return;
      }
      if (!member.program->send(line)) {
        end_.trouble = "takes no orders";
        return;
      }
    }
    member.file = next_++;
    member.deadline = Clock::now() + orders_.deadline + grace;
  }

  void wait() const {
    std::vector<pollfd> sockets;
    Clock::time_point first = Clock::time_point::max();
    for (const Member& member : members_) {
      if (!member.file) continue;
      sockets.push_back({member.program->socket(), POLLIN, 0});
      first = std::min(first, member.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
    ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<long>(left, 0, 60000)));
  }

  void hear(Member& member) {
    if (!member.file) return;
    const bool goes_on = member.program->receive(longest_line);
    while (const auto line = member.program->take_line()) {
      if (!member.is_ready) {
        if (!is_ready_line(*line)) return refuse(member, *line);
        member.is_ready = true;
        continue;
      }
      const auto reply = member.file ? parse_reply(*line, files_[*member.file]) : std::nullopt;
      if (!reply) return condemn(member, Outcome::crashed, "it broke the process that loaded it");
      finish(member, *reply);
    }
    if (!member.file) return;
    if (!goes_on) {
      const std::string last = member.program->rest();
      const std::string how = member.program->end();
      if (!member.is_ready) return refuse(member, last.empty() ? how : last);
      return condemn(member, Outcome::crashed, "it ended the scanning program: " + how);
    }
    if (Clock::now() < member.deadline) return;
    if (!member.is_ready) return refuse(member, "no answer in time");
    condemn(member, Outcome::hung, "it stopped the scanning program");
  }

  void finish(Member& member, const Examination& examination) {
    const std::size_t file = *member.file;
    member.file.reset();
    orders_.done(file, examination);
  }

  void condemn(Member& member, Outcome outcome, const std::string& why) {
    member.program.reset();
    finish(member, {outcome, why});
  }

  void refuse(Member& member, const std::string& why) {
    member.file.reset();
    end_.trouble = "does not work here: " + why.substr(0, 400);
  }

  const CrewOrders& orders_;
  const std::vector<std::filesystem::path>& files_;
  std::vector<Member> members_;
  std::size_t next_ = 0;
  CrewResult end_;
};

}  // namespace

CrewResult examine_all(const CrewOrders& orders, const std::vector<std::filesystem::path>& files) {
  return Crew(orders, files).work();
}

}  // namespace ctxbroker::detail
