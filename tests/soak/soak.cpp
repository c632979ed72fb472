// SPDX-License-Identifier: Apache-2.0
// Many plug-ins for minutes: each a library of its own, some of which misbehave, while the host
// forces losses, closes and reopens tenants, loads and unloads libraries. Nothing that one of them
// does may reach another.
//
//   soak --plugins 64 --seconds 480 --seed 1 --json soak.json
//
// Status 0: no output was wrong, no error unexpected, everything given back; 1: one was; 2: wrong
// arguments; 3: a thread did not go on.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cast.hpp"
#include "ctxbroker/broker.hpp"
#include "report.hpp"
#include "resources.hpp"
#include "seat.hpp"
#include "support/driver_by_name.hpp"
#include "support/process_state.hpp"
#include "watch.hpp"

namespace ctxbroker::soak {
namespace {

using Clock = Watch::Clock;
using Seconds = std::chrono::duration<double>;

// Standard output belongs to this program alone: the attacks print what each of them returned.
std::FILE* take_output() {
  std::FILE* own = fdopen(dup(STDOUT_FILENO), "w");
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (own == nullptr || nowhere < 0) throw std::runtime_error("standard output cannot be had");
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
  setvbuf(own, nullptr, _IOLBF, BUFSIZ);
  return own;
}

unsigned thread_count(const Options& options) {
  return options.threads != 0 ? options.threads
                              : std::max(6U, std::thread::hardware_concurrency() * 3 / 2);
}

struct Soak {
  Soak(const Options& its_options, std::FILE* its_output)
      : options(its_options), output(its_output), copies(options) {
    course.threads = thread_count(options);
    course.modes = copies.modes();
  }

