// SPDX-License-Identifier: Apache-2.0
#include "frame_store.hpp"

#include <filesystem>
#include <string>

#include "files/image_file.hpp"
#include "logging.hpp"

namespace ctxbroker::sample_host {

FrameStore::FrameStore(const Options& options, const GraphPlan& plan)
    : options_(options), keeps_(options.frames.has_value()) {
  if (!options.frames) return;
  for (const PlannedPort& port : plan.inputs) names_.emplace_back(port.file);
}

Image FrameStore::read(const Frame& frame, std::size_t input) {
  return read_kept({frame.position, input}, frame.inputs[input], frame.name);
}

Image FrameStore::read_number(std::int64_t number, std::size_t input) {
  return read_kept({number, input}, names_[input].of(static_cast<std::uint32_t>(number)),
                   "frame " + std::to_string(number) + ": ");
}

Image FrameStore::read_file(const std::filesystem::path& path, const std::string& name) const {
  const auto notice = [&](Severity severity, const std::string& text) {
    log(severity, "image", name + "input file \"" + path.string() + "\": " + text);
  };
  return read_image_file(path, notice, true);
}

// The first who wants it reads it, and the others wait for that.
Image FrameStore::read_kept(const Key& key, const std::filesystem::path& path,
                            const std::string& name) {
  std::promise<Shared> promise;
  std::shared_future<Shared> image;
  bool keeps = false;
  {
    const std::lock_guard lock(mutex_);
    keeps = keeps_;
    if (const auto found = kept_.find(key); found != kept_.end()) {
      image = found->second;
    } else if (keeps) {
      kept_.emplace(key, promise.get_future().share());
    }
  }
  if (image.valid()) return *image.get();
  if (!keeps) return read_file(path, name);
  try {
    const auto made = std::make_shared<const Image>(read_file(path, name));
    promise.set_value(made);
    return *made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

bool FrameStore::is_there(std::int64_t number, std::size_t input) const {
  if (number < 0 || number > UINT32_MAX) return false;
  if (number >= options_.frames->first && number <= options_.frames->last) return true;
  std::error_code error;
  return std::filesystem::exists(names_[input].of(static_cast<std::uint32_t>(number)), error);
}

std::int64_t FrameStore::neighbour(const Frame& frame, std::size_t input, int distance) const {
  const int step = distance < 0 ? 1 : -1;  // back towards the frame
  for (; !names_.empty() && distance != 0; distance += step) {
    if (is_there(frame.position + distance, input)) return frame.position + distance;
  }
  return frame.position;
}

void FrameStore::forget_before(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  kept_.erase(kept_.begin(), kept_.lower_bound({number, 0}));
}

void FrameStore::keep_nothing() {
  const std::lock_guard lock(mutex_);
  keeps_ = false;
  kept_.clear();
}

}  // namespace ctxbroker::sample_host
