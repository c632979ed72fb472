// SPDX-License-Identifier: Apache-2.0
// What the plug-ins of a graph in a worker are set to.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "observe/system_failure.hpp"
#include "plugin/instance.hpp"
#include "plugin/option_check.hpp"
#include "worker/graph_client.hpp"
#include "worker/packet.hpp"

namespace ctxbroker::detail {

std::size_t GraphClient::parameter_of(const Node& node, std::string_view id, bool is_text) const {
  const std::size_t index = node.description.parameter_index(id);
  if (node.description.parameters[index].is_text() == is_text) return index;
  throw Error(ErrorKind::invalid_argument,
              "parameter \"" + std::string(id) + "\" of " + node.description.short_name +
                  (is_text ? " takes numbers; use set_parameter" : " is text; use set_text"));
}

void GraphClient::set_parameter(std::size_t node, std::string_view id,
                                const ParameterValue& value) {
  Node& one = at(node);
  const std::size_t index = parameter_of(one, id, false);
  const ParameterDescription& parameter = one.description.parameters[index];
  parameter.check(value);
  if (active_ && !parameter.automatable) {
    throw Error(ErrorKind::wrong_state, "parameter \"" + parameter.id + "\" of " +
                                            one.description.short_name +
                                            " cannot change while the graph is active");
  }
  if (is_set_up())
    ask(graph_set, {{"node", node}, {"id", parameter.id}, {"value", to_json(value)}});
  one.values[index] = value;
}

void GraphClient::set_text(std::size_t node, std::string_view id, std::string_view text) {
  Node& one = at(node);
  const std::size_t index = parameter_of(one, id, true);
  const ParameterDescription& parameter = one.description.parameters[index];
  std::string taken(text);
  if (parameter.type == ParameterType::file && !taken.empty()) {
    taken = std::filesystem::absolute(taken).lexically_normal().string();
  }
  parameter.check_text(taken);
  if (active_) {
    throw Error(ErrorKind::wrong_state, "parameter \"" + parameter.id + "\" of " +
                                            one.description.short_name +
                                            " cannot change while the graph is active");
  }
  if (is_set_up()) ask(graph_set, {{"node", node}, {"id", parameter.id}, {"value", taken}});
  one.texts[index] = std::move(taken);
}

ParameterValue GraphClient::parameter_value(std::size_t node, std::string_view id) const {
  const Node& one = at(node);
  return one.values[parameter_of(one, id, false)];
}

std::string GraphClient::text(std::size_t node, std::string_view id) const {
  const Node& one = at(node);
  return one.texts[parameter_of(one, id, true)];
}

ParameterValue GraphClient::from_text(std::size_t node, std::string_view id,
                                      std::string_view text) {
  const Node& one = at(node);
  const ParameterDescription& parameter = one.description.parameters[parameter_of(one, id, false)];
  set_up();
  const Json answer =
      ask(graph_question,
          {{"what", "from_text"}, {"node", node}, {"id", parameter.id}, {"text", text}});
  const ParameterValue value = read([&] { return read_value(answer); });
  if (!parameter.allows(value)) refuse("it read a value that the parameter does not take");
  return value;
}

std::string GraphClient::to_text(std::size_t node, std::string_view id,
                                 const ParameterValue& value) {
  const Node& one = at(node);
  const ParameterDescription& parameter = one.description.parameters[parameter_of(one, id, false)];
  parameter.check(value);
  set_up();
  const Json answer =
      ask(graph_question,
          {{"what", "to_text"}, {"node", node}, {"id", parameter.id}, {"value", to_json(value)}});
  return read([&] { return take_message(answer.get<std::string>().c_str()); });
}

Preset GraphClient::save_preset(std::size_t node) {
  Node& one = at(node);
  set_up();
  const Answer answer = exchange(graph_save_preset, {{"node", node}}, {}, States::some);
  const State state = take_states(answer, 1).front();
  Preset preset = read([&] {
    try {
      return parse_preset(answer.json.at("preset").get<std::string>(), one.description.short_name);
    } catch (const Error& error) {
      throw json::DocumentError(error.what());
    }
  });
  if (preset.plugin != one.description.id) refuse("it saved a preset of another plug-in");
  if (state) preset.state = *state;
  if (one.has_state) one.state = state;
  return preset;
}

std::vector<PresetRemark> GraphClient::load_preset(std::size_t node, const Preset& preset) {
  Node& one = at(node);
  set_up();
  // The state's bytes go beside the text.
  const Preset rest{preset.plugin, preset.version, preset.values, {}, preset.other};
  const State state =
      preset.state ? std::make_shared<const std::vector<std::byte>>(*preset.state) : nullptr;
  const Json answer =
      ask(graph_load_preset,
          {{"node", node}, {"preset", ctxbroker::to_json(rest)}, {"has_state", state != nullptr}},
          bytes_of(state));
  Node set = one;
  std::vector<PresetRemark> remarks;
  read([&] {
    const Json& values = answer.at("values");
    const auto& parameters = one.description.parameters;
    if (values.size() != parameters.size()) throw json::DocumentError("values are missing");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      try {
        if (parameters[i].is_text()) {
          set.texts[i] = values.at(i).get<std::string>();
          parameters[i].check_text(set.texts[i]);
        } else {
          set.values[i] = read_value(values.at(i));
          parameters[i].check(set.values[i]);
        }
      } catch (const Error& error) {
        throw json::DocumentError(error.what());
      }
    }
    for (const Json& remark : answer.at("remarks")) {
      const auto kind = json::whole_number(remark.at(0), 4);
      if (!kind) throw json::DocumentError("a remark is of no kind");
      remarks.push_back({static_cast<PresetRemark::Kind>(*kind),
                         take_message(remark.at(1).get<std::string>().c_str()),
                         take_message(remark.at(2).get<std::string>().c_str())});
    }
  });
  if (one.has_state && state) set.state = state;
  one = std::move(set);
  return remarks;
}

