// SPDX-License-Identifier: Apache-2.0
// Pictures that stay on the device between the processes of a graph. The process that writes one
// makes its memory, and the one that reads it gets that from here.
#include "worker/grouped_graph.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

bool reads(const Group& group, Index value) {
  return std::count(group.inputs.begin(), group.inputs.end(), value) != 0;
}

}  // namespace

// The whole graph's values that stay on the device between two parts: pictures that one part makes,
// and one other reads. That one needs exactly what there is, so nothing has to be cut out.
std::vector<bool> GroupedGraph::find_relays(const Wiring& whole) const {
  std::vector<bool> relays(whole.values.size());
  if (has_dry_pictures_) return relays;  // the host makes those of a process that is away
  const auto has_device = [&](const auto& part) {
    const auto& all = part->devices();
    return std::any_of(all.begin(), all.end(), [&](const DeviceInfo& device) {
      return device.ordinal == description_.device;
    });
  };
  if (whole.media != Media::image || !std::all_of(segments_.begin(), segments_.end(), has_device)) {
    return relays;
  }
  for (const Group& group : groups_) {
    if (group.outputs.size() != 1) continue;
    const Index value = group.outputs.front();
    const auto readers = std::count_if(groups_.begin(), groups_.end(),
                                       [&](const Group& other) { return reads(other, value); });
    relays[value] = readers == 1 && !whole.values[value].goes_to_host &&
                    whole.values[value].format.result_bytes == 0;
  }
  return relays;
}

// Returns which of the whole graph's values this is.
Index GroupedGraph::relay_of(const Value& value) const {
  return groups_[wiring_.nodes[*value.node].origin].outputs[value.port];
}

// Those relays that one job of one part reads. Several jobs may need different parts of the
// picture.
std::vector<bool> GroupedGraph::read_once(std::vector<bool> relays) const {
  for (const Value& value : wiring_.values) {
    if (value.node && value.readers.size() > 1) relays[relay_of(value)] = false;
  }
  return relays;
}

void GroupedGraph::make_relays(const std::vector<bool>& relays) {
  std::uint64_t all = 0;
  std::size_t count = 0;
  for (Index v = 0; v < wiring_.values.size(); ++v) {
    const Value& value = wiring_.values[v];
    if (!value.node || !relays[relay_of(value)]) continue;
    const Index from = wiring_.nodes[*value.node].origin;
    Samples& samples = samples_[v];
    const std::uint64_t bytes = samples.storage.size();
    samples.relay = Mapping::only_addresses(bytes);
    samples.storage = {};
    while (!reads(groups_[samples.relay_to], relay_of(value))) ++samples.relay_to;
    segments_[from]->make_relay(samples.relay.get(), bytes, description_.device);
    pass_relays(from, 0);
    last_reads_relay_ = last_reads_relay_ || samples.relay_to + 1 == segments_.size();
    all += bytes;
    ++count;
  }
  if (count == 0) return;
  recorder_.record(Severity::debug, host_tenant, name_, "worker",
                   std::to_string(count) + " pictures between processes stay on device " +
                       std::to_string(description_.device) + ", and take " + std::to_string(all) +
                       " bytes of its memory");
}

// Passes relays that a process has made anew to the processes that read them. `step` is the one
// that is done last.
void GroupedGraph::pass_relays(Index from, Index step) {
  bool is_lost = false;
  for (Index v = 0; v < samples_.size(); ++v) {
    const Samples& samples = samples_[v];
    if (samples.relay.get() == nullptr || wiring_.nodes[*wiring_.values[v].node].origin != from) {
      continue;
    }
    Descriptor file = segments_[from]->release_relay(samples.relay.get());
    if (file.get() < 0) continue;
    asked_last_ = samples.relay_to;
    try {
      segments_[asked_last_]->take_relay(std::move(file), samples.relay.get(),
                                         samples.relay.bytes(), description_.device);
    } catch (const Error& error) {
      const auto maker = segments_[from]->worker();
      if (error.kind() == ErrorKind::context_lost || !maker || !active_) throw;
      asked_last_ = from;  // its next process makes the memory anew
      maker->refuse("it has made device memory that another process cannot take: " +
                    std::string(error.what()));
    }
    is_lost = is_lost || *wiring_.values[v].node < step;
  }
  asked_last_ = from;
  if (!is_lost) return;
  throw Error(ErrorKind::context_lost,
              "graph: a process has ended, and pictures of this job were in its device memory");
}

}  // namespace ctxbroker::detail
