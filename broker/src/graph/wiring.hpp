// SPDX-License-Identifier: Apache-2.0
// What a graph's description means: which node waits for which, and what flows between them. Pure:
// it knows descriptors, and nothing of instances, leases and drivers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "ctxbroker/plugin_description.hpp"
#include "plugin/frame_range.hpp"

namespace ctxbroker::detail {

// What a buffer holds.
struct Format {
  Media media = Media::image;
  std::uint32_t channels = 0;  // of a pixel or of audio; 0: audio of the job's height
  SampleType samples = SampleType::float32;
  std::uint32_t result_bytes = 0;  // not 0: results, and nothing else counts
  bool operator==(const Format&) const = default;
};
// Bytes of one row of an image or one channel of audio, and of all. Without gaps.
std::uint64_t row_bytes(const Format& format, std::uint32_t width) noexcept;
std::uint64_t bytes_of(const Format& format, std::uint32_t width, std::uint32_t height) noexcept;
// "4 channels of float"
std::string to_text(const Format& format);

using Index = std::size_t;
using Maybe = std::optional<Index>;

// Something that flows: what the host gives, or what a port puts out.
struct Value {
  std::string name;  // "plate", "blur.out"
  Maybe node;        // none: it is the host's input number `port`
  Index port = 0;
  Format format;
  std::vector<Index> readers;  // nodes, in the order in which they run, each once
  bool goes_to_host = false;
  int frame = 0;  // distance from the job's
};

// One buffer that a node reads: a port of its plug-in, and a frame as distance from the node's.
struct Feed {
  Index port = 0;
  int frame = 0;
};

struct WiredNode {
  std::string name;
  const PluginDescription* plugin = nullptr;
  std::vector<Maybe> inputs;     // the value of each feed
  std::vector<Index> outputs;    // likewise; an optional one that nobody reads is `unused`
  std::vector<Index> waits_for;  // nodes whose values it reads, each once
  std::vector<bool>
      comes_after;            // for each node: whether this one waits for it, or for one that does
  std::vector<Feed> feeds{};  // port after port, each with its frames in order
  Index origin = 0;           // in GraphDescription::nodes
  int frame = 0;              // distance from the job's
  bool asks_regions = false;  // the plug-in has CTXB_EXT_REGIONS
  bool is_repeated = false;   // its origin works at several frames
};
inline constexpr Index unused = SIZE_MAX;

struct Wiring {
  Media media = Media::image;
  std::uint32_t job_channels = UINT32_MAX;  // of audio: how many a job may have; as in ctxb_port
  // The host's inputs come first, in their order, and each in the order of its frames.
  std::vector<Value> values;
  std::vector<WiredNode> nodes;
  std::vector<Index> order;    // of running: nobody comes before a node for which it waits
  std::vector<Index> outputs;  // the value of each of the host's outputs
};

// `plugins` are those of description.nodes. `frames` has the frames that each needs of each input;
// empty: its own one. Where these are several, the nodes before are there once for each frame, and
// so are the host's inputs. Throws Error (invalid_argument) with the ports' names.
Wiring wire(const GraphDescription& description,
            const std::vector<const PluginDescription*>& plugins, const ActivationSizes& sizes,
            const std::vector<FrameRanges>& frames = {});

// Its first steps: who waits for whom. The values have no formats yet, and are those of `wire` for
// a graph that needs no other frames.
Wiring connect(const GraphDescription& description,
               const std::vector<const PluginDescription*>& plugins);

// Its last step: `once` has each node once and no feeds.
Wiring unroll(Wiring once, const std::vector<FrameRanges>& frames);

// Which values lie in which buffer.
struct BufferPlan {
  struct Buffer {
    Index home = 0;  // of the nodes whose leases share this memory; see below
    std::uint64_t bytes = 0;
  };
  std::vector<Buffer> buffers;
  std::vector<Index> of_value;  // a buffer; `unused` for a value that is not made
  // For each value: the input of its node whose place it takes.
  std::vector<Maybe> in_place_of;
  // For each node and input: where it gets a copy, because the value lies in other memory.
  std::vector<std::vector<Maybe>> copies;
};

// `home[n]` is the first node with whose lease node n's lease shares memory. A buffer serves
// several values when every reader of one has ended before the next one is written.
BufferPlan plan_buffers(const Wiring& wiring, const std::vector<Index>& home,
                        const ActivationSizes& sizes);

}  // namespace ctxbroker::detail
