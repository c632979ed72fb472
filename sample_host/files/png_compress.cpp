// SPDX-License-Identifier: Apache-2.0
#include "files/png_compress.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <span>

namespace ctxbroker::sample_host {

namespace {

using Byte = unsigned char;

// PNG's filters: each subtracts a prediction from the bytes to the left, above, and above that.
struct None {
  static int predict(int, int, int) { return 0; }
};
struct Sub {
  static int predict(int left, int, int) { return left; }
};
struct Up {
  static int predict(int, int above, int) { return above; }
};
struct Average {
  static int predict(int left, int above, int) { return (left + above) / 2; }
};
struct Paeth {
  static int predict(int left, int above, int corner) {
    const int to_left = std::abs(above - corner);
    const int to_above = std::abs(left - corner);
    const int to_corner = std::abs(left + above - 2 * corner);
    const int other = to_above <= to_corner ? above : corner;
    return to_left <= to_above && to_left <= to_corner ? left : other;
  }
};

// `row` and `above` have a pixel of zeros in front of them.
template <typename Filter>
void filter(const Byte* __restrict row, const Byte* __restrict above, std::size_t pixel_bytes,
            std::size_t bytes, Byte* __restrict filtered) {
  const Byte* left = row - pixel_bytes;
  const Byte* corner = above - pixel_bytes;
  for (std::size_t i = 0; i < bytes; ++i) {
    filtered[i] = static_cast<Byte>(row[i] - Filter::predict(left[i], above[i], corner[i]));
  }
}

using FilterFunction = void (*)(const Byte*, const Byte*, std::size_t, std::size_t, Byte*);
// A filter's place is its number in the file.
constexpr std::array<FilterFunction, 5> filters{filter<None>, filter<Sub>, filter<Up>,
                                                filter<Average>, filter<Paeth>};

// Small differences compress well: the sum of their magnitudes is the usual measure.
std::uint64_t cost(std::span<const Byte> filtered) {
  std::uint64_t sum = 0;
  for (const Byte byte : filtered) {
    sum += static_cast<std::uint64_t>(std::abs(static_cast<signed char>(byte)));
  }
  return sum;
}

std::vector<Byte> filter_band(const PngRows& rows, std::size_t first, std::size_t end, int level) {
  const std::size_t bytes = rows.row_bytes;
  const std::size_t front = rows.pixel_bytes;
  std::vector<Byte> row(front + bytes);
  std::vector<Byte> above(front + bytes);
  std::vector<Byte> candidate(bytes);
  std::vector<Byte> result((bytes + 1) * (end - first));
  if (first > 0) rows.make(first - 1, above.data() + front);
  Byte* out = result.data();
  for (std::size_t y = first; y < end; ++y, out += bytes + 1) {
    rows.make(y, row.data() + front);
    const auto apply = [&](std::size_t number, Byte* to) {
      filters[number](row.data() + front, above.data() + front, front, bytes, to);
    };
    out[0] = 0;
    apply(0, out + 1);
    std::uint64_t least = level == 0 ? 0 : cost({out + 1, bytes});
    for (std::size_t number = 1; number < filters.size() && least > 0; ++number) {
      apply(number, candidate.data());
      const std::uint64_t sum = cost(candidate);
      if (sum >= least) continue;
      least = sum;
      out[0] = static_cast<Byte>(number);
      std::copy(candidate.begin(), candidate.end(), out + 1);
    }
    row.swap(above);
  }
  return result;
}

// zlib's state, ended on every path.
struct Deflate {
  z_stream stream = {};

  explicit Deflate(int level) {
    constexpr int no_wrapper = -15;  // bands lie behind each other in one stream
    const int strategy = level == 1 ? Z_RLE : Z_DEFAULT_STRATEGY;
    if (deflateInit2(&stream, level, Z_DEFLATED, no_wrapper, 9, strategy) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  Deflate(const Deflate&) = delete;
  Deflate& operator=(const Deflate&) = delete;
  ~Deflate() { deflateEnd(&stream); }
};

void append_compressed(std::vector<Byte>& filtered, int level, bool last, std::vector<Byte>& data) {
  Deflate deflater(level);
  z_stream& stream = deflater.stream;
  stream.next_in = filtered.data();
  stream.avail_in = static_cast<uInt>(filtered.size());
  const std::size_t piece = filtered.size() / 2 + 1024;
  do {
    const std::size_t used = data.size();
    data.resize(used + piece);
    stream.next_out = data.data() + used;
    stream.avail_out = static_cast<uInt>(piece);
    deflate(&stream, last ? Z_FINISH : Z_SYNC_FLUSH);
    data.resize(data.size() - stream.avail_out);
  } while (stream.avail_out == 0);
}

}  // namespace

std::size_t png_band_rows(const PngRows& rows) {
  constexpr std::size_t band_bytes = std::size_t{512} << 10;
  return std::max<std::size_t>(band_bytes / (rows.row_bytes + 1), 1);
}

PngBand compress_png_band(const PngRows& rows, std::size_t first, int level) {
  const std::size_t end = std::min(first + png_band_rows(rows), rows.count);
  std::vector<Byte> filtered = filter_band(rows, first, end, level);
  PngBand band;
  band.bytes = filtered.size();
  band.adler = static_cast<std::uint32_t>(adler32_z(1, filtered.data(), filtered.size()));
  if (first == 0) band.data = {0x78, 0x01};  // zlib's header: a window of 32 KiB, no dictionary
  append_compressed(filtered, level, end == rows.count, band.data);
  return band;
}

std::vector<unsigned char> png_checksum(std::uint32_t adler) {
  return {static_cast<Byte>(adler >> 24), static_cast<Byte>(adler >> 16),
          static_cast<Byte>(adler >> 8), static_cast<Byte>(adler)};
}

}  // namespace ctxbroker::sample_host
