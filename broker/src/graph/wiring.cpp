// SPDX-License-Identifier: Apache-2.0
#include "graph/wiring.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

std::string quoted(const std::string& name) {
  return '"' + name + '"';
}

template <typename Named>
std::string names_of(const std::vector<Named>& all) {
  std::string text;
  for (const Named& one : all) text += (text.empty() ? "" : ", ") + one.name;
  return text.empty() ? "none" : text;
}

std::string ids_of(const std::vector<PortDescription>& ports) {
  std::string text;
  for (const PortDescription& port : ports) text += (text.empty() ? "" : ", ") + port.id;
  return text.empty() ? "none" : text;
}

// "1, 2 or 4 channels of float or half"
std::string to_text(const PortDescription& port) {
  if (port.result_bytes != 0) return std::to_string(port.result_bytes) + " bytes of results";
  std::vector<std::string> counts;
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    if ((port.channels >> bit & 1) != 0) counts.push_back(std::to_string(bit + 1));
  }
  std::string text;
  if (counts.size() == 32) {
    text = "any number of channels";
  } else {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      text += (i == 0 ? "" : i + 1 == counts.size() ? " or " : ", ") + counts[i];
    }
    text += port.channels == 1 ? " channel" : " channels";
  }
  constexpr const char* samples[] = {"", "float", "half", "float or half"};
  return text + " of " + samples[port.samples & 3];
}

// One end of an edge.
struct Place {
  Maybe node;  // none: one of the graph's ports
  Index port = 0;
};

// The whole work of `connect` and `wire`, in the order of its functions.
class Wirer {
 public:
  Wirer(const GraphDescription& description, const std::vector<const PluginDescription*>& plugins)
      : description_(description) {
    for (Index i = 0; i < plugins.size(); ++i) {
      WiredNode node;
      node.name = description.nodes[i].name;
      node.plugin = plugins[i];
      wiring_.nodes.push_back(std::move(node));
    }
  }

  Wiring connect() {
    check_names();
    make_values();
    for (const GraphEdge& edge : description_.edges) connect(edge);
    check_connections();
    order();
    return std::move(wiring_);
  }

  Wiring wire(const ActivationSizes& sizes) {
    wiring_ = connect();
    max_height_ = sizes.max_height;
    for (const Index node : wiring_.order) choose_formats(node);
    find_job_channels();
    drop_unused_outputs();
    return std::move(wiring_);
  }

 private:
  void check_names() {
    if (wiring_.nodes.empty()) refuse("it has no node; give it at least one plug-in instance");
    if (description_.outputs.empty()) refuse("it has no output for the host");
    std::set<std::string> sources, targets;
    const auto take = [](std::set<std::string>& names, const std::string& name) {
      if (name.empty() || name.find('.') != std::string::npos) {
        refuse("the name " + quoted(name) + " is empty or has a dot");
      }
      if (!names.insert(name).second) refuse("two parts have the name " + quoted(name));
    };
    for (const GraphPort& port : description_.inputs) take(sources, port.name);
    for (const GraphPort& port : description_.outputs) take(targets, port.name);
    for (const WiredNode& node : wiring_.nodes) {
      take(sources, node.name);
      take(targets, node.name);
      if (node.plugin->media == wiring_.nodes[0].plugin->media) continue;
      refuse(node.name + " processes " + to_string(node.plugin->media) + ", and " +
             wiring_.nodes[0].name + " " + to_string(wiring_.nodes[0].plugin->media));
    }
    wiring_.media = wiring_.nodes[0].plugin->media;
  }

  void make_values() {
    for (Index i = 0; i < description_.inputs.size(); ++i) {
      const GraphPort& port = description_.inputs[i];
      wiring_.values.push_back({port.name, {}, i, format_of(port), {}, false, 0});
    }
    for (Index n = 0; n < wiring_.nodes.size(); ++n) {
      WiredNode& node = wiring_.nodes[n];
      node.inputs.resize(node.plugin->inputs.size());
      for (Index port = 0; port < node.plugin->outputs.size(); ++port) {
        node.outputs.push_back(wiring_.values.size());
        const PortDescription& given = node.plugin->outputs[port];
        Format format{wiring_.media, 0, SampleType::float32, given.result_bytes};
        wiring_.values.push_back({node.name + '.' + given.id, n, port, format, {}, false, 0});
      }
    }
    host_outputs_.resize(wiring_.values.size());
    wiring_.outputs.assign(description_.outputs.size(), unused);
  }

