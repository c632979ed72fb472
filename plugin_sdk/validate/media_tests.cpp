// SPDX-License-Identifier: Apache-2.0
// What only audio or only pictures have; states and parameters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ctxbroker/plugin.h"
#include "helpers.hpp"
#include "ladder.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

constexpr std::uint32_t song_frames = 1500;

// A jump of one parameter, and then a ramp if it has ramps. Offsets are frames of the song. None
// for a parameter that does not change while the plug-in is active.
std::vector<ParameterChange> song_changes(const ParameterDescription& one, std::size_t index,
                                          std::uint64_t seed) {
  constexpr std::int64_t jump = 401, ramp = 700;
  if (!one.automatable || number_count(one.type) != 1) return {};
  const double value = one.from_position(number_at(seed, index, jump));
  std::vector<ParameterChange> changes{{nullptr, index, jump, value, 0, 0}};
  if (one.type == ParameterType::floating) {
    const double end = one.from_position(number_at(seed, index, ramp));
    changes.push_back({nullptr, index, ramp, end, 500, value});
  }
  return changes;
}

// The changes that a block is given: its jumps, and every ramp that lies on it.
JobEvents events_of(const std::vector<ParameterChange>& song, PluginInstance& instance,
                    std::uint32_t begin, std::uint32_t frames) {
  JobEvents events;
  for (ParameterChange change : song) {
    change.instance = &instance;
    change.offset -= begin;
    const bool has_begun = change.offset < std::int64_t{frames};
    const bool has_ended = change.offset + change.ramp_frames < (change.ramp_frames != 0 ? 1 : 0);
    if (has_begun && !has_ended) events.changes.push_back(change);
  }
  return events;
}

// The song, cut into blocks of at most `block`, put together again: all channels of all outputs
// that are audio.
Bytes whole_song(Rig& rig, const Setup& setup, std::uint32_t block,
                 const std::vector<ParameterChange>& changes) {
  constexpr std::uint32_t frames = song_frames;
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  const auto& ports = rig.plugin().outputs;
  std::vector<std::vector<Bytes>> blocks;  // by output
  blocks.resize(ports.size());
  for (std::uint32_t at = 0; at < frames; at += block) {
    JobInfo job = job_of(rig.plugin(), std::min(block, frames - at), setup.sizes.max_height, at,
                         setup.sizes.sample_rate);
    job.discontinuity = at == 0;
    std::vector<Bytes> got = bench.run(job, events_of(changes, instance, at, job.width));
    for (std::size_t i = 0; i < got.size(); ++i) blocks[i].push_back(std::move(got[i]));
  }
  Bytes song;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].result_bytes != 0) continue;
    const std::size_t channels = blocks[i].front().size() / 4 / std::min(block, frames);
    for (std::size_t c = 0; c < channels; ++c) {
      for (const Bytes& one : blocks[i]) {
        const std::size_t row = one.size() / channels;
        song.insert(song.end(), one.begin() + static_cast<std::ptrdiff_t>(c * row),
                    one.begin() + static_cast<std::ptrdiff_t>((c + 1) * row));
      }
    }
  }
  return song;
}

// Sets every parameter that is a number, by a position from 0 to 1.
void set_all(PluginInstance& instance, const std::function<double(std::size_t, std::size_t)>& at) {
  const auto& parameters = instance.description().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterDescription& one = parameters[i];
    double n[4] = {};
    const std::size_t count = number_count(one.type);
    for (std::size_t k = 0; k < count; ++k) n[k] = one.from_position(at(i, k));
    if (count == 1) instance.set_parameter(one.id, n[0]);
    if (count == 2) instance.set_parameter(one.id, {n[0], n[1]});
    if (count == 4) instance.set_parameter(one.id, {n[0], n[1], n[2], n[3]});
  }
}

// Sets parameters, activates and runs two lent jobs.
void run_with(Rig& rig, const Setup& setup, const std::string& with,
              const std::function<double(std::size_t, std::size_t)>& at) {
  PluginInstance instance = rig.create();
  set_all(instance, at);
  try {
    instance.activate(setup.sizes);
    Bench bench(rig, instance, setup);
    take_seen();
    Plan plan;
    plan.lends = true;
    set_plan(plan);
    bench.run_several(2);
  } catch (const Error& error) {
    set_plan({});
    throw Failed(with + ", it fails: " + error.what());
  }
  set_plan({});
  const std::string text = first_of(take_seen(), Mishap::guard_band);
  check_that(text.empty(), with + ", process " + text);
}

Bytes saved(const PluginInstance& instance) {
  if (!instance.has_state()) throw Skipped("it has no state beyond its parameters");
  return instance.save_state();
}

