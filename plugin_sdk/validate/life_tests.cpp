// SPDX-License-Identifier: Apache-2.0
// An instance's life, what it does to contexts, and the loss of its context.
#include <cstdlib>
#include <deque>
#include <random>

#include "ctxbroker/plugin.h"
#include "driver_calls.hpp"
#include "helpers.hpp"
#include "ladder.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

// Without the strikes that another rule names.
void no_strike_with(Rig& rig, std::string_view word) {
  const std::string text = first_with(rig.strikes(), word);
  check_that(text.empty(), text);
}

std::string calls_of_life(Rig& rig, std::uint64_t seed, bool (*wanted)(std::string_view)) {
  live_once(rig, seed);
  return calls_between({}, rig.metrics(), wanted);
}

void check_gate(Rig& rig) {
  const GateInfo gate = rig.broker().gate();
  if (!gate.in_force) throw Skipped("the gate is not in force: " + gate.reason);
}

}  // namespace

void life_create(Trial& trial) {
  Rig rig(trial);
  PluginInstance first = rig.create();
  { PluginInstance second = rig.create(); }
}

void life_activate(Trial& trial) {
  Rig rig(trial);
  PluginInstance instance = rig.active(usual_sizes(rig.plugin()));
  instance.deactivate();
}

void life_process(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  // With lent buffers, so that a write beyond them is no fault, and process.guard_bands names it.
  Plan plan;
  plan.lends = true;
  set_plan(plan);
  for (int i = 0; i < 4; ++i) bench.run(bench.job(i, i == 0));
}

void life_reactivate(Trial& trial) {
  Rig rig(trial);
  const Setup usual = usual_setup(rig, trial.seed);
  const std::vector<Bytes> should = steady_run(rig, usual, 2);
  PluginInstance instance = rig.create();
  for (const std::uint32_t width : {13u, 300u, usual.sizes.max_width}) {
    Setup setup = usual;
    setup.sizes.max_width = width;
    instance.activate(setup.sizes);
    {
      Bench bench(rig, instance, setup);
      const std::vector<Bytes> got = bench.run_several(2);
      if (width == usual.sizes.max_width) {
        const std::string text = difference(got, should);
        check_that(text.empty(), "after other activations, it gives other results: " + text);
      }
    }
    instance.deactivate();
  }
}

void life_instances(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  std::deque<PluginInstance> instances;
  std::deque<Bench> benches;
  std::vector<Bytes> alone;
  {
    PluginInstance one = rig.active(setup.sizes);
    Bench bench(rig, one, setup);
    alone = steady_run(bench, 2);
  }
  for (int i = 0; i < 3; ++i) {
    instances.push_back(rig.active(setup.sizes));
    benches.emplace_back(rig, instances.back(), setup);
  }
  // Turn by turn, and then in the order in which they do not lie.
  std::vector<std::vector<Bytes>> got(3);
  for (int job = 0; job < 2; ++job) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (Bytes& one : benches[i].run(benches[i].job(job, job == 0))) got[i].push_back(one);
    }
  }
  for (const auto& results : got) {
    const std::string text = difference(results, alone);
    check_that(text.empty(), "beside other instances, it gives other results: " + text);
  }
  benches.clear();
  instances.pop_front();
  Bench bench(rig, instances.front(), setup);
  const std::string text = difference(bench.run_several(2), alone);
  check_that(text.empty(), "after the end of another instance, it gives other results: " + text);
}

void life_strikes(Trial& trial) {
  Rig rig(trial);
  live_once(rig, trial.seed);
  const std::vector<std::string> strikes = rig.strikes();
  if (!strikes.empty()) throw Failed(strikes.front());
}