  Format format_of(const GraphPort& port) const {
    if (port.channels > 32) refuse("the port " + quoted(port.name) + " has more than 32 channels");
    if (port.samples != SampleType::float32 &&
        (port.samples != SampleType::float16 || wiring_.media != Media::image)) {
      refuse("the port " + quoted(port.name) + " has samples that its media does not have");
    }
    Format format{wiring_.media, port.channels, port.samples, 0};
    if (format.channels == 0 && wiring_.media == Media::image) format.channels = 4;
    return format;
  }

  void connect(const GraphEdge& edge) {
    const std::string where =
        "the edge from " + quoted(edge.from) + " to " + quoted(edge.to) + ": ";
    const Place from = find(edge.from, true, where), to = find(edge.to, false, where);
    const Index value = from.node ? wiring_.nodes[*from.node].outputs[from.port] : from.port;
    if (!to.node) {
      if (!from.node) {
        refuse(where + "it leads past all nodes; copy the input to the output yourself");
      }
      if (wiring_.outputs[to.port] != unused) refuse(where + "the output has a source already");
      wiring_.outputs[to.port] = value;
      wiring_.values[value].goes_to_host = true;
      host_outputs_[value].push_back(to.port);
      return;
    }
    if (wiring_.values[value].format.result_bytes != 0) {
      refuse(where + "results go to the host, and not into a plug-in");
    }
    WiredNode& node = wiring_.nodes[*to.node];
    if (node.inputs[to.port]) refuse(where + "the input has a source already");
    node.inputs[to.port] = value;
  }

  Place find(const std::string& text, bool is_source, const std::string& where) const {
    const std::size_t dot = text.find('.');
    const std::string name = text.substr(0, dot);
    const auto& host_ports = is_source ? description_.inputs : description_.outputs;
    for (Index i = 0; i < host_ports.size(); ++i) {
      if (dot == std::string::npos && host_ports[i].name == name) return {{}, i};
    }
    const auto node = std::find_if(wiring_.nodes.begin(), wiring_.nodes.end(),
                                   [&](const WiredNode& one) { return one.name == name; });
    if (node == wiring_.nodes.end()) {
      refuse(where + "nothing is named " + quoted(name) + "; there are the nodes " +
             names_of(wiring_.nodes) + " and the graph's " + (is_source ? "inputs " : "outputs ") +
             names_of(host_ports));
    }
    const auto n = static_cast<Index>(node - wiring_.nodes.begin());
    const auto& ports = is_source ? node->plugin->outputs : node->plugin->inputs;
    if (dot == std::string::npos && !ports.empty()) return {n, 0};
    const std::string id = dot == std::string::npos ? "" : text.substr(dot + 1);
    for (Index port = 0; port < ports.size(); ++port) {
      if (ports[port].id == id) return {n, port};
    }
    refuse(where + "the plug-in of " + name + " has no such " + (is_source ? "output" : "input") +
           "; it has: " + ids_of(ports));
  }

  void check_connections() const {
    for (Index i = 0; i < wiring_.outputs.size(); ++i) {
      if (wiring_.outputs[i] == unused) {
        refuse("the output " + quoted(description_.outputs[i].name) + " has no source");
      }
    }
    std::vector<bool> is_read(wiring_.values.size());
    for (const WiredNode& node : wiring_.nodes) {
      for (Index port = 0; port < node.inputs.size(); ++port) {
        const PortDescription& input = node.plugin->inputs[port];
        if (node.inputs[port]) {
          is_read[*node.inputs[port]] = true;
        } else if (!input.optional) {
          refuse("the input " + node.name + '.' + input.id + " (" + input.name +
                 ") has no source, and it is not optional");
        }
      }
    }
    for (Index i = 0; i < description_.inputs.size(); ++i) {
      if (!is_read[i]) refuse("no edge begins at the input " + quoted(description_.inputs[i].name));
    }
  }