// A state may be refused, but then nothing has changed; and what is taken can be saved and used.
void try_state(Rig& rig, const Setup& setup, const Bytes& state, const std::string& which) {
  PluginInstance instance = rig.create();
  const Bytes before = instance.save_state();
  bool taken = true;
  try {
    instance.load_state(state);
  } catch (const Error&) {
    taken = false;
  }
  const Bytes after = instance.save_state();
  check_that(taken || after == before, "it refuses " + which + ", but its state has changed");
  try {
    instance.activate(setup.sizes);
    Bench bench(rig, instance, setup);
    bench.run_several(1);
  } catch (const Error& error) {
    throw Failed(std::string("after ") + which + " was " + (taken ? "loaded" : "refused") +
                 ", it fails: " + error.what());
  }
}

}  // namespace

void audio_block_size(Trial& trial) {
  Rig rig(trial);
  Setup setup = usual_setup(rig, trial.seed);
  setup.sizes.max_width = song_frames;
  const auto check_same = [&](const std::vector<ParameterChange>& changes, const Bytes& should,
                              const std::string& when) {
    const auto check_empty = [&](const std::string& text, std::uint32_t block) {
      check_that(text.empty(), "in blocks of " + std::to_string(block) + " instead of " +
                                   std::to_string(song_frames) + " frames, the song differs" +
                                   when + ": " + text);
    };
    for (const std::uint32_t block : {1u, 64u, 333u}) {
      check_empty(difference({whole_song(rig, setup, block, changes)}, {should}, 2e-5), block);
    }
  };
  static_cast<void>(steady_run(rig, setup, 1));
  const Bytes steady = whole_song(rig, setup, song_frames, {});
  if (steady.empty()) throw Skipped("it puts out no audio");
  check_same({}, steady, "");
  const auto& parameters = rig.plugin().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto changes = song_changes(parameters[i], i, trial.seed);
    const Bytes changing = whole_song(rig, setup, song_frames, changes);
    if (changing == steady) continue;  // it looks at it once a block, which is allowed
    check_same(changes, changing, " when \"" + parameters[i].id + "\" changes");
  }
}

void audio_events(Trial& trial) {
  Rig rig(trial);
  const auto& parameters = rig.plugin().parameters;
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  Bench bench(rig, instance, setup);
  JobEvents events;
  const auto frames = static_cast<std::int64_t>(setup.sizes.max_width);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterDescription& one = parameters[i];
    if (!one.automatable || number_count(one.type) != 1) continue;
    const bool ramps = one.type == ParameterType::floating;
    for (const std::int64_t at : {std::int64_t{0}, frames / 3, frames - 1}) {
      events.changes.push_back({&instance, i, at, one.from_position(number_at(trial.seed, i, at)),
                                ramps && at == frames / 3 ? 300u : 0u, one.minimum});
    }
  }
  if (events.changes.empty()) throw Skipped("none of its parameters changes while it is active");
  std::stable_sort(events.changes.begin(), events.changes.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  events.transport.emplace();
  events.transport->playing = true;
  events.transport->tempo = 121.5;
  take_seen();
  Plan plan;
  plan.lends = true;
  set_plan(plan);
  for (int i = 0; i < 3; ++i) bench.run(bench.job(i, i == 0), events);
  set_plan({});
  const std::string text = first_of(take_seen(), Mishap::guard_band);
  check_that(text.empty(), "with changes within the block, process " + text);
}

