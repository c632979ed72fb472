// SPDX-License-Identifier: Apache-2.0
// What nvcc made of kernels, and short ways to hand it to the image reader.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "image/image.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view plain_ptx, usual_fatbin, unpacked_fatbin, lines_fatbin, small_fatbin,
    machine_fatbin, link_time_fatbin, specific_fatbin, cubin, speed_fatbin, size_fatbin,
    symbols_ptx, symbols_cubin, specific_cubin, relocatable_cubin;
}

namespace ctxbroker::image {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string extract(std::string_view image, int compute) {
  return extract_ptx(bytes_of(image), compute);
}

struct Refusal {
  Reason reason;
  std::string message;
};

// Nothing when the image is accepted.
inline std::optional<Refusal> refusal_of(std::string_view image, int compute = 75) {
  try {
    extract(image, compute);
  } catch (const ImageError& error) {
    return Refusal{error.reason(), error.what()};
  }
  return std::nullopt;
}

}  // namespace ctxbroker::image
