// SPDX-License-Identifier: Apache-2.0
// Memory, threads and the rules of real time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "ctxbroker/guard.hpp"
#include "driver_calls.hpp"
#include "helpers.hpp"
#include "ladder.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

// Returns what the layer saw in five warm jobs of a real-time activation.
Seen realtime_jobs(Trial& trial) {
  if (!can_watch()) throw Skipped("this build has a sanitizer, which has a heap of its own");
  Rig rig(trial);
  Setup setup = usual_setup(rig, trial.seed);
  setup.sizes.realtime = true;
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  bench.run_several(3);
  take_seen();
  for (int i = 3; i < 8; ++i) bench.run(bench.job(i));
  return take_seen();
}

// The bytes of the device that are taken, by whomever.
std::uint64_t taken_memory(Rig& rig) {
  Tenant host = rig.broker().host();
  const Guard guard(host);
  std::size_t free = 0, total = 0;
  driver().memory_info(&free, &total);
  return total - free;
}

// The least by which `size` grew in any of the rounds; 0: a round added no more than `noise`.
std::uint64_t growth_in_all(int rounds, std::uint64_t noise, const std::function<void()>& round,
                            const std::function<std::uint64_t()>& size) {
  std::uint64_t least = UINT64_MAX;
  for (std::uint64_t before = size(); rounds > 0; --rounds) {
    round();
    const std::uint64_t after = size();
    if (after <= before + noise) return 0;
    least = std::min(least, after - before);
    before = after;
  }
  return least;
}

