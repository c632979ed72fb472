// SPDX-License-Identifier: Apache-2.0
#include "files/audio_completeness.hpp"
#include "files/start.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <vector>

namespace ctxbroker::sample_host {

namespace {

std::uint64_t number(const unsigned char* bytes, int count, bool big_endian) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value = value << 8 | bytes[big_endian ? i : count - 1 - i];
  }
  return value;
}

std::string missing(std::string_view chunk, std::uint64_t said, std::uint64_t there) {
  return "its \"" + std::string(chunk) + "\" chunk should have " + std::to_string(said) +
         " bytes and has " + std::to_string(there);
}

// Sizes that programs write when they stream and cannot go back: 0, 0x7FFFF000 and above.
bool is_placeholder(std::uint64_t size) {
  return size == 0 || size >= 0x7FFFF000;
}

// Chunks of RIFF and FORM files: 4 bytes of name, 4 of size, padded to even lengths.
std::optional<std::string> check_chunks(std::istream& file, std::uint64_t file_size,
                                        bool big_endian) {
  std::uint64_t data_size_64 = 0;  // RF64 keeps the size of its data in a chunk of its own
  std::uint64_t position = 12;
  while (position + 8 <= file_size) {
    std::array<unsigned char, 8> head{};
    file.seekg(static_cast<std::streamoff>(position));
    if (!file.read(reinterpret_cast<char*>(head.data()), head.size())) return std::nullopt;
    const std::string_view name(reinterpret_cast<const char*>(head.data()), 4);
    std::uint64_t size = number(head.data() + 4, 4, big_endian);
    const std::uint64_t there = file_size - position - 8;
    if (name == "ds64" && there >= 16) {
      std::array<unsigned char, 16> sizes{};
      if (!file.read(reinterpret_cast<char*>(sizes.data()), sizes.size())) return std::nullopt;
      data_size_64 = number(sizes.data() + 8, 8, false);
    }
    if (name == "data") {
      if (size == 0xFFFFFFFF && data_size_64 != 0) {
        size = data_size_64;
      } else if (is_placeholder(size) && size != there) {
        return std::nullopt;
      }
    }
    if (size > there) return missing(name, size, there);
    // What follows the sound may be anything (tags that are no chunks), and the sound is complete.
    if (name == "data" || name == "SSND") return std::nullopt;
    position += 8 + size + (size & 1);
  }
  return std::nullopt;
}

// The last page of an Ogg stream carries a flag that says so, and is there to its end.
std::optional<std::string> check_last_page(std::istream& file, std::uint64_t file_size) {
  constexpr std::uint64_t largest_page = 27 + 255 + 255 * 255;
  const std::uint64_t length = std::min(file_size, 2 * largest_page);
  std::vector<char> tail(length);
  file.seekg(static_cast<std::streamoff>(file_size - length));
  if (!file.read(tail.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  const std::string_view text(tail.data(), tail.size());
  const std::size_t page = text.rfind("OggS");
  if (page == std::string_view::npos || page + 27 > text.size()) return "its last page is cut";
  const auto* head = reinterpret_cast<const unsigned char*>(text.data() + page);
  const std::size_t segments = head[26];
  std::size_t size = 27 + segments;
  if (page + size > text.size()) return "its last page is cut";
  for (std::size_t i = 0; i < segments; ++i) size += head[27 + i];
  if (page + size > text.size()) return "its last page is cut";
  constexpr unsigned end_of_stream = 4;
  if ((head[5] & end_of_stream) == 0) return "its last page is missing";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_truncation(const std::filesystem::path& path) {
  std::ifstream file(from_start(path), std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(file.tellg());
  std::array<char, 12> head{};
  file.seekg(0);
  if (!file.read(head.data(), head.size())) return std::nullopt;
  const std::string_view magic(head.data(), 4);
  const std::string_view kind(head.data() + 8, 4);
  if ((magic == "RIFF" || magic == "RF64") && kind == "WAVE") {
    return check_chunks(file, size, false);
  }
  if (magic == "RIFX" && kind == "WAVE") return check_chunks(file, size, true);
  if (magic == "FORM") return check_chunks(file, size, true);
  if (magic == "OggS") return check_last_page(file, size);
  return std::nullopt;
}

}  // namespace ctxbroker::sample_host