namespace {

// By how many frames an output is behind an input, as far as that can be heard.
struct Delay {
  std::size_t frames = 0;
  double likeness = 0;  // 0: nothing in common, 1: the same but for the level
};

std::vector<float> first_channel(const std::vector<Bytes>& blocks, std::size_t port,
                                 std::size_t ports, std::size_t frames) {
  std::vector<float> channel;
  for (std::size_t k = port; k < blocks.size(); k += ports) {
    const std::size_t at = channel.size();
    channel.resize(at + frames);
    std::memcpy(channel.data() + at, blocks[k].data(), frames * sizeof(float));
  }
  return channel;
}

// The most likely delay of first to before last frames. The input is noise, so that only the right
// one is likely. A turned phase counts as well.
Delay likely_delay(const std::vector<float>& in, const std::vector<float>& out, std::size_t first,
                   std::size_t last) {
  constexpr std::size_t window = 4096;
  Delay best{first, 0};
  for (std::size_t delay = first; delay < last; ++delay) {
    double both = 0, input = 0, output = 0;
    for (std::size_t i = out.size() - window; i < out.size(); ++i) {
      const double x = in[i - delay], y = out[i];
      both += x * y;
      input += x * x;
      output += y * y;
    }
    if (!(input > 0) || !(output > 0)) continue;
    const double likeness = std::abs(both) / std::sqrt(input * output);
    if (likeness > best.likeness) best = {delay, likeness};
  }
  return best;
}

// A host delays everything else by the latency, so an output that is early comes apart from it.
// Fails only if the output is clearly early. An undecidable case (another sound, a mixture of early
// and late) passes, and so does a late output: an echo is late.
void check_delay(Rig& rig, Bench& bench, std::uint32_t block, std::uint64_t latency) {
  constexpr std::uint64_t most = 8192;  // frames; with more, the test would take long
  const auto is_main = [](const PortDescription& port) {
    return !port.side_chain && !port.optional;
  };
  const auto& inputs = rig.plugin().inputs;
  const auto& outputs = rig.plugin().outputs;
  const auto main = std::find_if(inputs.begin(), inputs.end(), is_main);
  const auto tolerance = std::max<std::size_t>(4, latency / 4);  // a filter smears
  if (latency <= tolerance || latency > most || main == inputs.end()) return;
  const int blocks = static_cast<int>(2 * most / block);
  const std::vector<float> in = bench.sound_of(static_cast<std::size_t>(main - inputs.begin()),
                                               static_cast<std::uint32_t>(blocks) * block);
  const std::vector<Bytes> got = bench.run_several(blocks);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].result_bytes != 0) continue;
    const std::vector<float> out = first_channel(got, k, outputs.size(), block);
    const Delay early = likely_delay(in, out, 0, latency - tolerance);
    const Delay right = likely_delay(in, out, latency - tolerance, latency + tolerance + 1);
    check_that(early.likeness < 0.3 || early.likeness < 2 * right.likeness,
               "it reports a latency of " + std::to_string(latency) + " frames, but output \"" +
                   outputs[k].id + "\" is " + std::to_string(early.frames) +
                   " frames behind its input; delay the output, or report what it is");
  }
}

}  // namespace

void audio_latency(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance instance = rig.active(setup.sizes);
  const std::uint64_t latency = instance.latency_frames();
  check_that(latency <= CTXB_LATENCY_MAX, "it reports a latency of " + std::to_string(latency) +
                                              " frames; hosts take " +
                                              std::to_string(CTXB_LATENCY_MAX));
  check_that(latency == instance.latency_frames(), "its latency changes within an activation");
  static_cast<void>(instance.tail_frames());
  if (latency == 0) return;
  take_seen();
  Bench bench(rig, instance, setup);
  try {
    bench.run_several(2);
  } catch (const Error& error) {
    const bool bypassed = take_seen().bypassed > 0;
    throw Failed((bypassed ? "it passes its input on at once, though it reports a latency: "
                           : "it does not work with its latency: ") +
                 std::string(error.what()));
  }
  check_delay(rig, bench, setup.sizes.max_width, latency);
}

void image_tiles(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const std::uint32_t width = setup.sizes.max_width, height = setup.sizes.max_height;
  PluginInstance instance = rig.active(setup.sizes);
  Bench whole(rig, instance, setup);
  const std::vector<Bytes> should = steady_run(whole, 1);
  Bench bench(rig, instance, setup);
  const auto& ports = rig.plugin().outputs;
  if (std::any_of(ports.begin(), ports.end(), [](const auto& p) { return p.result_bytes != 0; })) {
    throw Skipped("it puts out results, so it gets whole pictures");
  }
  // Tiles that do not divide the picture evenly.
  for (std::uint32_t y = 0; y < height; y += 17) {
    for (std::uint32_t x = 0; x < width; x += 23) {
      JobInfo job = whole.job(0, true);
      job.region = {static_cast<std::int32_t>(x), static_cast<std::int32_t>(y),
                    std::min(23u, width - x), std::min(17u, height - y)};
      const std::vector<Bytes> tile = bench.run_tile(job);
      for (std::size_t k = 0; k < tile.size(); ++k) {
        const std::size_t pixel = should[k].size() / width / height;
        for (std::uint32_t row = 0; row < job.region.height; ++row) {
          const std::byte* const is = tile[k].data() + std::size_t{row} * job.region.width * pixel;
          const std::byte* const wanted =
              should[k].data() + ((std::size_t{y} + row) * width + x) * pixel;
          const bool same = std::memcmp(is, wanted, job.region.width * pixel) == 0;
          check_that(same, "the tile of " + std::to_string(job.region.width) + " x " +
                               std::to_string(job.region.height) + " pixels at (" +
                               std::to_string(x) + ", " + std::to_string(y) +
                               ") differs from the whole picture in its row " +
                               std::to_string(row));
        }
      }
    }
  }
}