Preset GraphClient::last_preset(std::size_t node) const {
  const Node& one = at(node);
  Preset preset = preset_of(one.description, one.values, one.texts);
  if (one.state) preset.state = *one.state;
  return preset;
}

WorkerNodeState GraphClient::node_state(std::size_t node) {
  static_cast<void>(at(node));
  set_up();
  const Json answer = ask(graph_question, {{"what", "state"}, {"node", node}});
  return read([&] {
    WorkerNodeState state;
    LeaseInfo& lease = state.lease;
    lease.tenant.value = whole<std::uint32_t>(answer.at("tenant_id"));
    lease.tenant_name = take_message(answer.at("tenant").get<std::string>().c_str());
    lease.device = whole<int>(answer.at("device"));
    lease.asked = parse_lease_choice(answer.at("asked").get<std::string>()).value_or(LeaseChoice());
    lease.granted = LeaseChoice(
        parse_lease_kind(answer.at("granted").get<std::string>()).value_or(LeaseKind::automatic),
        whole<unsigned>(answer.at("multiprocessors")));
    lease.reason = take_message(answer.at("reason").get<std::string>().c_str());
    lease.generation = whole<std::uint64_t>(answer.at("generation"));
    const auto known = json::whole_number(answer.at("state"), 3);
    const bool there = std::any_of(devices_.begin(), devices_.end(), [&](const DeviceInfo& device) {
      return device.ordinal == lease.device;
    });
    if (!known || !there) throw json::DocumentError("a lease has an unknown state or device");
    lease.state = static_cast<LeaseState>(*known);
    state.restart_requested = answer.at("restart").get<bool>();
    Metrics& m = state.metrics;
    std::size_t next = 0;
    for (std::uint64_t* figure : {&m.jobs, &m.launches, &m.graph_jobs, &m.late_jobs,
                                  &m.memory_bytes, &m.memory_peak_bytes, &m.strikes}) {
      *figure = whole<std::uint64_t>(answer.at("figures").at(next++));
    }
    m.device_seconds = answer.at("device_seconds").get<double>();
    return state;
  });
}

BrokerMetrics GraphClient::metrics() {
  set_up();
  const Json answer = ask(graph_question, {{"what", "metrics"}});
  return read([&] { return read_metrics(answer); });
}

void GraphClient::poll() {
  if (is_set_up()) ask(graph_question, {{"what", "poll"}});
}

// It comes in a file in memory. The worker may write there at any time, and as much as it likes.
TimelineSummary GraphClient::write_timeline(const TimelineSink& sink) {
  check(sink);
  if (!options_.timeline) {
    throw Error(ErrorKind::wrong_state,
                "no timeline was recorded; give WorkerGraphOptions::timeline");
  }
  set_up();
  const Descriptor file(::memfd_create("ctxbroker-timeline", MFD_CLOEXEC));
  if (file.get() < 0) {
    const int why = errno;
    throw system_failure(why, "the timeline: " + std::generic_category().message(why));
  }
  const Json answer = ask(graph_timeline, {{"file", pass(file)}});
  const TimelineSummary summary = read([&] {
    return TimelineSummary{whole<std::uint64_t>(answer.at(0)), whole<std::uint64_t>(answer.at(1)),
                           whole<std::uint64_t>(answer.at(2))};
  });
  constexpr std::uint64_t least = std::uint64_t{1} << 20, text_of_a_byte = 16;  // 128 bytes a span
  std::uint64_t left = least + text_of_a_byte * options_.timeline->memory_bytes;
  std::vector<char> piece(std::size_t{1} << 16);
  for (off_t place = 0;;) {
    const ssize_t got = ::pread(file.get(), piece.data(), piece.size(), place);
    if (got <= 0) return summary;
    if (static_cast<std::uint64_t>(got) > left) refuse("its timeline is longer than it can be");
    left -= static_cast<std::uint64_t>(got);
    place += got;
    sink({piece.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace ctxbroker::detail
