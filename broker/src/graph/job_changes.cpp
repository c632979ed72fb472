// SPDX-License-Identifier: Apache-2.0
#include "graph/job_changes.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void refuse_change(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

// As plugin_events.h says.
double value_at(const ctxb_parameter_event& event, std::int64_t frame) noexcept {
  if (frame >= event.ramp_end) return event.value;
  const auto passed = static_cast<double>(frame - event.ramp_begin);
  const auto length = static_cast<double>(event.ramp_end - event.ramp_begin);
  return event.from + (event.value - event.from) * (passed / length);
}

ctxb_parameter_event event_of(const ParameterChange& change) noexcept {
  ctxb_parameter_event event{};
  event.size = sizeof event;
  event.flags = change.ramp_frames != 0 ? CTXB_EVENT_RAMP : 0;
  event.parameter = static_cast<std::uint32_t>(change.parameter);
  event.offset = static_cast<std::uint32_t>(std::max<std::int64_t>(change.offset, 0));
  event.value = change.value;
  event.from = change.ramp_frames != 0 ? change.from : change.value;
  event.ramp_begin = change.offset;
  event.ramp_end = change.offset + static_cast<std::int64_t>(change.ramp_frames);
  return event;
}

void check_transport(const Transport& transport) {
  const auto check = [](const char* what, bool sound) {
    if (!sound) refuse_change(std::string("the transport's ") + what);
  };
  const auto finite = [](double first, double second, const Transport::Loop& loop) {
    return std::isfinite(first) && std::isfinite(second) && std::isfinite(loop.begin) &&
           std::isfinite(loop.end) && loop.begin <= loop.end;
  };
  check("tempo is not above 0, or not finite",
        !transport.tempo || (std::isfinite(*transport.tempo) && *transport.tempo > 0));
  check("tempo_step is not finite, or there is no tempo",
        transport.tempo_step == 0 || (transport.tempo && std::isfinite(transport.tempo_step)));
  check("time signature has a 0",
        !transport.time_signature || (transport.time_signature->beats_per_bar != 0 &&
                                      transport.time_signature->beat_unit != 0));
  check("position in beats is not finite, or its loop ends before it begins",
        !transport.beats ||
            finite(transport.beats->song, transport.beats->bar, transport.beats->loop));
  check("position in seconds is not finite, or its loop ends before it begins",
        !transport.seconds || finite(transport.seconds->song, 0, transport.seconds->loop));
}

ctxb_transport transport_of(const Transport& given) noexcept {
  ctxb_transport made{};
  made.size = sizeof made;
  const auto flag = [&](bool is_set, std::uint32_t bit) { made.flags |= is_set ? bit : 0; };
  flag(given.playing, CTXB_TRANSPORT_PLAYING);
  flag(given.recording, CTXB_TRANSPORT_RECORDING);
  flag(given.looping, CTXB_TRANSPORT_LOOPING);
  if (given.tempo) {
    flag(true, CTXB_TRANSPORT_TEMPO);
    made.tempo = *given.tempo;
    made.tempo_step = given.tempo_step;
  }
  if (given.time_signature) {
    flag(true, CTXB_TRANSPORT_TIME_SIGNATURE);
    made.beats_per_bar = given.time_signature->beats_per_bar;
    made.beat_unit = given.time_signature->beat_unit;
  }
  if (given.beats) {
    flag(true, CTXB_TRANSPORT_BEATS);
    made.song_beats = given.beats->song;
    made.bar_beats = given.beats->bar;
    made.bar = given.beats->bar_number;
    made.loop_begin_beats = given.beats->loop.begin;
    made.loop_end_beats = given.beats->loop.end;
  }
  if (given.seconds) {
    flag(true, CTXB_TRANSPORT_SECONDS);
    made.song_seconds = given.seconds->song;
    made.loop_begin_seconds = given.seconds->loop.begin;
    made.loop_end_seconds = given.seconds->loop.end;
  }
  return made;
}

}  // namespace

