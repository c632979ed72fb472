// The largest images that are believed. Internal to image/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxbroker::software::image::limits {

constexpr std::uint64_t image_bytes = std::uint64_t{2} << 30;
constexpr std::uint64_t ptx_bytes = std::uint64_t{256} << 20;  // unpacked

}  // namespace ctxbroker::software::image::limits
