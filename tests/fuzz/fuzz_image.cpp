// SPDX-License-Identifier: Apache-2.0
// Any bytes as an image: PTX text or an ImageError, a description or an ImageError.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "image/image.hpp"
#include "image/linked.hpp"

namespace {

// Runs `step`, which may find the image to be none.
template <typename Step>
void attempt(const Step& step) {
  try {
    step();
  } catch (const ctxbroker::image::ImageError&) {
    return;
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace image = ctxbroker::image;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  attempt([&] { image::describe(bytes); });
  attempt([&] { image::read_linked(bytes); });
  // A wrapper holds a pointer that its caller vouches for; random ones lead nowhere.
  constexpr std::uint32_t wrapper_magic = 0x466243B1;
  std::uint32_t magic = 0;
  if (size >= sizeof magic) std::memcpy(&magic, data, sizeof magic);
  if (magic == wrapper_magic) return 0;
  attempt([&] { image::extract_ptx(bytes, 80); });
  return 0;
}