  const Options options;
  std::FILE* const output;
  const Copies copies;
  std::optional<Broker> broker;
  std::optional<Tenant> host;
  CUcontext primary = nullptr;  // without a broker: everybody's
  std::mutex main;
  Tally tally;
  std::vector<std::unique_ptr<Seat>> seats;
  Course course;
};

Resources look(Soak& soak) {
  if (!soak.host) return resources();
  return soak.host->run(soak.options.device, [] { return resources(); });
}

// Every library resets the device when it comes, and releases the primary when it goes.
void attack_when_loaded() {
  setenv(ATTACK_TARGET, "0 0 0 0 0 0", 1);        // NOLINT(concurrency-mt-unsafe): no other thread
  setenv(ATTACK_IN_CONSTRUCTOR, "reset", 1);      // NOLINT(concurrency-mt-unsafe)
  setenv(ATTACK_IN_DESTRUCTOR, "release_v2", 1);  // NOLINT(concurrency-mt-unsafe)
}

void start(Soak& soak) {
  if (!soak.options.behaved) attack_when_loaded();
  if (!soak.options.without_broker) {
    BrokerOptions wanted;
    wanted.host_name = "soak";
    wanted.records = [&tally = soak.tally](const Record& record) {
      if (record.severity >= Severity::warning) tally.record(record.topic, record.text);
    };
    soak.broker.emplace(Broker::open(std::move(wanted)));
    const GateInfo gate = soak.broker->gate();
    if (!gate.in_force) throw std::runtime_error("the gate is not in force: " + gate.reason);
    soak.host.emplace(soak.broker->host());
  } else if (driver_call("cuInit", 0U) != CUDA_SUCCESS ||
             driver_call("cuDevicePrimaryCtxRetain", &soak.primary, soak.options.device) !=
                 CUDA_SUCCESS ||
             driver_call("cuCtxSetCurrent", soak.primary) != CUDA_SUCCESS) {
    throw std::runtime_error("there is no device");
  }
  for (SeatOptions& seat : seating(soak.options, soak.copies)) {
    soak.seats.push_back(std::make_unique<Seat>(
        std::move(seat), soak.broker ? &*soak.broker : nullptr, soak.main, soak.tally));
  }
}

// What is made once in a process, or as often as there are plug-ins at a time, is no drift: all
// have had a life together before the first look.
void warm_up(Soak& soak, Watch& watch, std::size_t thread) {
  Random random(soak.options.seed);
  for (const auto& seat : soak.seats) {
    watch.stands(thread, "warms up", seat->number());
    seat->open();
    for (int i = 0; i < 2; ++i) seat->job(random);
  }
  if (soak.options.without_broker) {
    soak.course.before = look(soak);
    return;
  }
  for (const auto& seat : soak.seats) {
    watch.stands(thread, "ends the first life", seat->number());
    seat->close();
  }
  soak.course.before = look(soak);
  for (const auto& seat : soak.seats) seat->open();
}

// After so many errors that must not be, more of them say nothing new.
constexpr std::uint64_t enough = 1000;

void take_turns(Soak& soak, Watch& watch, std::size_t thread, Clock::time_point end) {
  Random random(soak.options.seed + 1 + static_cast<unsigned>(thread));
  if (soak.primary != nullptr) driver_call("cuCtxSetCurrent", soak.primary);
  if (soak.options.stuck && thread == 0) {
    watch.stands(thread, "never returns", 0);
    for (;;) pause();
  }
  const auto any_seat = [&]() -> Seat& { return *soak.seats[random() % soak.seats.size()]; };
  while (Clock::now() < end && soak.tally.unexpected < enough) {
    Seat& seat = any_seat();
    const unsigned dice = random() % 1000;
    if (seat.wants_reopening() || dice < 10) {
      watch.stands(thread, "reopens", seat.number());
      if (seat.close()) seat.open();
    } else if (dice < 40) {
      watch.stands(thread, "forces a loss", seat.number());
      seat.lose();
    } else if (dice < 400 && seat.misbehaves()) {
      watch.stands(thread, "attacks", seat.number());
      seat.attack(random, any_seat());
    } else {
      watch.stands(thread, "works", seat.number());
      seat.job(random);
    }
  }
  watch.leaves(thread);
}

// The driver has threads of its own, made when there is much to do at once.
constexpr std::size_t few_threads = 16;

void run(Soak& soak) {
  const unsigned count = soak.course.threads;
  const Seconds patience(soak.options.patience);
  Watch watch(
      count + 1, std::chrono::duration_cast<Clock::duration>(patience),
      std::chrono::duration_cast<Clock::duration>(Seconds(soak.options.seconds) + 2 * patience),
      fileno(soak.output));
  const std::size_t own = count;
  warm_up(soak, watch, own);
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(Seconds(soak.options.seconds));
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < count; ++thread) {
    threads.emplace_back([&soak, &watch, thread, end] { take_turns(soak, watch, thread, end); });
  }
  constexpr Seconds between_lines(10);
  while (Clock::now() < end && soak.tally.unexpected < enough) {
    watch.stands(own, "counts", -1);
    const Seconds left = end - Clock::now();
    std::this_thread::sleep_for(std::min(left, between_lines));
    const std::lock_guard main(soak.main);
    print_line(soak.output, soak.tally, Seconds(Clock::now() - begin).count(), look(soak));
  }
  watch.leaves(own);
  for (auto& thread : threads) thread.join();
  watch.stands(own, "closes all", -1);
  for (const auto& seat : soak.seats) {
    if (!seat->close()) soak.tally.wrong("close", "a thread is inside at the end");
  }
  settled_process_state(soak.course.before.threads + few_threads);
  soak.course.after = look(soak);
}

// What is kept for good by design (modules of libraries that stay, pages of the driver's own) is
// bounded by the number of plug-ins; what each of many lives leaves is not.
void check_given_back(Soak& soak) {
  const auto plugins = static_cast<std::uint64_t>(soak.options.plugins);
  // NVIDIA's driver keeps 4 MiB of every green context that is destroyed, until the primary ends; a
  // lease has one for each thread that is inside.
  const std::uint64_t destroyed =
      soak.tally.green_losses * (plugins + soak.course.threads) / plugins;
  const std::uint64_t slack = (64 + 4 * plugins + 5 * destroyed) << 20;
  constexpr std::size_t few_descriptors = 4;
  const auto check = [&](const char* what, std::uint64_t before, std::uint64_t now,
                         std::uint64_t allowed) {
    if (now <= before + allowed) return;
    soak.tally.wrong("not given back", std::string(what) + ": " + std::to_string(before) +
                                           " before, " + std::to_string(now) + " after");
  };
  check("device memory", soak.course.after.device_bytes_free, soak.course.before.device_bytes_free,
        slack);
  check("threads", soak.course.before.threads, soak.course.after.threads, few_threads);
  check("descriptors", soak.course.before.descriptors, soak.course.after.descriptors,
        few_descriptors);
}

int run_program(int argc, char** argv) {
  Options options;
  CLI::App app("Many plug-ins for minutes, with resets and losses");
  app.add_option("--plugins", options.plugins, "copies of the test libraries")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
  app.add_option("--patience", options.patience, "seconds that one step may take")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device)->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed);
  app.add_option("--threads", options.threads, "0: more than there are cores");
  app.add_option("--modes", options.modes, "link modes: dlsym,linked,... (all)")->delimiter(',');
  app.add_option("--json", options.json, "a file for the figures");
  app.add_option("--leases", options.leases, "kinds of lease: shared,private,green (all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"shared", "private", "green"}));
  app.add_flag("--without-broker", options.without_broker, "to see the damage");
  app.add_flag("--behaved", options.behaved, "nobody misbehaves");
  app.add_flag("--stuck", options.stuck, "one thread never returns, to see how that ends");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::FILE* const output = take_output();
  Soak soak(options, output);
  start(soak);
  std::fprintf(output, "%d plug-ins in %zu link modes, %u threads, seed %u, %s\n", options.plugins,
               soak.course.modes, soak.course.threads, options.seed,
               soak.broker ? soak.broker->gate().reason.c_str() : "without a broker");
  run(soak);
  soak.seats.clear();
  if (soak.broker) {
    check_given_back(soak);
    soak.host.reset();
    soak.broker->close();
  }
  print_report(output, options, soak.tally, soak.course);
  if (!options.json.empty()) write_report(options, soak.tally, soak.course);
  return soak.tally.unexpected == 0 && soak.tally.jobs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace ctxbroker::soak

int main(int argc, char** argv) {
  try {
    return ctxbroker::soak::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 1;
  }
}
