// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses, and the blocks that they are cut into.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace ctxbroker::detail {

// Knows which addresses are taken. It keeps nothing at these addresses, so code that writes beyond
// its block cannot damage it. A block lies within one segment, and begins at a multiple of 512
// bytes. One thread at a time.
//
// Small blocks are cut from segments that they share. A large block has a segment of its own, which
// the next block of about that size gets when it is free. A large block is cut from a shared
// segment if there is room for it.
class Segments {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::uint64_t shared_bytes = std::uint64_t{2} << 20;
  static constexpr std::uint64_t largest_small = std::uint64_t{1} << 20;  // bytes of a block

  Segments();
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // Returns the size of the segment that has to be added for the block, a multiple of `unit`. 0:
  // the block is too large for any segment.
  static std::uint64_t bytes_for(std::uint64_t block, std::uint64_t unit) noexcept;

  // Takes a block out of the free ranges. Returns its address, or nothing if no range fits. Throws
  // std::bad_alloc.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // Adds a segment of the size that `bytes_for` returned, and takes the block from it. Throws
  // std::bad_alloc; then there is no such segment.
  std::uint64_t add(Range segment, std::uint64_t bytes);
  // Adds a free segment that all blocks share, and that `take_unused` leaves where it is.
  // Throws std::bad_alloc.
  void add_lasting(Range segment);
  // Makes a block free. Returns false if no block begins there. Throws std::bad_alloc; then the
  // block stays taken.
  bool give(std::uint64_t address);

  // Takes all segments out in which nothing is taken, except for lasting ones. Throws
  // std::bad_alloc; then all stay.
  std::vector<Range> take_unused();
  // Takes all segments out.
  std::vector<Range> take_all();
  bool has_unused() const noexcept;
  std::uint64_t free_bytes() const noexcept;

 private:
  struct Segment;
  template <typename Chosen>
  std::vector<Range> take_out(Chosen&& is_chosen);

  std::map<std::uint64_t, std::unique_ptr<Segment>> all_;  // by the first address
};

}  // namespace ctxbroker::detail