// A host's calls in an order that the seed decides, all of them allowed.
void life_calls(Trial& trial) {
  Rig rig(trial);
  std::mt19937_64 random(trial.seed);
  std::deque<PluginInstance> instances;
  std::string history;
  const auto note = [&](const char* step) {
    history += std::string(history.empty() ? "" : ", ") + step;
  };
  const Setup setup = usual_setup(rig, trial.seed);
  try {
    for (int step = 0; step < 60; ++step) {
      if (instances.empty() || (instances.size() < 3 && random() % 6 == 0)) {
        note("create");
        instances.push_back(rig.create());
      }
      PluginInstance& one = instances[random() % instances.size()];
      switch (random() % 8) {
        case 0:
          note("destroy");
          std::swap(one, instances.back());
          instances.pop_back();
          break;
        case 1:
          note("deactivate");
          one.deactivate();
          break;
        case 2:
          note("lose the context");
          rig.broker().force_loss(rig.library().tenant(), 0, "a test");
          break;
        case 3:
          note("poll");
          rig.broker().poll();
          break;
        case 4:
          if (one.active()) break;
          note("save and load");
          one.load_state(one.save_state());
          break;
        default: {
          if (one.active()) one.deactivate();  // with another size, perhaps
          Setup sized = setup;
          sized.sizes.max_width = 1 + static_cast<std::uint32_t>(random() % 200);
          note("activate");
          one.activate(sized.sizes);
          Bench bench(rig, one, sized);
          note("process");
          bench.run_several(1 + static_cast<int>(random() % 3));
        }
      }
    }
    instances.clear();
  } catch (const Error& error) {
    throw Failed(std::string(error.what()) + "; after the calls: " + history);
  }
}

void context_balance(Trial& trial) {
  Rig rig(trial);
  live_once(rig, trial.seed);
  no_strike_with(rig, "context");
  no_strike_with(rig, "capture");
}

void context_resets(Trial& trial) {
  Rig rig(trial);
  check_gate(rig);
  const std::string calls = calls_of_life(rig, trial.seed, is_reset);
  check_that(calls.empty(),
             "it resets the device, which would end the CUDA work of all others: " + calls);
}

void context_own_contexts(Trial& trial) {
  Rig rig(trial);
  check_gate(rig);
  // The runtime library retains and releases what the gate shows it as the primary context.
  if (rig.plugin().cuda_use == CudaUse::runtime) {
    throw Skipped("the runtime library makes such calls itself");
  }
  const std::string calls = calls_of_life(rig, trial.seed, is_context_call);
  check_that(calls.empty(), "it makes, retains or ends contexts of its own: " + calls);
}

void context_settings(Trial& trial) {
  Rig rig(trial);
  check_gate(rig);
  const std::string calls = calls_of_life(rig, trial.seed, is_setting);
  check_that(calls.empty(), "it changes settings that all tenants share: " + calls);
}

void context_device(Trial& trial) {
  ::setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 0);
  Rig rig(trial);
  if (rig.broker().devices().size() < 2) throw Skipped("this machine has one device");
  unsigned int flags = 0;
  int before = 0, after = 0;
  driver().primary_state(0, &flags, &before);
  {
    const Setup setup = usual_setup(rig, trial.seed);
    PluginInstance instance = rig.create(1);
    instance.activate(setup.sizes);
    Bench bench(rig, instance, setup);
    bench.run_several(2);
    for (const LeaseMetrics& lease : rig.metrics().leases) {
      check_that(lease.device == 1, "an instance on device 1 used device " +
                                        std::to_string(lease.device) +
                                        " too, where it now has a context");
    }
  }
  driver().primary_state(0, &flags, &after);
  check_that(
      before != 0 || after == 0,
      "an instance on device 1 made a primary context on device 0, which takes memory there");
}

void loss_reactivation(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const std::vector<Bytes> should = steady_run(rig, setup, 2);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  bench.run_several(2);
  for (int loss = 0; loss < 3; ++loss) {
    rig.broker().force_loss(rig.library().tenant(), 0, "a test");
    if (loss == 1) rig.broker().poll();  // the plug-in is told at once, or with the next job
    std::vector<Bytes> got;
    try {
      got = bench.run_several(2);
    } catch (const Error& error) {
      throw Failed(std::string("after a loss of its context it does not go on: ") + error.what());
    }
    const std::string text = difference(got, should);
    check_that(text.empty(), "after a loss of its context, it gives other results: " + text);
  }
}

void loss_no_calls(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench(rig, instance, setup).run_several(1);
  take_seen();
  rig.broker().force_loss(rig.library().tenant(), 0, "a test");
  const TenantMetrics before = rig.metrics();
  rig.broker().poll();
  instance.deactivate();
  const Seen seen = take_seen();
  check_that(seen.losses == 1, "the validator could not tell it of a loss");
  const std::string text = first_of(seen, Mishap::called);
  check_that(text.empty(), "after a loss it called the host: " + text);
  const std::string calls =
      calls_between(before, rig.metrics(), [](std::string_view) { return true; });
  check_that(calls.empty(), "after a loss it called the driver: " + calls);
}

}  // namespace ctxbroker::validate
