// SPDX-License-Identifier: Apache-2.0
// Which part of each picture a job needs, and how it lies in its buffer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"
#include "graph/rectangle.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

// A part of a picture in a buffer.
struct Layout {
  std::uint64_t offset = 0;  // bytes from the buffer's beginning to the first pixel
  std::uint64_t pitch = 0;   // bytes from one row to the next
  Rectangle region{};        // empty: the job has no use for it
};
Layout part_of(const Layout& whole, const Format& format, const Rectangle& region) noexcept;
// From the first pixel to behind the last one.
std::uint64_t bytes_of(const Layout& layout, const Format& format) noexcept;

// What a plug-in is told with a question.
struct PortExtents {
  const std::vector<Rectangle>* extents = nullptr;  // of its inputs; empty ones are not connected
  std::int64_t position = 0;                        // the frame
};

// Asks the plug-ins of a wiring's nodes. Throws Error.
class RegionAnswers {
 public:
  virtual ~RegionAnswers() = default;
  // `extent` has an answer that suits most plug-ins; so has `needed`.
  virtual void get_extent(Index node, const PortExtents& inputs, Index output,
                          Rectangle& extent) = 0;
  virtual void get_region(Index node, const PortExtents& inputs, Index output,
                          const Rectangle& wanted, Index input, Rectangle& needed) = 0;
  // The Error for an answer that cannot be.
  virtual Error breach(Index node, const char* function, const std::string& why) = 0;
};

// Of one job. It is kept from job to job, so that a later one allocates nothing.
struct JobRegions {
  std::vector<Rectangle> extents;             // of each value: the whole picture
  std::vector<Layout> values;                 // of each value: what is made of it
  std::vector<std::vector<Rectangle>> feeds;  // of each node and feed: the part that it reads
  Rectangle wanted{};                         // what the host gets of each image
  std::vector<Rectangle> ports;               // for questions
};

// Both are for images. Throws Error: invalid_argument, plugin_failed.
void find_extents(const Wiring& wiring, const JobInfo& job, RegionAnswers& answers,
                  JobRegions& regions);
// Also finds the extents.
void find_regions(const Wiring& wiring, const JobInfo& job, RegionAnswers& answers,
                  JobRegions& regions);
// Throws Error (invalid_argument) if a region is larger than `sizes`.
void check_regions(const Wiring& wiring, const JobRegions& regions, const ActivationSizes& sizes);
// Says how the values lie in their buffers.
void lay_out(const Wiring& wiring, const BufferPlan& plan, JobRegions& regions) noexcept;

}  // namespace ctxbroker::detail
