// SPDX-License-Identifier: Apache-2.0
#include "control.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "frames.hpp"
#include "memory.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"

namespace ctxbroker::campaign {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// ---- The child --------------------------------------------------------------------------------

constexpr milliseconds observed(200);  // for how long the innocents play on after the fault
// For the guilty one's return: a GPU's driver needs about a second until it reports a trap.
constexpr milliseconds patience(2000);

void say(const std::string& line) {
  static_cast<void>(!write(STDOUT_FILENO, line.data(), line.size()));
}

struct Seat {
  PluginLibrary library;
  PluginInstance instance;
  std::optional<Graph> graph;
  std::int64_t position = 0;
};

struct Host {
  Broker broker;
  std::vector<std::unique_ptr<Seat>> seats;
};

bool frame(Seat& seat, int number) {
  const std::int64_t position = seat.position++;
  const auto input = input_of(number, position);
  auto output = empty_output();
  const JobOutcome outcome = seat.graph->process(input.data(), output.data(), job_of(position));
  return outcome == JobOutcome::done && output == expected_of(number, position);
}

void seat_all(Host& host, const std::vector<std::filesystem::path>& libraries) {
  InstanceOptions green;
  green.lease = LeaseChoice(LeaseKind::green);
  const ActivationSizes sizes{width, height};
  for (const auto& file : libraries) {
    PluginLibrary library = host.broker.load(file);
    PluginInstance instance = host.broker.create(library, "hostile", green);
    const auto number = static_cast<int>(host.seats.size());
    auto seat = std::make_unique<Seat>(Seat{std::move(library), std::move(instance), {}, 0});
    seat->instance.set_parameter("factor", factor_of(number));
    seat->instance.activate(sizes);
    seat->graph.emplace(host.broker, std::vector<PluginInstance*>{&seat->instance}, sizes);
    const LeaseKind granted = seat->instance.lease().granted.kind;
    if (granted != LeaseKind::green) {
      throw std::runtime_error(std::string("a plug-in got a lease of the kind ") +
                               to_string(granted) + " instead of green");
    }
    if (!frame(*seat, number)) throw std::runtime_error("a frame was wrong before the fault");
    host.seats.push_back(std::move(seat));
  }
}

bool is_right(Host& host, int number) {
  try {
    return frame(*host.seats[static_cast<std::size_t>(number)], number);
  } catch (const std::exception&) {
    return false;
  }
}

// How many innocents' last frames were not right.
int count_stopped(Host& host, int guilty) {
  int stopped = 0;
  for (int number = 0; number < plugin_count; ++number) {
    if (number != guilty && !is_right(host, number)) ++stopped;
  }
  return stopped;
}

}  // namespace

