// SPDX-License-Identifier: Apache-2.0
// Runs whole signals through graphs of audio plug-ins, in blocks of any lengths, with changes of
// parameters at frames of the signal.
#pragma once

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {

inline constexpr double rate = 48000;
inline constexpr std::uint32_t longest = 4096;
// From the shortest to the longest block, and changing ones.
inline const std::vector<std::vector<std::size_t>> block_lengths = {
    {1}, {2}, {7}, {64}, {441}, {1024}, {4095}, {4096}, {256, 1, 1000, 7, 64, 999, 2, 4096}};

// Planar: all channels of the first frame to the last, one after the other.
using Signal = std::vector<std::vector<float>>;
Signal signal_of(const reference::Audio& audio);
// Later by `frames`, with silence first.
Signal delayed(const Signal& signal, std::size_t frames);
// Whether all bits are the same.
::testing::AssertionResult same_bytes(const Signal& one, const Signal& other);

class AudioTest : public ::testing::Test {
 protected:
  AudioTest() : broker(Broker::open(options())) {}

  // `library` is empty: it has the plug-in's name.
  PluginInstance& add(const std::string& node, const std::string& plugin,
                      const ParameterList& parameters = {}, const std::string& library = {},
                      LeaseKind lease = LeaseKind::automatic);
  PluginInstance& probe(const std::string& node, const std::string& plugin,
                        LeaseKind lease = LeaseKind::automatic) {
    return add(node, plugin, {}, "audio_probes", lease);
  }
  void edge(const char* from, const char* to) { description.edges.push_back({from, to}); }

  // What a job of the signal's frames from `first` on gets.
  using Changes = std::vector<ParameterChange>;  // their offsets count from the signal's beginning
  static JobEvents events_of(const Changes& changes, std::size_t first, std::size_t frames);

  // Every input as long as `frames`; the outputs that are audio. Results are handed to
  // `take_results` after each job.
  std::vector<Signal> run(Graph& graph, const std::vector<Signal>& inputs, std::size_t frames,
                          const std::vector<std::size_t>& lengths, const Changes& changes = {},
                          std::uint32_t in_flight = 1);
  // The same in a new graph, with one output.
  Signal run_once(const std::vector<Signal>& inputs, std::size_t frames,
                  const std::vector<std::size_t>& lengths, const Changes& changes = {},
                  std::uint32_t in_flight = 1);

  std::vector<std::string> said(const std::string& topic) const;
  static std::string error_text(ErrorKind kind, const std::function<void()>& work);

  std::uint32_t channels = 2;
  GraphDescription description;
  std::function<void(const std::vector<std::byte>&)> take_results;
  std::size_t result_bytes = 0;  // of the last output, if it is an analyser's

 private:
  BrokerOptions options();
  mutable std::mutex mutex_;
  std::vector<Record> records_;

 protected:
  Broker broker;  // after the records, which it writes to the end
  std::vector<std::unique_ptr<PluginInstance>> instances;
};

}  // namespace ctxbroker::test
