// SPDX-License-Identifier: Apache-2.0
#include "audio_fixture.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ctxbroker::test {

Signal signal_of(const reference::Audio& audio) {
  Signal signal;
  for (const reference::Channel& channel : audio) {
    signal.emplace_back(channel.begin(), channel.end());
  }
  return signal;
}

Signal delayed(const Signal& signal, std::size_t frames) {
  Signal late;
  for (const std::vector<float>& channel : signal) {
    std::vector<float> one(std::min(frames, channel.size()));
    one.insert(one.end(), channel.begin(), channel.end() - static_cast<std::ptrdiff_t>(one.size()));
    late.push_back(one);
  }
  return late;
}

::testing::AssertionResult same_bytes(const Signal& one, const Signal& other) {
  if (one.size() != other.size()) return ::testing::AssertionFailure() << "other channels";
  for (std::size_t c = 0; c < one.size(); ++c) {
    if (one[c].size() != other[c].size()) return ::testing::AssertionFailure() << "other lengths";
    for (std::size_t i = 0; i < one[c].size(); ++i) {
      const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
      if (bits(one[c][i]) == bits(other[c][i])) continue;
      return ::testing::AssertionFailure()
             << "frame " << i << " of channel " << c << ": " << one[c][i] << " and " << other[c][i];
    }
  }
  return ::testing::AssertionSuccess();
}

BrokerOptions AudioTest::options() {
  BrokerOptions options;
  options.records = [this](const Record& record) {
    const std::lock_guard lock(mutex_);
    records_.push_back(record);
  };
  return options;
}

std::vector<std::string> AudioTest::said(const std::string& topic) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const Record& record : records_) {
    if (record.topic == topic) texts.push_back(record.text);
  }
  return texts;
}

std::string AudioTest::error_text(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

PluginInstance& AudioTest::add(const std::string& node, const std::string& plugin,
                               const ParameterList& parameters, const std::string& library,
                               LeaseKind lease) {
  const PluginLibrary file = broker.load(plugin_file(library.empty() ? plugin : library));
  InstanceOptions how;
  how.lease = LeaseChoice(lease);
  instances.push_back(std::make_unique<PluginInstance>(broker.create(file, plugin, how)));
  PluginInstance& made = *instances.back();
  for (const auto& [id, value] : parameters) made.set_parameter(id, value);
  made.activate({longest, channels, rate});
  description.nodes.push_back({node, &made});
  return made;
}

JobEvents AudioTest::events_of(const Changes& changes, std::size_t first, std::size_t frames) {
  JobEvents events;
  const auto begin = static_cast<std::int64_t>(first);
  const auto end = static_cast<std::int64_t>(first + frames);
  // One that began before the block may have been overridden since.
  const auto is_over = [&](const ParameterChange& change) {
    return std::any_of(changes.begin(), changes.end(), [&](const ParameterChange& other) {
      return other.instance == change.instance && other.parameter == change.parameter &&
             other.offset > change.offset && other.offset <= begin;
    });
  };
  for (ParameterChange change : changes) {
    if (is_over(change)) continue;
    const bool has_begun = change.offset < end;
    const bool goes_on = change.ramp_frames != 0 ? change.offset + change.ramp_frames > begin
                                                 : change.offset >= begin;
    change.offset -= begin;
    if (has_begun && goes_on) events.changes.push_back(change);
  }
  return events;
}

std::vector<Signal> AudioTest::run(Graph& graph, const std::vector<Signal>& inputs,
                                   std::size_t frames, const std::vector<std::size_t>& lengths,
                                   const Changes& changes, std::uint32_t in_flight) {
  struct Block {
    std::size_t frames = 0;
    std::vector<std::vector<float>> in, out;
    std::vector<std::byte> results;
    std::uint64_t job = 0;
  };
  const std::size_t signals = description.outputs.size() - (result_bytes != 0 ? 1 : 0);
  std::vector<Signal> out(signals, Signal(channels));
  std::vector<Block> blocks(in_flight);
  const auto take = [&](Block& block) {
    if (block.job == 0) return;
    graph.finish(block.job);
    block.job = 0;
    for (std::size_t s = 0; s < signals; ++s) {
      for (std::size_t c = 0; c < channels; ++c) {
        const auto begin = block.out[s].begin() + static_cast<std::ptrdiff_t>(c * block.frames);
        out[s][c].insert(out[s][c].end(), begin, begin + static_cast<std::ptrdiff_t>(block.frames));
      }
    }
    if (result_bytes != 0) take_results(block.results);
  };
  std::size_t number = 0;
  for (std::size_t first = 0; first < frames; ++number) {
    Block& block = blocks[number % in_flight];
    take(block);
    block.frames = std::min(lengths[number % lengths.size()], frames - first);
    block.in.clear();
    block.out.assign(signals, std::vector<float>(block.frames * channels, std::nanf("")));
    JobBuffers buffers;
    for (const Signal& signal : inputs) {
      block.in.emplace_back();
      for (const std::vector<float>& channel : signal) {
        const auto begin = channel.begin() + static_cast<std::ptrdiff_t>(first);
        block.in.back().insert(block.in.back().end(), begin,
                               begin + static_cast<std::ptrdiff_t>(block.frames));
      }
    }
    for (const std::vector<float>& one : block.in) buffers.inputs.push_back(one.data());
    for (std::vector<float>& one : block.out) buffers.outputs.push_back(one.data());
    if (result_bytes != 0) {
      block.results.assign(result_bytes, std::byte{0xcd});
      buffers.outputs.push_back(block.results.data());
    }
    JobInfo job;
    job.width = static_cast<std::uint32_t>(block.frames);
    job.height = channels;
    job.position = static_cast<std::int64_t>(first);
    job.sample_rate = rate;
    job.discontinuity = first == 0;
    block.job = graph.submit(buffers, job, events_of(changes, first, block.frames));
    first += block.frames;
  }
  for (std::size_t i = 0; i < in_flight; ++i) take(blocks[(number + i) % in_flight]);
  return out;
}

Signal AudioTest::run_once(const std::vector<Signal>& inputs, std::size_t frames,
                           const std::vector<std::size_t>& lengths, const Changes& changes,
                           std::uint32_t in_flight) {
  GraphOptions options;
  options.jobs_in_flight = in_flight;
  Graph graph(broker, description, {longest, channels, rate}, options);
  return run(graph, inputs, frames, lengths, changes, in_flight).at(0);
}

}  // namespace ctxbroker::test
