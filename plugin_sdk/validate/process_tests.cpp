// SPDX-License-Identifier: Apache-2.0
// Tests of what process reads, writes and calls.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "ctxbroker/plugin.h"
#include "helpers.hpp"
#include "ladder.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

// A float that is a NaN with a payload, and one that is a number; neither is likely in an output.
constexpr std::array<std::uint32_t, 2> poisons{0x7FA5C3E1u, 0xC9B1D76Fu};

Plan lending(std::uint32_t poison = poisons[0], bool has_gaps = false) {
  Plan plan;
  plan.lends = true;
  plan.poison = poison;
  plan.has_gaps = has_gaps;
  return plan;
}

// Runs two jobs with lent buffers.
Seen run_lent(Rig& rig, const Setup& setup, const Plan& plan) {
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  take_seen();
  set_plan(plan);
  bench.run_several(2);
  set_plan({});
  Seen seen = take_seen();
  if (const std::string text = first_of(seen, Mishap::internal); !text.empty()) {
    throw Skipped("the validator could not lend its memory: " + text);
  }
  return seen;
}

void check_writes(const Seen& seen) {
  if (seen.answered == 0) throw Skipped("the plug-in passes its input on, and writes nothing");
}

std::vector<Bytes> poisoned_run(Rig& rig, const Setup& setup, std::uint32_t poison) {
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  set_plan(lending(poison));
  std::vector<Bytes> got = bench.run_several(2);
  set_plan({});
  return got;
}

bool is_poison(const Bytes& bytes, std::size_t at, std::size_t count, std::uint32_t poison) {
  for (std::size_t i = at; i < at + count; ++i) {
    if (bytes[i] != static_cast<std::byte>(poison >> (8 * (i % 4)))) return false;
  }
  return true;
}

// Checks that the plug-in leaves the bands around lent memory alone, with the sizes of `setup`.
void check_bands(Rig& rig, const Setup& setup, const std::string& with) {
  const Seen seen = run_lent(rig, setup, lending());
  const std::string text = first_of(seen, Mishap::guard_band);
  check_that(text.empty(), "process " + text + with);
}

std::string size_text(const JobInfo& job) {
  return " with " + std::to_string(job.width) + " x " + std::to_string(job.height);
}

}  // namespace

void process_guard_bands(Trial& trial) {
  Rig rig(trial);
  check_bands(rig, usual_setup(rig, trial.seed), "");
}

void process_output_written(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  take_seen();
  const std::vector<Bytes> first = poisoned_run(rig, setup, poisons[0]);
  check_writes(take_seen());
  const std::vector<Bytes> again = poisoned_run(rig, setup, poisons[0]);
  const std::vector<Bytes> other = poisoned_run(rig, setup, poisons[1]);
  const std::size_t outputs = rig.plugin().outputs.size();
  PluginInstance instance = rig.active(setup.sizes);
  const Bench bench(rig, instance, setup);
  for (std::size_t k = 0; k < first.size(); ++k) {
    const std::size_t step = bench.sample_bytes(k % outputs);
    std::size_t count = 0, at = 0;
    for (std::size_t i = 0; i + step <= first[k].size(); i += step) {
      if (is_poison(first[k], i, step, poisons[0]) && is_poison(other[k], i, step, poisons[1])) {
        if (count++ == 0) at = i / step;
      }
    }
    check_that(count == 0, "process left " + std::to_string(count) + " of " +
                               std::to_string(first[k].size() / step) + " samples of output \"" +
                               rig.plugin().outputs[k % outputs].id +
                               "\" unwritten, the first one is number " + std::to_string(at));
  }
  if (!difference(again, first).empty()) return;  // process.deterministic says so
  const std::string text = difference(other, first);
  check_that(text.empty(), "the outputs depend on what was in their buffers before: " + text);
}

void process_inputs_unchanged(Trial& trial) {
  Rig rig(trial);
  if (rig.plugin().inputs.empty()) throw Skipped("it has no inputs");
  const Seen seen = run_lent(rig, usual_setup(rig, trial.seed), lending());
  const std::string text = first_of(seen, Mishap::input_changed);
  check_that(text.empty(), "process " + text);
}