  // Depth first: `path_` leads to the node that is looked at.
  void order() {
    state_.assign(wiring_.nodes.size(), State::unseen);
    for (Index n = 0; n < wiring_.nodes.size(); ++n) visit(n);
    for (const Index n : wiring_.order) {
      for (const Maybe& value : wiring_.nodes[n].inputs) {
        if (!value) continue;
        auto& readers = wiring_.values[*value].readers;
        if (readers.empty() || readers.back() != n) readers.push_back(n);
      }
    }
  }

  void visit(Index n) {
    if (state_[n] == State::done) return;
    path_.push_back(n);
    if (state_[n] == State::open) refuse_cycle(n);
    state_[n] = State::open;
    WiredNode& node = wiring_.nodes[n];
    node.comes_after.assign(wiring_.nodes.size(), false);
    for (const Maybe& value : node.inputs) {
      if (!value || !wiring_.values[*value].node) continue;
      const Index before = *wiring_.values[*value].node;
      visit(before);
      if (std::find(node.waits_for.begin(), node.waits_for.end(), before) == node.waits_for.end()) {
        node.waits_for.push_back(before);
      }
      for (Index i = 0; i < wiring_.nodes.size(); ++i) {
        if (i == before || wiring_.nodes[before].comes_after[i]) node.comes_after[i] = true;
      }
    }
    state_[n] = State::done;
    wiring_.order.push_back(n);
    path_.pop_back();
  }

  [[noreturn]] void refuse_cycle(Index n) const {
    std::string text = wiring_.nodes[n].name;
    for (auto at = path_.rbegin() + 1; at != path_.rend(); ++at) {
      text += " -> " + wiring_.nodes[*at].name;
      if (*at == n) break;
    }
    refuse("the nodes wait for each other: " + text + "; a graph has no cycles");
  }

  // Chooses the formats of the node's outputs, when all that the node reads has its format.
  void choose_formats(Index n) {
    WiredNode& node = wiring_.nodes[n];
    std::optional<Format> first;
    for (Index port = 0; port < node.inputs.size(); ++port) {
      if (!node.inputs[port]) continue;
      const Value& value = wiring_.values[*node.inputs[port]];
      if (!value.node) check_format(value, node.name, node.plugin->inputs[port]);
      if (!first && !node.plugin->inputs[port].side_chain) first = value.format;
    }
    for (Index port = 0; port < node.outputs.size(); ++port) {
      Value& value = wiring_.values[node.outputs[port]];
      if (value.format.result_bytes == 0) choose_format(value, node.plugin->outputs[port], first);
    }
  }

  void choose_format(Value& value, const PortDescription& port,
                     const std::optional<Format>& first) {
    std::uint32_t channels = port.channels, samples = port.samples;
    std::optional<Format> wanted = first;
    const auto narrow = [&](std::uint32_t its_channels, std::uint32_t its_samples,
                            const std::string& who, const std::string& takes) {
      channels &= its_channels;
      samples &= its_samples;
      if (channels != 0 && samples != 0) return;
      refuse(value.name + " gives " + to_text(port) + ", and " + who + " takes " + takes +
             "; no format suits all that it is connected to");
    };
    for (const Index reader : value.readers) {
      const WiredNode& node = wiring_.nodes[reader];
      for (Index i = 0; i < node.inputs.size(); ++i) {
        if (!node.inputs[i] || &wiring_.values[*node.inputs[i]] != &value) continue;
        const PortDescription& input = node.plugin->inputs[i];
        narrow(input.channels, input.samples, node.name + '.' + input.id, to_text(input));
      }
    }
    for (const Index port : host_outputs_[static_cast<Index>(&value - wiring_.values.data())]) {
      const Format format = format_of(description_.outputs[port]);
      narrow(mask_of(format), static_cast<std::uint32_t>(format.samples),
             "the output " + quoted(description_.outputs[port].name), detail::to_text(format));
      wanted = format;
    }
    value.format.samples = choose_samples(samples, wanted);
    value.format.channels = choose_channels(channels, wanted);
  }

  static SampleType choose_samples(std::uint32_t samples, const std::optional<Format>& wanted) {
    const SampleType type = wanted ? wanted->samples : SampleType::float32;
    if ((samples & static_cast<std::uint32_t>(type)) != 0) return type;
    return static_cast<SampleType>(std::uint32_t{1} << std::countr_zero(samples));
  }

