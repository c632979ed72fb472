// SPDX-License-Identifier: Apache-2.0
// Image sequences: numbered files that go through the graph one after the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ctxbroker::sample_host {

// Both ends belong to it.
struct FrameRange {
  std::uint32_t first = 0, last = 0;

  friend bool operator==(const FrameRange&, const FrameRange&) = default;
};

// "A-B" with A not above B, or one number: at most 1,000,000 frames, none above 999,999,999.
// Nothing if it is something else.
std::optional<FrameRange> parse_frame_range(std::string_view text);

// A name with a place for the frame's number: %d, or %04d for at least four digits.
class FrameName {
 public:
  // Throws Failure (usage) that quotes the name, unless it has exactly one such place (of 1 to 9
  // digits) and no other %.
  explicit FrameName(const std::filesystem::path& pattern);

  std::filesystem::path of(std::uint32_t frame) const;

 private:
  std::string before_, after_;
  std::size_t digits_ = 0;  // at least
};

// Whether FrameName takes it.
bool is_frame_name(const std::filesystem::path& pattern);

}  // namespace ctxbroker::sample_host