void process_row_pitch(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  set_plan(lending());
  const std::vector<Bytes> expected = steady_run(bench, 2);
  set_plan(lending(poisons[0], true));
  take_seen();
  const std::vector<Bytes> got = bench.run_several(2);
  set_plan({});
  const Seen seen = take_seen();
  const std::string text = first_of(seen, Mishap::row_gap);
  check_that(text.empty(), "process ignores the row pitch: it " + text);
  const std::string differs = difference(got, expected);
  check_that(differs.empty(),
             "process ignores the row pitch: with gaps between the rows, " + differs);
}

void process_sizes(Trial& trial) {
  Rig rig(trial);
  const bool audio = rig.plugin().media == Media::audio;
  using Size = std::pair<std::uint32_t, std::uint32_t>;
  const std::vector<Size> sizes =
      audio ? std::vector<Size>{{1, 2}, {3, 2}, {255, 2}, {256, 2}, {1009, 2}}
            : std::vector<Size>{{1, 1}, {1, 7}, {7, 1}, {37, 23}, {129, 3}, {1, 66000}};
  for (const auto& [width, height] : sizes) {
    Setup setup = usual_setup(rig, trial.seed);
    setup.sizes.max_width = width;
    setup.sizes.max_height = height;
    try {
      check_bands(rig, setup, size_text(job_of(rig.plugin(), width, height, 0, 0)));
    } catch (const Error& error) {
      throw Failed("it cannot process" + size_text(job_of(rig.plugin(), width, height, 0, 0)) +
                   ": " + error.what());
    }
  }
  // Smaller jobs than the activation allows.
  Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  std::int64_t position = 0;
  for (std::uint32_t width = 1; width <= setup.sizes.max_width; width = 2 * width + 1) {
    const std::uint32_t height = audio ? setup.sizes.max_height : 1 + width / 3;
    const JobInfo job = job_of(rig.plugin(), width, std::min(height, setup.sizes.max_height),
                               position, setup.sizes.sample_rate);
    take_seen();
    set_plan(lending());
    bench.run(job);
    set_plan({});
    const std::string text = first_of(take_seen(), Mishap::guard_band);
    check_that(text.empty(), "process " + text + size_text(job) + " in an activation for more");
    position += audio ? width : 1;
  }
}

void process_deterministic(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  std::optional<std::vector<Bytes>> first;
  for (int i = 0; i < 3; ++i) {
    PluginInstance instance = rig.active(setup.sizes);
    Bench bench(rig, instance, setup);
    const std::vector<Bytes> got = bench.run_several(3);
    if (!first) first = got;
    const std::string text = difference(got, *first);
    check_that(text.empty(), "another instance gives other results for the same jobs: " + text);
  }
}

void process_discontinuity(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const std::vector<Bytes> should = steady_run(rig, setup, 3);
  PluginInstance used = rig.active(setup.sizes);
  Bench bench(rig, used, setup);
  bench.run_several(2, 700);
  const std::string text = difference(bench.run_several(3), should);
  check_that(text.empty(),
             "after a discontinuity, the results still depend on the jobs before it: " + text);
}

void process_no_wait(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  const auto jobs = [&](int count) {  // what the plug-in answers is another test's
    try {
      bench.run_several(count);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    }
  };
  jobs(2);
  const TenantMetrics before = rig.metrics();
  jobs(3);
  const TenantMetrics after = rig.metrics();
  if (after.waits.count != before.waits.count) {
    throw Failed("process waited for the device " +
                 std::to_string(after.waits.count - before.waits.count) +
                 " times in 3 jobs: " + calls_between(before, after, is_waiting_call));
  }
  take_seen();
  Plan plan = lending();
  plan.holds = true;
  set_plan(plan);
  jobs(1);
  set_plan({});
  const std::string text = first_of(take_seen(), Mishap::waited);
  check_that(text.empty(), text);
}

void process_no_allocation(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  const TenantMetrics before = rig.metrics();
  take_seen();
  for (int i = 0; i < 3; ++i) {
    try {
      bench.run(bench.job(i, i == 0));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): what counts is what it called
    }
  }
  const std::string calls = calls_between(before, rig.metrics(), is_allocating_call);
  check_that(calls.empty(), "process allocates or frees through the driver: " + calls);
  for (const Finding& finding : take_seen().findings) {
    const bool allocates =
        finding.text.rfind("allocate", 0) == 0 || finding.text.rfind("release", 0) == 0;
    check_that(finding.mishap != Mishap::refused || !allocates, finding.text);
  }
}