void check_change(const ParameterChange& change, const PluginDescription& plugin,
                  std::uint32_t frames) {
  if (change.parameter >= plugin.parameters.size()) {
    refuse_change("a change for plug-in " + plugin.short_name + " names parameter " +
                  std::to_string(change.parameter) + ", and the plug-in has " +
                  std::to_string(plugin.parameters.size()));
  }
  const ParameterDescription& parameter = plugin.parameters[change.parameter];
  const auto refuse_it = [&](const std::string& why) {
    refuse_change("a change for plug-in " + plugin.short_name + ", parameter \"" + parameter.id +
                  "\", at frame " + std::to_string(change.offset) + ": " + why);
  };
  const bool is_ramp = change.ramp_frames != 0;
  if (!parameter.automatable) {
    refuse_it("the parameter is not automatable; deactivate the plug-in and use set_parameter");
  }
  parameter.check(change.value);
  if (is_ramp && parameter.type != ParameterType::floating) {
    refuse_it(std::string("it is a ramp, and the parameter takes ") + to_string(parameter.type) +
              " values; let it jump");
  }
  if (is_ramp) parameter.check(change.from);
  if (change.offset >= static_cast<std::int64_t>(frames)) {
    refuse_it("the block has " + std::to_string(frames) + " frames");
  }
  if (change.offset < 0 && !is_ramp) refuse_it("a jump has to lie within the block");
  if (is_ramp && change.offset + static_cast<std::int64_t>(change.ramp_frames) <= 0) {
    refuse_it("its ramp of " + std::to_string(change.ramp_frames) +
              " frames ends before the block; leave it out");
  }
}

void check_order(std::int64_t before, std::int64_t offset) {
  if (offset >= before) return;
  refuse_change("a change at frame " + std::to_string(offset) + " follows one at frame " +
                std::to_string(before) + "; sort the changes by their offsets");
}

void check_events(Media media, std::size_t count, std::size_t most,
                  const std::optional<Transport>& transport) {
  if (media != Media::audio && (count != 0 || transport)) {
    refuse_change("the job has changes or a transport, and only audio has them; use set_parameter");
  }
  if (count > most) {
    refuse_change("the job has " + std::to_string(count) + " changes, and the graph takes " +
                  std::to_string(most) + " (GraphOptions::changes_per_job)");
  }
  if (transport) check_transport(*transport);
}

JobChanges::JobChanges(std::vector<Instance*> instances, std::size_t most)
    : instances_(std::move(instances)), most_(most) {
  changes_.reserve(most);
  given_.reserve(most);
}

void JobChanges::take(const JobEvents& events, const JobInfo& job) {
  changes_.clear();
  transport_ = {};
  frames_ = job.width;
  check_events(instances_.front()->description().media, events.changes.size(), most_,
               events.transport);
  if (events.transport) transport_ = transport_of(*events.transport);
  std::int64_t before = INT64_MIN;
  for (const ParameterChange& change : events.changes) {
    if (change.instance == nullptr) refuse_change("a change has no instance");
    Instance& instance = Access::of(*change.instance);
    if (std::find(instances_.begin(), instances_.end(), &instance) == instances_.end()) {
      refuse_change("a change is for plug-in " + instance.description().short_name +
                    ", whose instance is not in this graph");
    }
    check_change(change, instance.description(), frames_);
    check_order(before, change.offset);
    before = change.offset;
    changes_.push_back({&instance, event_of(change)});
  }
}

void JobChanges::set_first_values() noexcept {
  for (const Change& change : changes_) {
    if (change.event.offset != 0) break;
    change.instance->put_value(change.event.parameter, value_at(change.event, 0));
  }
}

void JobChanges::set_next_values() noexcept {
  for (const Change& change : changes_) {
    change.instance->put_value(change.event.parameter, value_at(change.event, frames_));
  }
}

void JobChanges::give(const Instance& instance, ctxb_job& job) noexcept {
  given_.clear();
  for (const Change& change : changes_) {
    if (change.instance == &instance) given_.push_back(change.event);
  }
  job.events = given_.empty() ? nullptr : given_.data();
  job.event_count = static_cast<std::uint32_t>(given_.size());
  job.transport = transport_.size == 0 ? nullptr : &transport_;
}

}  // namespace ctxbroker::detail
