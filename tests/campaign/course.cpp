// SPDX-License-Identifier: Apache-2.0
#include "course.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <stdexcept>

#include "ctxbroker/error.hpp"
#include "frames.hpp"
#include "memory.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::campaign {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* plugin_id = "com.example.test.hostile";
constexpr std::size_t main_place = plugin_count;  // in the watch

double since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Looks again and again, at most so long.
template <typename Condition>
bool comes_true(const Condition& condition, milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// Returns what this process holds once that has not changed for half a second, or after a minute.
// By then, the stand-bys have started too.
Left settled() {
  Left last = left();
  int same = 0;
  comes_true(
      [&] {
        std::this_thread::sleep_for(milliseconds(10));
        const Left now = left();
        same = now == last ? same + 1 : 0;
        last = now;
        return same == 50;
      },
      milliseconds(60'000));
  return last;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// By what the guilty one is named; empty: it is not.
std::string named_by(const Player& guilty, const std::string& text, const WorkerExit& end) {
  if (text.rfind("worker \"" + Player::worker_name(guilty.number()) + "\": ", 0) != 0) return {};
  const std::string file = guilty.options().library.filename().string();
  // The tenant has the name of the library's file.
  if (has(text, "the work of plug-in hostile ") &&
      has(text, "for " + guilty.options().library.stem().string() + "]")) {
    return has(text, "kernel hostile") ? "kernel" : "plug-in";
  }
  if (end.running.size() == 1 && end.running[0].plugin == plugin_id &&
      fs::path(end.running[0].library).filename() == file && end.running[0].function == "process" &&
      has(text, "in process of plug-in " + std::string(plugin_id))) {
    return "function";
  }
  return "worker";
}

bool is_named_enough(const Fault& fault, const std::string& by) {
  switch (fault.named) {
    case Named::kernel:
      return by == "kernel";
    case Named::plugin:
      return by == "plug-in";
    case Named::function:
      return by == "function";
    case Named::worker:
      return !by.empty();
  }
  return false;
}

}  // namespace

std::vector<Step> plan(const std::vector<const Fault*>& faults, int each, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Step> steps;
  for (int i = 0; i < each; ++i) {
    for (const Fault* fault : faults) steps.push_back({0, fault, 0, milliseconds(0)});
  }
  std::shuffle(steps.begin(), steps.end(), random);
  std::vector<int> turn;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (turn.empty()) {
      for (int plugin = 0; plugin < plugin_count; ++plugin) turn.push_back(plugin);
      std::shuffle(turn.begin(), turn.end(), random);
    }
    steps[i].number = static_cast<int>(i) + 1;
    steps[i].guilty = turn.back();
    steps[i].delay = milliseconds(20 + random() % 40);
    turn.pop_back();
  }
  return steps;
}

Copies::Copies() {
  for (int plugin = 0; plugin < plugin_count; ++plugin) {
    files_.push_back(folder_ / ("hostile_" + std::to_string(plugin) + ".so"));
    fs::copy_file(test_library("hostile"), files_.back());
  }
}

Course::Course(const Copies& copies, const CourseOptions& options, Report& report,
               soak::Watch& watch)
    : options_(options),
      report_(report),
      watch_(watch),
      ends_(plugin_count),
      crashes_(plugin_count) {
  watch_.stands(main_place, "starts all", -1);
  PlayerOptions with;
  with.call_timeout = options.call_timeout;
  if (options.limits_memory) {  // what a worker has anyway depends on the driver
    with.library = copies.files()[0];
    Player probe(0, with, watch);
    if (!comes_true([&] { return probe.ended() != 0; }, milliseconds(60'000))) {
      throw std::runtime_error("the first plug-in gives no frame");
    }
    with.memory_limit = data_bytes(probe.graph().process_id()) + memory_headroom;
  }
  for (int number = 0; number < plugin_count; ++number) {
    with.library = copies.files()[static_cast<std::size_t>(number)];
    with.crash_limit = static_cast<unsigned>(number) % 4;
    with.stand_by = number >= plugin_count / 2;
    players_.push_back(std::make_unique<Player>(number, with, watch));
  }
  for (const auto& player : players_) {
    if (!comes_true([&] { return player->ended() != 0; }, milliseconds(60'000))) {
      throw std::runtime_error("a plug-in gives no frame");
    }
  }
  all_up_ = settled();
}

void Course::complain(const Step& step, const std::string& text) {
  report_.complain(step.number, std::string(step.fault->name) + " in plug-in " +
                                    std::to_string(step.guilty) + ": " + text);
}

void Course::run(const Step& step) {
  watch_.stands(main_place, step.fault->name, step.guilty);
  Player& guilty = *players_[static_cast<std::size_t>(step.guilty)];
  Row& row = report_.row(*step.fault);
  ++row.times;
  std::vector<std::uint64_t> begun;
  try {
    const auto held = guilty.hold();
    for (const auto& player : players_) begun.push_back(player->begun());
    const int process = guilty.graph().process_id();
    const auto seen = fail(step, guilty);
    if (seen) judge(step, guilty, *seen);
    bring_back(step, guilty, process);
  } catch (const std::exception& error) {
    complain(step, std::string("an error that must not be: ") + error.what());
  }
  wait_for_innocents(step, begun);
  look_at_innocents(step);
  look_for_drift(step);
}

std::optional<Course::Seen> Course::fail(const Step& step, Player& guilty) {
  const Fault& fault = *step.fault;
  WorkerGraph& graph = guilty.graph();
  const auto& parameters = graph.description(0).parameters;
  const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const auto& one) { return one.id == fault.parameter; });
  graph.set_parameter(0, fault.parameter, parameter->parse(fault.value));
  const int process = graph.process_id();
  const auto called = Clock::now();
  std::atomic<Clock::time_point> begin{called};
  std::jthread outside([&] {
    // 0 would be this program and its whole group.
    if (process <= 0 || (fault.doer != Doer::kills && fault.doer != Doer::stops)) return;
    std::this_thread::sleep_for(step.delay);
    begin = Clock::now();
    kill(process, fault.doer == Doer::kills ? SIGKILL : SIGSTOP);
  });
  std::optional<Seen> seen;
  try {
    const bool right = guilty.frame();
    complain(step, right ? "its frame came, and is right" : "its frame came, and is wrong");
  } catch (const Error& error) {
    seen.emplace(Seen{error.message(), {}, since(begin)});
    if (error.kind() != ErrorKind::context_lost) {
      complain(step, std::string("the error is ") + to_string(error.kind()) + ": " + seen->text);
    }
  }
  outside.join();
  const std::uint64_t wanted = ++ends_[static_cast<std::size_t>(step.guilty)];
  if (!comes_true([&] { return graph.exits() >= wanted; }, milliseconds(20'000))) {
    complain(step, "its worker has not ended: " + (seen ? seen->text : "nobody said anything"));
    graph.kill("the campaign goes on");
    seen.reset();
  }
  graph.set_parameter(0, fault.parameter, 0);
  if (seen) seen->end = graph.last_exit().value();
  return seen;
}

void Course::judge(const Step& step, const Player& guilty, const Seen& seen) {
  const Fault& fault = *step.fault;
  Row& row = report_.row(fault);
  row.known_ms.push_back(seen.known_ms);
  ++row.causes[to_string(seen.end.cause)];
  if (std::count(fault.causes.begin(), fault.causes.end(), seen.end.cause) == 0) {
    complain(step, std::string("it ended as ") + to_string(seen.end.cause) + ": " + seen.text);
  }
  if (seen.end.text + "; " + seen.end.next != seen.text) {
    complain(step, "the error says \"" + seen.text + "\", and the end \"" + seen.end.text + "; " +
                       seen.end.next + "\"");
  }
  const std::string by = named_by(guilty, seen.text, seen.end);
  ++(by.empty() ? row.unnamed : row.named[by]);
  // A signal from outside may come before the job has reached the plug-in.
  const bool is_early = (fault.doer == Doer::kills || fault.doer == Doer::stops) &&
                        seen.end.running.empty() && by == "worker";
  if (!is_named_enough(fault, by) && !is_early) complain(step, "it is not named: " + seen.text);
  if (options_.is_verbose) {
    std::printf("step %d, %s in plug-in %d, %.0f ms: %s\n", step.number, fault.name, step.guilty,
                seen.known_ms, seen.text.c_str());
  }
}

void Course::bring_back(const Step& step, Player& guilty, int dead) {
  WorkerGraph& graph = guilty.graph();
  unsigned& crashes = crashes_[static_cast<std::size_t>(step.guilty)];
  const unsigned limit = guilty.options().crash_limit;
  const bool quarantine = ++crashes == limit;
  const WorkerState wanted = quarantine ? WorkerState::quarantined : WorkerState::missing;
  if (graph.state() != wanted) {
    complain(step, std::string("it is ") + to_string(graph.state()) + " after " +
                       std::to_string(crashes) + " ends, and its limit is " +
                       std::to_string(limit));
  }
  if (quarantine) {
    crashes = 0;
    try {
      guilty.frame();
      complain(step, "it played on in quarantine");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::wrong_state || !has(error.what(), "quarantined")) {
        complain(step, std::string("quarantine says: ") + error.what());
      }
    }
    graph.pardon();
  }
  const auto begin = Clock::now();
  try {
    if (!guilty.frame()) complain(step, "its first frame afterwards is wrong");
    Row& row = report_.row(*step.fault);
    (guilty.options().stand_by ? row.stand_by_back_ms : row.back_ms).push_back(since(begin));
    ++(quarantine ? report_.quarantined : report_.back_at_once);
    if (graph.process_id() == dead) complain(step, "its worker is still the same process");
  } catch (const std::exception& error) {
    complain(step, std::string("it does not come back: ") + error.what());
    graph.pardon();
    crashes = 0;
  }
}

void Course::wait_for_innocents(const Step& step, const std::vector<std::uint64_t>& begun) {
  for (std::size_t i = 0; i < players_.size(); ++i) {
    // A frame that has begun after the fault has to end. The guilty one plays on too.
    if (comes_true([&] { return players_[i]->ended() > begun[i]; }, milliseconds(30'000))) continue;
    complain(step, "plug-in " + std::to_string(i) + " stands still");
  }
}

void Course::look_at_innocents(const Step& step) {
  Score& sum = report_.row(*step.fault).innocents;
  for (std::size_t i = 0; i < players_.size(); ++i) {
    const Score score = players_[i]->take_score();
    sum.right += score.right;
    sum.wrong += score.wrong;
    sum.missing += score.missing;
    sum.longest_ms = std::max(sum.longest_ms, score.longest_ms);
    const std::string complaint = players_[i]->take_complaint();
    if (!complaint.empty()) {
      complain(step, "innocent plug-in " + std::to_string(i) + ": " + complaint);
    }
    if (players_[i]->graph().exits() != ends_[i]) {
      complain(step, "the worker of plug-in " + std::to_string(i) + " has ended " +
                         std::to_string(players_[i]->graph().exits()) + " times, not " +
                         std::to_string(ends_[i]));
      ends_[i] = players_[i]->graph().exits();
    }
  }
}

void Course::look_for_drift(const Step& step) {
  Left now{};
  if (comes_true([&] { return (now = left()) == all_up_; }, milliseconds(20'000))) return;
  std::ostringstream text;
  text << "there were " << all_up_ << ", and now there are " << now;
  complain(step, text.str());
  all_up_ = now;
}

}  // namespace ctxbroker::campaign