void state_round_trip(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  PluginInstance first = rig.create();
  const Bytes state = saved(first);
  check_that(first.save_state() == state, "it saves another state when it is asked again");
  PluginInstance second = rig.create();
  try {
    second.load_state(state);
  } catch (const Error& error) {
    throw Failed(std::string("it refuses the state that it has saved: ") + error.what());
  }
  check_that(second.save_state() == state, "after it has loaded a state, it saves another one");
  static_cast<void>(steady_run(rig, setup, 2));
  first.activate(setup.sizes);
  second.activate(setup.sizes);
  const std::vector<Bytes> should = Bench(rig, first, setup).run_several(2);
  const std::string text = difference(Bench(rig, second, setup).run_several(2), should);
  check_that(text.empty(), "with the same state, it gives other results: " + text);
}

void state_garbage(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const Bytes good = saved(rig.create());
  std::mt19937_64 random(trial.seed);
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{8}, std::size_t{64}, good.size(), std::size_t{100000}}) {
    Bytes garbage(size);
    for (std::byte& one : garbage) one = static_cast<std::byte>(random());
    if (!garbage.empty()) try_state(rig, setup, garbage, "a state of random bytes");
  }
  for (int i = 0; i < 12 && !good.empty(); ++i) {
    Bytes damaged = good;
    const std::size_t first = damaged.size() > 64 && i % 2 == 0 ? 64 : damaged.size();
    for (int k = 0; k <= i; ++k) damaged[random() % first] = static_cast<std::byte>(random());
    try_state(rig, setup, damaged, "a damaged state");
  }
}

void state_truncated(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const Bytes good = saved(rig.create());
  if (good.empty()) throw Skipped("its state is empty");
  for (std::size_t part = 0; part < 16; ++part) {
    const std::size_t size = good.size() * part / 16;
    try_state(rig, setup, Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)),
              "a state that ends after " + std::to_string(size) + " bytes");
  }
  Bytes longer = good;
  longer.resize(good.size() + 1000);
  try_state(rig, setup, longer, "a state with bytes behind its end");
}

void parameters_extremes(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  const auto& parameters = rig.plugin().parameters;
  if (parameters.empty()) throw Skipped("it has no parameters");
  run_with(rig, setup, "with all parameters at their least", [](auto, auto) { return 0.0; });
  run_with(rig, setup, "with all parameters at their greatest", [](auto, auto) { return 1.0; });
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    if (parameters[k].is_text()) continue;
    for (const double end : {0.0, 1.0}) {
      run_with(rig, setup,
               "with " + parameters[k].id + " at its " + (end == 0 ? "least" : "greatest"),
               [&](std::size_t i, std::size_t n) {
                 const ParameterDescription& one = parameters[i];
                 return i == k ? end : one.to_position(one.default_value[n]);
               });
    }
  }
}

void parameters_text(Trial& trial) {
  Rig rig(trial);
  const auto& parameters = rig.plugin().parameters;
  if (parameters.empty()) throw Skipped("it has no parameters");
  PluginInstance instance = rig.create();
  for (const ParameterDescription& one : parameters) {
    if (one.is_text()) continue;
    const bool single = number_count(one.type) == 1;
    for (const double at : {0.0, 0.3, 1.0}) {
      const ParameterValue value =
          single ? ParameterValue(one.from_position(at)) : one.default_value;
      const std::string text = instance.to_text(one.id, value);
      check_that(!text.empty(), one.id + " prints nothing");
      ParameterValue read;
      try {
        read = instance.from_text(one.id, text);
      } catch (const Error& error) {
        throw Failed(one.id + " prints \"" + text + "\", and cannot read it: " + error.what());
      }
      check_that(one.allows(read),
                 one.id + " reads \"" + text + "\" as a value that is not allowed");
    }
    for (const char* nonsense : {"", "xyzzy", "1e999", "-", "\xF0\x9F\x8E\x9B", "nan"}) {
      try {
        const ParameterValue read = instance.from_text(one.id, nonsense);
        check_that(one.allows(read), one.id + " reads \"" + nonsense +
                                         "\" as a value that is not "
                                         "allowed");
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it says that it is nonsense
      }
    }
  }
  const std::vector<std::string> strikes = rig.strikes();
  check_that(strikes.empty(), strikes.empty() ? "" : strikes.front());
}

void parameters_random(Trial& trial) {
  Rig rig(trial);
  const Setup setup = usual_setup(rig, trial.seed);
  if (rig.plugin().parameters.empty()) throw Skipped("it has no parameters");
  for (std::uint64_t round = 0; round < 12; ++round) {
    run_with(rig, setup, "with random parameters (round " + std::to_string(round) + ")",
             [&](std::size_t i, std::size_t n) { return number_at(trial.seed, round, i * 4 + n); });
  }
}

}  // namespace ctxbroker::validate
