// The largest images that are believed. Internal to image/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxbroker::image::limits {

constexpr std::uint64_t image_bytes = std::uint64_t{2} << 30;
constexpr std::uint64_t ptx_bytes = std::uint64_t{256} << 20;     // unpacked
constexpr std::uint64_t unpacked_bytes = std::uint64_t{1} << 30;  // all entries of one image

}  // namespace ctxbroker::image::limits
