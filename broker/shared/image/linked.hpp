// SPDX-License-Identifier: Apache-2.0
// The image that the software device's linker makes: the names and the PTX texts of all its inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// Returns the size that the header states. `header` holds linked_header_bytes. Throws ImageError.
std::uint64_t linked_size(std::span<const std::byte> header);

// Returns the inputs in the order in which they were linked. Throws ImageError.
std::vector<LinkedInput> read_linked(std::span<const std::byte> image);

}  // namespace ctxbroker::image
