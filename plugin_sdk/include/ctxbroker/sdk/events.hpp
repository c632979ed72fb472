// SPDX-License-Identifier: Apache-2.0
/// @file
/// How parameters change within a block: the host's list, and the same as segments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/segment.hpp"

namespace ctxbroker::sdk {

/// The host's list of changes, in the order of their offsets. It is valid during the call of
/// process.
///
///     for (const ctxb_parameter_event& event : job.events()) ...
class Events {
 public:
  /// Goes forward through the list.
  class Iterator {
   public:
    /// Only the SDK constructs one.
    Iterator(const Events& events, std::uint32_t index) noexcept
        : events_(&events), index_(index) {}
    const ctxb_parameter_event& operator*() const noexcept { return (*events_)[index_]; }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    bool operator!=(const Iterator& other) const noexcept { return index_ != other.index_; }

   private:
    const Events* events_;
    std::uint32_t index_;
  };

  /// Only the SDK constructs one.
  explicit Events(const ctxb_job& job) noexcept : first_(job.events), count_(job.event_count) {}

  /// How many changes there are.
  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  /// Whether nothing changes within the block.
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// A change, by its position in the list.
  [[nodiscard]] const ctxb_parameter_event& operator[](std::uint32_t index) const noexcept {
    // A later version's events may be longer.
    const auto* const bytes = reinterpret_cast<const unsigned char*>(first_);
    return *reinterpret_cast<const ctxb_parameter_event*>(bytes +
                                                          std::size_t{index} * first_->size);
  }
  [[nodiscard]] Iterator begin() const& noexcept { return {*this, 0}; }
  [[nodiscard]] Iterator end() const& noexcept { return {*this, count_}; }
  Iterator begin() const&& = delete;  // The iterators point to the list: keep it in a variable.
  Iterator end() const&& = delete;

 private:
  const ctxb_parameter_event* first_;
  std::uint32_t count_;
};

/// One parameter's values in a block: segments that follow each other from frame 0 to the block's
/// end, without gaps. There is at least one.
///
///     for (const Segment& segment : job.segments(cutoff)) ...
///
/// The iterators point to this object. To go through two parameters at once, keep both in
/// variables:
///
///     const Segments cutoffs = job.segments(cutoff);
///     auto now = cutoffs.begin();
class Segments {
 public:
  /// Goes forward through the segments.
  class Iterator {
   public:
    /// Only the SDK constructs one.
    Iterator(const Segments& all, std::uint32_t first) noexcept : all_(&all) {
      segment_.first = segment_.end = first;
      segment_.from = segment_.to = all.start_;
      if (first < all.frames_) advance();
    }
    const Segment& operator*() const& noexcept { return segment_; }
    Segment operator*() const&& noexcept { return segment_; }
    const Segment* operator->() const noexcept { return &segment_; }
    Iterator& operator++() noexcept {
      advance();
      return *this;
    }
    bool operator!=(const Iterator& other) const noexcept {
      return segment_.first != other.segment_.first;
    }

   private:
    // The event that holds at the next segment's first frame, if there is a new one; and where the
    // one after it begins.
    void advance() noexcept {
      const std::uint32_t first = segment_.end, frames = all_->frames_;
      const ctxb_parameter_event* now = nullptr;
      std::uint32_t next = frames;
      for (; index_ < all_->events_.size(); ++index_) {
        const ctxb_parameter_event& event = all_->events_[index_];
        if (event.parameter != all_->parameter_) continue;
        if (event.offset > first) {
          next = event.offset;
          break;
        }
        now = &event;
      }
      segment_.first = first;
      if (now != nullptr && now->ramp_end > static_cast<std::int64_t>(first)) {
        segment_.from = now->from;
        segment_.to = now->value;
        segment_.ramp_begin = now->ramp_begin;
        segment_.ramp_end = now->ramp_end;
      } else {
        if (now != nullptr) segment_.to = now->value;
        segment_.from = segment_.to;  // also after a ramp that has reached its end
        segment_.ramp_begin = first;
        segment_.ramp_end = frames;
      }
      // At least one frame, whatever the host says. At the block's end this is Segments::end.
      const bool ends_here = segment_.ramp_end < static_cast<std::int64_t>(next);
      segment_.end = ends_here ? static_cast<std::uint32_t>(segment_.ramp_end) : next;
      if (segment_.end > frames) segment_.end = frames;
      if (!is_constant()) return;
      segment_.ramp_end = segment_.end;
    }
    [[nodiscard]] bool is_constant() const noexcept { return !(segment_.from != segment_.to); }

    const Segments* all_;
    std::uint32_t index_ = 0;
    Segment segment_{};
  };

  /// Only the SDK constructs one.
  ///
  /// @param start   the parameter's value at frame 0.
  /// @param frames  the block's, at least 1.
  Segments(const ctxb_job& job, std::uint32_t parameter, double start,
           std::uint32_t frames) noexcept
      : events_(job), parameter_(parameter), start_(start), frames_(frames) {}

  [[nodiscard]] Iterator begin() const& noexcept { return {*this, 0}; }
  [[nodiscard]] Iterator end() const& noexcept { return {*this, frames_}; }
  Iterator begin() const&& = delete;  // Keep the segments in a variable.
  Iterator end() const&& = delete;

 private:
  Events events_;
  std::uint32_t parameter_;
  double start_;
  std::uint32_t frames_;
};

}  // namespace ctxbroker::sdk
