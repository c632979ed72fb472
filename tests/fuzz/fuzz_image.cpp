// Any bytes as an image: PTX text or an ImageError.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/image.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace image = ctxbroker::image;
  // A wrapper holds a pointer that its caller vouches for; random ones lead nowhere.
  constexpr std::uint32_t wrapper_magic = 0x466243B1;
  std::uint32_t magic = 0;
  if (size >= sizeof magic) std::memcpy(&magic, data, sizeof magic);
  if (magic == wrapper_magic) return 0;
  try {
    image::extract_ptx({reinterpret_cast<const std::byte*>(data), size}, 80);
  } catch (const image::ImageError&) {
    return 0;
  }
  return 0;
}
