#include "image/unpack.hpp"

#include <lz4.h>
#include <zstd.h>

#include "image/limits.hpp"

namespace ctxbroker::image {

namespace {

// LZ4 cannot make more of one byte; a larger claim is not worth the memory.
constexpr std::uint64_t largest_lz4_ratio = 255;

[[noreturn]] void fail_corrupt(std::string_view what, const std::string& why) {
  fail(Reason::invalid, std::string(what) + " is corrupt: " + why);
}

std::string unpack_zstd(Bytes packed, std::uint64_t size, std::string_view what) {
  // The frame says its size too: compared before memory is taken on the word of one of them.
  const auto stated = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (stated == ZSTD_CONTENTSIZE_ERROR) fail_corrupt(what, "no zstd data where it should be");
  if (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != size) {
    fail_corrupt(what, "the fatbin says it has " + std::to_string(size) +
                           " bytes unpacked, the zstd data says " + std::to_string(stated));
  }
  std::string text(size, '\0');
  const std::size_t got = ZSTD_decompress(text.data(), size, packed.data(), packed.size());
  if (ZSTD_isError(got) != 0) fail_corrupt(what, std::string("zstd: ") + ZSTD_getErrorName(got));
  text.resize(got);
  return text;
}

std::string unpack_lz4(Bytes packed, std::uint64_t size, std::string_view what) {
  if (size > packed.size() * largest_lz4_ratio) {
    fail_corrupt(what, std::to_string(packed.size()) + " bytes of lz4 data cannot hold " +
                           std::to_string(size));
  }
  std::string text(size, '\0');
  const int got = LZ4_decompress_safe(reinterpret_cast<const char*>(packed.data()), text.data(),
                                      static_cast<int>(packed.size()), static_cast<int>(size));
  if (got < 0) fail_corrupt(what, "the lz4 data cannot be unpacked");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

std::string unpack(Bytes packed, Packing packing, std::uint64_t size, std::string_view what) {
  if (packing == Packing::none) size = packed.size();
  if (size > limits::ptx_bytes || packed.size() > limits::ptx_bytes) {
    fail(Reason::invalid, std::string(what) + " would have " + std::to_string(size) +
                              " bytes unpacked; the most is " + std::to_string(limits::ptx_bytes));
  }
  if (packing == Packing::none) {
    return {reinterpret_cast<const char*>(packed.data()), packed.size()};
  }
  std::string text =
      packing == Packing::zstd ? unpack_zstd(packed, size, what) : unpack_lz4(packed, size, what);
  if (text.size() != size) {
    fail_corrupt(what, "it unpacks to " + std::to_string(text.size()) + " bytes, not to " +
                           std::to_string(size));
  }
  return text;
}

}  // namespace ctxbroker::image