void process_host_calls(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.create();
  for (int activation = 0; activation < 2; ++activation) {
    instance.activate(setup.sizes);
    {
      Bench bench(rig, instance, setup);
      take_seen();
      for (int i = 0; i < 2; ++i) {
        try {
          bench.run(bench.job(i, i == 0));
        } catch (const Error& error) {
          const std::string text = first_of(take_seen(), Mishap::refused);
          if (!text.empty()) throw Failed("the host refused a call: " + text + ": " + error.what());
        }
      }
      const std::string text = first_of(take_seen(), Mishap::refused);
      check_that(text.empty(), "the host refused a call: " + text);
    }
    instance.deactivate();
  }
}

// Work outside of the job's stream races with the inputs, so that one pair of runs can differ. A
// plug-in that is random gives other results in each pair.
std::vector<Bytes> steady_run_of_any_pair(Bench& bench, int count) {
  for (int attempt = 0; attempt < 9; ++attempt) {
    std::vector<Bytes> first = bench.run_several(count);
    if (difference(bench.run_several(count), first).empty()) return first;
  }
  return steady_run(bench, count);
}

void process_job_stream(Trial& trial) {
  Rig rig(trial);
  if (rig.plugin().inputs.empty()) throw Skipped("it has no inputs that could arrive late");
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  Plan plan = lending();
  set_plan(plan);
  const std::vector<Bytes> expected = steady_run_of_any_pair(bench, 2);
  plan.holds = true;
  take_seen();
  set_plan(plan);
  const std::vector<Bytes> got = bench.run_several(2);
  set_plan({});
  if (!first_of(take_seen(), Mishap::waited).empty()) {
    throw Skipped("it waits for the stream in process, which process.no_wait reports");
  }
  const std::string text = difference(got, expected);
  check_that(text.empty(),
             "work is done outside of the job's stream, so it came before the inputs: " + text);
}

void process_formats(Trial& trial) {
  Rig rig(trial);
  std::uint32_t channels = 0, samples = 0;
  for (const auto* ports : {&rig.plugin().inputs, &rig.plugin().outputs}) {
    for (const PortDescription& port : *ports) channels |= port.channels, samples |= port.samples;
  }
  const bool audio = rig.plugin().media == Media::audio;
  for (std::uint32_t count = 1; count <= (audio ? 8u : 4u); ++count) {
    if ((channels & CTXB_CHANNELS(count)) == 0) continue;
    for (const SampleType type : {SampleType::float32, SampleType::float16}) {
      if ((samples & static_cast<std::uint32_t>(type)) == 0) continue;
      Setup setup = usual_setup(rig, trial.seed);
      setup.channels = count;
      setup.samples = type;
      if (audio) setup.sizes.max_height = std::max(setup.sizes.max_height, count);
      const std::string with = " with " + std::to_string(count) + " channels of " + to_string(type);
      try {
        check_bands(rig, setup, with);
      } catch (const Error& error) {
        throw Failed("it cannot process" + with + ", which its ports take: " + error.what());
      }
    }
  }
}

void process_optional_inputs(Trial& trial) {
  Rig rig(trial);
  const auto& inputs = rig.plugin().inputs;
  if (std::none_of(inputs.begin(), inputs.end(), [](const auto& port) { return port.optional; })) {
    throw Skipped("it has no optional inputs");
  }
  Setup setup = usual_setup(rig, trial.seed);
  setup.connects_optional = false;
  check_bands(rig, setup, " without its optional inputs");
}

void process_in_place(Trial& trial) {
  Rig rig(trial);
  Plan plan = lending();
  for (const PortDescription& port : rig.plugin().outputs) plan.in_place.push_back(port.in_place);
  if (std::all_of(plan.in_place.begin(), plan.in_place.end(), [](int i) { return i < 0; })) {
    throw Skipped("no output may have an input's buffer");
  }
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  set_plan(lending());
  const std::vector<Bytes> expected = steady_run(bench, 2);
  set_plan(plan);
  const std::vector<Bytes> got = bench.run_several(2);
  set_plan({});
  const std::string text = difference(got, expected);
  check_that(text.empty(), "in place, it gives other results: " + text);
}

void process_odd_values(Trial& trial) {
  Rig rig(trial);
  Setup setup = usual_setup(rig, trial.seed);
  setup.has_odd_values = true;
  check_bands(rig, setup, " for NaNs, infinities and huge numbers");
}

}  // namespace ctxbroker::validate