  // Returns the wanted number of channels if the port allows it, else the usual one for the media,
  // else the largest that the port allows.
  std::uint32_t choose_channels(std::uint32_t channels, const std::optional<Format>& wanted) const {
    const bool is_audio = wiring_.media == Media::audio;
    const Format usual{wiring_.media, is_audio ? 0 : std::uint32_t{4}, SampleType::float32, 0};
    for (const Format& one : {wanted.value_or(usual), usual}) {
      const std::uint32_t mask = mask_of(one);
      if ((channels & mask) == mask) return one.channels;
    }
    return 32 - static_cast<std::uint32_t>(std::countl_zero(channels));
  }

  // The bits that a port needs. Audio whose channels are the job's has the most that a job may
  // have.
  std::uint32_t mask_of(const Format& format) const {
    const std::uint32_t count = format.channels != 0 ? format.channels : max_height_;
    return count > 32 ? UINT32_MAX : std::uint32_t{1} << (count - 1);
  }

  void check_format(const Value& value, const std::string& node,
                    const PortDescription& port) const {
    const std::uint32_t mask = mask_of(value.format);
    if ((mask & port.channels) == mask &&
        (static_cast<std::uint32_t>(value.format.samples) & port.samples) != 0) {
      return;
    }
    refuse("the input " + quoted(value.name) + " has " + detail::to_text(value.format) + ", and " +
           node + '.' + port.id + " takes " + to_text(port));
  }

  void find_job_channels() {
    const auto narrow = [&](Index value, std::uint32_t channels) {
      if (wiring_.values[value].format.channels == 0 &&
          wiring_.values[value].format.result_bytes == 0) {
        wiring_.job_channels &= channels;
      }
    };
    for (const WiredNode& node : wiring_.nodes) {
      for (Index port = 0; port < node.inputs.size(); ++port) {
        if (node.inputs[port]) narrow(*node.inputs[port], node.plugin->inputs[port].channels);
      }
      for (Index port = 0; port < node.outputs.size(); ++port) {
        narrow(node.outputs[port], node.plugin->outputs[port].channels);
      }
    }
  }

  void drop_unused_outputs() {
    for (WiredNode& node : wiring_.nodes) {
      for (Index port = 0; port < node.outputs.size(); ++port) {
        const Value& value = wiring_.values[node.outputs[port]];
        const bool is_wanted = !value.readers.empty() || value.goes_to_host;
        if (!is_wanted && node.plugin->outputs[port].optional) node.outputs[port] = unused;
      }
    }
  }

  enum class State : std::uint8_t { unseen, open, done };
  const GraphDescription& description_;
  std::uint32_t max_height_ = 0;
  Wiring wiring_;
  std::vector<std::vector<Index>> host_outputs_;  // of each value
  std::vector<State> state_;
  std::vector<Index> path_;
};

}  // namespace

std::uint64_t row_bytes(const Format& format, std::uint32_t width) noexcept {
  if (format.result_bytes != 0) return format.result_bytes;
  const std::uint64_t sample = format.samples == SampleType::float16 ? 2 : 4;
  return width * sample * (format.media == Media::image ? format.channels : 1);
}

std::uint64_t bytes_of(const Format& format, std::uint32_t width, std::uint32_t height) noexcept {
  const std::uint64_t row = row_bytes(format, width);
  if (format.result_bytes != 0) return row;
  return row * (format.media == Media::audio && format.channels != 0 ? format.channels : height);
}

std::string to_text(const Format& format) {
  if (format.result_bytes != 0) return std::to_string(format.result_bytes) + " bytes of results";
  if (format.channels == 0) return "the job's channels of float";
  return std::to_string(format.channels) +
         (format.channels == 1 ? " channel of " : " channels of ") + to_string(format.samples);
}

Wiring connect(const GraphDescription& description,
               const std::vector<const PluginDescription*>& plugins) {
  return Wirer(description, plugins).connect();
}

Wiring wire(const GraphDescription& description,
            const std::vector<const PluginDescription*>& plugins, const ActivationSizes& sizes,
            const std::vector<FrameRanges>& frames) {
  return unroll(Wirer(description, plugins).wire(sizes), frames);
}

}  // namespace ctxbroker::detail
