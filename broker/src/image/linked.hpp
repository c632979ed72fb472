// What the software device's linker hands out: the PTX texts of its inputs, which belong together
// from then on, and their names. Internal to the project.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "image/bytes.hpp"

namespace ctxbroker::image {

constexpr std::string_view linked_magic =
    "\x7F"
    "CTXBLNK";
constexpr std::size_t linked_header_bytes = 24;  // magic, size of all, count of inputs

struct LinkedInput {
  std::string name;
  std::string ptx;
};

std::vector<std::byte> write_linked(const std::vector<LinkedInput>& inputs);

// The size that the header states; `header` holds linked_header_bytes. Throws ImageError.
std::uint64_t linked_size(Bytes header);

// Throws ImageError.
std::vector<LinkedInput> read_linked(Bytes image);

}  // namespace ctxbroker::image