// Each round of the innocents is a dot, so that whoever reads knows that they play.
int be_control(const Fault& fault, const std::vector<std::filesystem::path>& libraries,
               int guilty) {
  Host host{Broker::open(), {}};
  try {
    seat_all(host, libraries);
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
  if (std::string(fault.name) == "out-of-memory") {
    const std::uint64_t limit = data_bytes(getpid()) + memory_headroom;
    const rlimit both{limit, limit};
    setrlimit(RLIMIT_DATA, &both);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  Seat& seat = *host.seats[static_cast<std::size_t>(guilty)];
  const auto set_fault = [&](const char* value) {
    seat.instance.set_parameter(
        fault.parameter,
        seat.instance.description().parameters[fault.doer == Doer::kernel ? 1U : 0U].parse(value));
  };
  set_fault(fault.value);
  say("ready\n");
  std::atomic<bool> returned{false};
  std::thread faulty([&] {
    try {
      frame(seat, guilty);
    } catch (const std::exception&) {
      say("(the guilty one got an error)");
    }
    returned = true;
  });
  int stopped = 0;
  const auto begin = Clock::now();
  auto end = begin + patience;
  bool heard = false;
  while (Clock::now() < end) {
    stopped = count_stopped(host, guilty);
    say(".");
    if (returned && !heard) {
      heard = true;
      end = Clock::now() + observed;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  if (returned) {  // it stops, too, if it cannot go on without its fault
    set_fault("none");
    if (!is_right(host, guilty)) say("(the guilty one stops)");
  }
  say("\nstopped " + std::to_string(stopped) + (returned ? " returned" : " lost") + "\nend\n");
  _exit(0);  // a thread may hang, and destructors wait for it
}

int print_device_memory() {
  Broker broker = Broker::open();
  Tenant tenant = broker.open_tenant("meter");
  const std::size_t free = tenant.run(0, [] {
    std::size_t bytes = 0, total = 0;
    driver_call("cuMemGetInfo_v2", &bytes, &total);
    return bytes;
  });
  std::printf("free %zu %s\n", free,
              broker.driver().kind == DriverChoice::software ? "own" : "shared");
  return 0;
}

// ---- The parent -------------------------------------------------------------------------------

namespace {

ChildStart this_program_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), this_program());
  return {arguments, signals_stay_signals, ChildErrors::dropped};
}

constexpr milliseconds long_silence(20'000), short_silence(3'000);

}  // namespace

ControlResult run_control(const Fault& fault, const std::vector<std::filesystem::path>& libraries,
                          int guilty) {
  std::vector<std::string> arguments{"--in-process", fault.name, "--guilty", std::to_string(guilty),
                                     "--libraries"};
  for (const auto& file : libraries) arguments.push_back(file.string());
  ChildProcess child(this_program_with(arguments));
  ControlResult result;
  result.ran = child.read_until("ready\n", long_silence);
  if (!result.ran) {
    child.end();
    result.text = "it did not get as far as the fault: " + child.output();
    return result;
  }
  if (fault.doer == Doer::kills) kill(child.id(), SIGKILL);
  if (fault.doer == Doer::stops) kill(child.id(), SIGSTOP);
  const bool said = child.read_until("\nend\n", short_silence);
  const ChildResult ended = child.end();
  const std::string& text = ended.output;
  result.damage = Damage::process_ends;
  if (said) {
    const bool lost = text.find(" lost\n") != std::string::npos;
    const std::string word = "\nstopped ";
    const int stopped = std::atoi(text.c_str() + text.find(word) + word.size());
    const bool guilty_stops = text.find("(the guilty one stops)") != std::string::npos;
    if (stopped == plugin_count - 1 && guilty_stops) {
      result.damage = Damage::all_stop;
      result.text = "all " + std::to_string(plugin_count) + " stop, each in a green lease";
    } else if (stopped != 0) {
      result.damage = Damage::some_stop;
      result.text = std::to_string(stopped) + " of " + std::to_string(plugin_count - 1) +
                    " innocents stop, and the guilty one " +
                    (lost           ? "does not return"
                     : guilty_stops ? "stops"
                                    : "goes on");
    } else if (lost) {
      result.damage = Damage::thread_is_lost;
      result.text = "its thread is lost; the innocents go on";
    } else {
      result.damage = Damage::none;
      result.text = "no damage";
      if (fault.damage == Damage::none) result.text += ": there is no worker to write to";
    }
  } else if (ended.timed_out) {
    result.text = "all stand still";
  } else if (ended.signal != 0) {
    result.text = "the process ends: signal " + std::to_string(ended.signal);
  } else {
    result.text = "the process ends: exit status " + std::to_string(ended.exit_code);
  }
  return result;
}

bool is_expected(const Fault& fault, const ControlResult& result) {
  if (!result.ran) return false;
  switch (fault.damage) {
    case Damage::all_stop:
      return result.damage == Damage::all_stop || result.damage == Damage::process_ends;
    case Damage::thread_is_lost:
      return result.damage != Damage::none;
    case Damage::process_ends:
    case Damage::some_stop:
    case Damage::none:
      return result.damage == fault.damage;
  }
  return false;
}

DeviceMemory device_memory() {
  ChildProcess child(this_program_with({"--device-memory"}));
  const bool said = child.read_until("\n", long_silence);
  child.end();
  unsigned long long bytes = 0;
  if (!said || std::sscanf(child.output().c_str(), "free %llu", &bytes) != 1) {
    throw std::runtime_error("a child cannot tell the free device memory: " + child.output());
  }
  return {bytes, child.output().find(" shared") != std::string::npos};
}

}  // namespace ctxbroker::campaign
