// SPDX-License-Identifier: Apache-2.0
#include "frames.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "exit_code.hpp"

namespace ctxbroker::sample_host {

namespace {

std::optional<std::uint32_t> parse_number(std::string_view text) {
  constexpr std::uint32_t largest = 999'999'999;
  std::uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end || number > largest) return std::nullopt;
  return number;
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

std::optional<FrameRange> parse_frame_range(std::string_view text) {
  constexpr std::uint32_t most_frames = 1'000'000;
  const std::size_t dash = text.find('-');
  const std::optional<std::uint32_t> first = parse_number(text.substr(0, dash));
  const std::optional<std::uint32_t> last =
      dash == std::string_view::npos ? first : parse_number(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last - *first >= most_frames) return std::nullopt;
  return FrameRange{*first, *last};
}

FrameName::FrameName(const std::filesystem::path& pattern) {
  const std::string text = pattern.string();
  const std::size_t start = std::min(text.find('%'), text.size());
  const auto at = [&](std::size_t place) { return place < text.size() ? text[place] : '\0'; };
  std::size_t end = start + 1;
  if (at(end) == '0' && is_digit(at(end + 1)) && at(end + 1) != '0') {
    digits_ = static_cast<std::size_t>(at(end + 1) - '0');
    end += 2;
  }
  if (at(end) != 'd' || text.find('%', end) != std::string::npos) {
    throw Failure(ExitCode::usage, "\"" + text +
                                       "\": with --frames, a name has one place for the frame's "
                                       "number, such as %d or %04d, and no other %");
  }
  before_ = text.substr(0, start);
  after_ = text.substr(end + 1);
}

std::filesystem::path FrameName::of(std::uint32_t frame) const {
  std::string number = std::to_string(frame);
  if (number.size() < digits_) number.insert(0, digits_ - number.size(), '0');
  return before_ + number + after_;
}

bool is_frame_name(const std::filesystem::path& pattern) {
  try {
    const FrameName name(pattern);
    return true;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace ctxbroker::sample_host