// Activates, and says why not; empty: it is active.
std::string activation_error(PluginInstance& instance, const ActivationSizes& sizes) {
  try {
    instance.activate(sizes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void realtime_heap(Trial& trial) {
  const Seen seen = realtime_jobs(trial);
  check_that(seen.process.allocations == 0, "process called malloc, free or their like " +
                                                std::to_string(seen.process.allocations) +
                                                " times in " + std::to_string(seen.jobs) + " jobs");
}

void realtime_locks(Trial& trial) {
  const Seen seen = realtime_jobs(trial);
  check_that(seen.process.locks == 0, "process took locks " + std::to_string(seen.process.locks) +
                                          " times in " + std::to_string(seen.jobs) + " jobs");
}

void realtime_waits(Trial& trial) {
  const Seen seen = realtime_jobs(trial);
  // A page that has to be read from a file counts too, so one wait says nothing.
  check_that(2 * seen.process.waits <= seen.jobs,
             "process gave up its processor to wait " + std::to_string(seen.process.waits) +
                 " times in " + std::to_string(seen.jobs) + " jobs");
}

void memory_given_back(Trial& trial) {
  Rig rig(trial);
  const TenantMetrics before = rig.metrics();
  live_once(rig, trial.seed);
  const std::string text = first_with(rig.strikes(), "forgot");
  check_that(text.empty(), text);
  const TenantMetrics after = rig.metrics();
  if (rig.plugin().cuda_use == CudaUse::runtime) return;  // the runtime library keeps its modules
  std::string held;
  for (const auto& [kind, things] : after.held) {
    const auto was = before.held.find(kind);
    if (was != before.held.end() && was->second.count >= things.count) continue;
    held += (held.empty() ? "" : ", ") + kind + " (" + std::to_string(things.count) + ")";
  }
  check_that(held.empty(),
             "after the last instance has ended, it still holds what it made through "
             "the driver: " +
                 held);
}

// Lives of an instance come in rounds. Free memory is that of the whole device, and other processes
// take and give back, too; a driver hands it out in pieces of 2 MiB; and a cache may fill in
// several lives. So one round says nothing. What grows in all rounds, and only while instances
// live, is a leak.
void memory_steady(Trial& trial) {
  constexpr int rounds = 10, lives = 8;
  constexpr std::uint64_t noise = std::uint64_t{4} << 20;
  Rig rig(trial);
  std::chrono::steady_clock::duration round_time{};
  const auto live = [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < lives; ++i) live_once(rig, trial.seed);
    round_time = std::chrono::steady_clock::now() - begin;
  };
  live();  // takes what is taken once: modules, pools
  const std::uint64_t things =
      growth_in_all(rounds, 0, live, [&] { return rig.metrics().held_things; });
  check_that(things == 0, "life after life it leaves something behind: at least " +
                              std::to_string(things) + " things more in each " +
                              std::to_string(lives) + " lives");
  const auto taken = [&] { return taken_memory(rig); };
  const std::uint64_t bytes = growth_in_all(rounds, noise, live, taken);
  if (bytes == 0) return;
  const auto rest = [&] { std::this_thread::sleep_for(round_time); };
  if (growth_in_all(rounds, noise, rest, taken) != 0) {
    throw Skipped("another process takes more and more memory of the device");
  }
  throw Failed("life after life it takes memory of the device for good: at least " +
               std::to_string(bytes >> 10) + " KiB in each " + std::to_string(lives) + " lives");
}

void memory_out_of_memory(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const std::vector<Bytes> should = steady_run(rig, setup, 2);
  take_seen();
  {
    PluginInstance instance = rig.active(setup.sizes);
    Bench bench(rig, instance, setup);
    bench.run_several(2);
  }
  const std::uint64_t count = take_seen().allocations;
  if (count == 0) throw Skipped("it allocates nothing through the host");
  for (std::uint64_t n = 1; n <= count && n <= 16; ++n) {
    const auto check_empty = [n](const std::string& text, const char* what) {
      check_that(text.empty(), "when allocation " + std::to_string(n) + " of activate fails, " +
                                   what + ": " + text);
    };
    PluginInstance instance = rig.create();
    Plan plan;
    plan.failing_allocation = n;
    set_plan(plan);
    const std::string error = activation_error(instance, setup.sizes);
    set_plan({});
    if (error.empty()) {
      Bench bench(rig, instance, setup);  // it can do without; then it has to work
      check_empty(difference(bench.run_several(2), should), "it goes on and gives other results");
      continue;
    }
    check_empty(activation_error(instance, setup.sizes), "it cannot be activated later");
    Bench bench(rig, instance, setup);
    check_empty(difference(bench.run_several(2), should),
                "it gives other results in the next activation");
  }
  const std::vector<std::string> strikes = rig.strikes();
  check_that(strikes.empty(), strikes.empty() ? "" : strikes.front());
}

// Driver calls of the plug-in, the broker and the runtime library fail one after the other.
void memory_driver_failures(Trial& trial) {
  Rig rig(trial);
  if (driver().fail_call == nullptr) {
    throw Skipped("only the software device can be told to fail");
  }
  constexpr int out_of_memory = 2;
  const Setup setup = usual_setup(rig, trial.seed);
  const std::vector<Bytes> should = steady_run(rig, setup, 1);
  for (std::uint64_t n = 1; n <= 200; n += 1 + n / 12) {
    driver().stop_counting();
    driver().fail_call("*", n, out_of_memory);
    bool failed = false;
    {
      try {
        PluginInstance instance = rig.active(setup.sizes);
        Bench bench(rig, instance, setup);
        bench.run_several(1);
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): an error is an honest answer
      }
      failed = driver().failed_call() != nullptr;
    }
    driver().stop_counting();
    if (!failed) break;
    PluginInstance instance = rig.create();
    const std::string error = activation_error(instance, setup.sizes);
    check_that(error.empty(), "after driver call " + std::to_string(n) +
                                  " of an earlier life has failed, activate fails: " + error);
    Bench bench(rig, instance, setup);
    const std::string text = difference(bench.run_several(1), should);
    check_that(text.empty(), "after driver call " + std::to_string(n) +
                                 " of an earlier life has failed, it gives other results: " + text);
  }
}

void threads_other(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  const std::vector<Bytes> should = steady_run(bench, 2);
  for (int i = 0; i < 2; ++i) {
    std::vector<Bytes> got;
    std::string error;
    std::thread([&] {
      try {
        got = bench.run_several(2);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
    }).join();
    check_that(error.empty(), "on another thread, process fails: " + error);
    const std::string text = difference(got, should);
    check_that(text.empty(), "on another thread, it gives other results: " + text);
  }
}

void threads_at_once(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  constexpr std::size_t count = 4;
  std::deque<PluginInstance> instances;
  std::deque<Bench> benches;
  for (std::size_t i = 0; i < count; ++i) {
    instances.push_back(rig.active(setup.sizes));
    benches.emplace_back(rig, instances.back(), setup);
  }
  const std::vector<Bytes> should = steady_run(benches.front(), 2);
  std::vector<std::string> wrong(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int round = 0; round < 10 && wrong[i].empty(); ++round) {
          wrong[i] = difference(benches[i].run_several(2), should);
        }
      } catch (const std::exception& error) {
        wrong[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) {
    check_that(text.empty(), "with 4 instances on 4 threads at once: " + text);
  }
}

void threads_parameters(Trial& trial) {
  Rig rig(trial);
  const auto& parameters = rig.plugin().parameters;
  std::vector<std::size_t> automatable;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].automatable) automatable.push_back(i);
  }
  if (automatable.empty()) throw Skipped("none of its parameters changes while it is active");
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  std::atomic<bool> ends{false};
  std::thread setter([&] {
    for (std::uint64_t step = 0; !ends; ++step) {
      for (const std::size_t i : automatable) {
        if (number_count(parameters[i].type) != 1) continue;
        const double at = number_at(trial.seed, i, step);
        static_cast<void>(instance.try_set_parameter(i, parameters[i].from_position(at)));
      }
    }
  });
  std::string error;
  try {
    for (int i = 0; i < 30; ++i) bench.run(bench.job(i, i == 0));
  } catch (const Error& caught) {
    error = caught.what();
  }
  ends = true;
  setter.join();
  check_that(error.empty(), "while another thread sets parameters: " + error);
}

void threads_ended(Trial& trial) {
  Rig rig(trial);
  for (int i = 0; i < 2; ++i) live_once(rig, trial.seed);
  const auto settled = [] {  // a thread that was joined may be listed for a moment
    std::size_t count = thread_count();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::size_t now = thread_count();
      if (now < count) count = now;
    }
    return count;
  };
  const std::size_t before = settled();
  for (int i = 0; i < 3; ++i) live_once(rig, trial.seed);
  const std::size_t after = settled();
  check_that(after <= before, "each life of an instance leaves a thread behind: 3 lives, " +
                                  std::to_string(after - before) + " threads more");
}

}  // namespace ctxbroker::validate
