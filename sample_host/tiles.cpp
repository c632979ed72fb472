// SPDX-License-Identifier: Apache-2.0
#include "tiles.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ctxbroker::sample_host {

namespace {

// From the top left, row by row. Those at the right and at the bottom may be smaller.
std::vector<ImageRegion> tiles_of(const JobInfo& job, const Size& tile) {
  std::vector<ImageRegion> tiles;
  for (std::uint32_t y = 0; y < job.height; y += tile.height) {
    for (std::uint32_t x = 0; x < job.width; x += tile.width) {
      tiles.push_back({static_cast<std::int32_t>(x), static_cast<std::int32_t>(y),
                       std::min(tile.width, job.width - x), std::min(tile.height, job.height - y)});
    }
  }
  return tiles;
}

// Copies the rows of a part between a whole image and memory without gaps. Calls
// copy(whole, part, bytes) for each row.
template <typename Whole, typename Part, typename Copy>
void for_each_row(Whole* whole, Part* part, const ImageRegion& region, std::uint32_t width,
                  std::size_t pixel, const Copy& copy) {
  const std::size_t row = region.width * pixel;
  for (std::size_t y = 0; y < region.height; ++y) {
    const std::size_t first =
        (static_cast<std::size_t>(region.y) + y) * width + static_cast<std::size_t>(region.x);
    copy(whole + first * pixel, part + y * row, row);
  }
}

// Jobs in flight write to memory of whoever submitted them, also when an exception ends that.
class Finisher {
 public:
  explicit Finisher(Engine& engine) : engine_(engine) {}
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;
  ~Finisher() {
    try {
      if (last_ != 0) engine_.finish(last_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): another exception is on its way
    }
  }

  void submit(const JobBuffers& buffers, const JobInfo& job) {
    last_ = engine_.submit(buffers, job, {});
  }
  void finish() { engine_.finish(std::exchange(last_, 0)); }

 private:
  Engine& engine_;
  std::uint64_t last_ = 0;
};

}  // namespace

Size largest_part(Engine& engine, const JobInfo& job, const Size& tile) {
  Size largest{std::min(tile.width, job.width), std::min(tile.height, job.height)};
  JobInfo part = job;
  for (const ImageRegion& region : tiles_of(job, tile)) {
    part.region = region;
    for (const ImageRegion& needed : engine.input_regions(part)) {
      largest.width = std::max(largest.width, needed.width);
      largest.height = std::max(largest.height, needed.height);
    }
  }
  return largest;
}

void render_tiles(Engine& engine, const JobBuffers& whole, const JobInfo& job, const Size& tile,
                  const PixelBytes& bytes) {
  const std::vector<ImageRegion> tiles = tiles_of(job, tile);
  // No output is written before all inputs are read, because they may be the same memory.
  std::vector<std::vector<std::vector<char>>> results;
  std::vector<std::vector<char>> parts(whole.inputs.size());
  JobInfo part = job;
  Finisher jobs(engine);
  for (const ImageRegion& region : tiles) {
    part.region = region;
    const std::vector<ImageRegion> needed = engine.input_regions(part);
    JobBuffers buffers;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const std::size_t pixel = bytes.inputs[engine.job_inputs()[i].input];
      // A port that needs nothing of an image gets a pointer all the same.
      parts[i].resize(std::max<std::size_t>(1, needed[i].width * pixel * needed[i].height));
      for_each_row(static_cast<const char*>(whole.inputs[i]), parts[i].data(), needed[i], job.width,
                   pixel,
                   [](const char* from, char* to, std::size_t row) { std::memcpy(to, from, row); });
      buffers.inputs.push_back(parts[i].data());
    }
    results.emplace_back();
    for (const std::size_t pixel : bytes.outputs) {
      results.back().emplace_back(region.width * pixel * region.height);
      buffers.outputs.push_back(results.back().back().data());
    }
    jobs.submit(buffers, part);
  }
  jobs.finish();
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    for (std::size_t i = 0; i < bytes.outputs.size(); ++i) {
      for_each_row(static_cast<char*>(whole.outputs[i]), results[t][i].data(), tiles[t], job.width,
                   bytes.outputs[i],
                   [](char* to, const char* from, std::size_t row) { std::memcpy(to, from, row); });
    }
  }
}

}  // namespace ctxbroker::sample_host
