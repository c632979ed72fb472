// SPDX-License-Identifier: Apache-2.0
// The pictures of a sequence's inputs, of which plug-ins may need several frames at once.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "files/image.hpp"
#include "frames.hpp"
#include "graph_plan.hpp"
#include "options.hpp"
#include "picture_frames.hpp"

namespace ctxbroker::sample_host {

// Any thread may call it.
class FrameStore {
 public:
  // Both are borrowed. Throws Failure (usage).
  FrameStore(const Options& options, const GraphPlan& plan);

  // Reads an input of a frame, or copies what it has read already. OpenEXR files of halves stay
  // halves, see read_image_file. Throws Failure.
  Image read(const Frame& frame, std::size_t input);

  // The number of the frame that stands `distance` frames away: that one, or the last one on the
  // way to it that is there. Outside the range that is to be done, a frame is there if its file is.
  std::int64_t neighbour(const Frame& frame, std::size_t input, int distance) const;
  Image read_number(std::int64_t number, std::size_t input);

  // It keeps everything until it is told that no frame before this one is needed any more, or that
  // each picture is needed once only.
  void forget_before(std::int64_t number);
  void keep_nothing();

 private:
  using Key = std::pair<std::int64_t, std::size_t>;  // the frame's number, and the input
  using Shared = std::shared_ptr<const Image>;

  Image read_file(const std::filesystem::path& path, const std::string& name) const;
  Image read_kept(const Key& key, const std::filesystem::path& path, const std::string& name);
  bool is_there(std::int64_t number, std::size_t input) const;

  const Options& options_;
  std::vector<FrameName> names_;  // of the inputs; empty without --frames
  std::mutex mutex_;
  std::map<Key, std::shared_future<Shared>> kept_;
  bool keeps_ = true;
};

}  // namespace ctxbroker::sample_host
