// SPDX-License-Identifier: Apache-2.0
#include "image/elf.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>

namespace ctxbroker::image {
namespace {

// Returns where an entry of a table stands, unless the numbers lead round the end of all offsets.
std::optional<std::uint64_t> entry_at(std::uint64_t table, std::uint32_t index,
                                      std::uint16_t stride) noexcept {
  const std::uint64_t distance = std::uint64_t{index} * stride;
  if (table > std::numeric_limits<std::uint64_t>::max() - distance) return std::nullopt;
  return table + distance;
}

}  // namespace

std::optional<Elf64_Ehdr> ElfReader::header() const noexcept {
  auto header = read<Elf64_Ehdr>(0);
  if (header && std::memcmp(header->e_ident, elf_magic.data(), elf_magic.size()) != 0) {
    header.reset();
  }
  return header;
}

std::optional<Elf64_Phdr> ElfReader::segment(const Elf64_Ehdr& header, std::uint32_t index,
                                             std::uint16_t stride) const noexcept {
  const auto at = entry_at(header.e_phoff, index, stride);
  return at ? read<Elf64_Phdr>(*at) : std::nullopt;
}

std::optional<Elf64_Shdr> ElfReader::section(const Elf64_Ehdr& header,
                                             std::uint32_t index) const noexcept {
  const auto at = entry_at(header.e_shoff, index, sizeof(Elf64_Shdr));
  return at ? read<Elf64_Shdr>(*at) : std::nullopt;
}

bool ElfInMemory::copy(std::uint64_t offset, void* to, std::size_t bytes) const noexcept {
  const auto from = part(offset, bytes);
  if (!from) return false;
  if (bytes > 0) std::memcpy(to, from->data(), bytes);
  return true;
}

std::optional<std::span<const std::byte>> ElfInMemory::part(std::uint64_t offset,
                                                            std::uint64_t bytes) const noexcept {
  if (offset > file_.size() || bytes > file_.size() - offset) return std::nullopt;
  return file_.subspan(offset, bytes);
}

std::optional<std::string_view> ElfInMemory::text(std::uint64_t offset) const noexcept {
  if (offset >= file_.size()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(file_.data()) + offset;
  const void* end = std::memchr(begin, 0, file_.size() - offset);
  if (end == nullptr) return std::nullopt;
  return std::string_view(begin, static_cast<std::size_t>(static_cast<const char*>(end) - begin));
}

ElfOnDisk::ElfOnDisk(const std::filesystem::path& file) noexcept
    : file_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_ < 0) return;
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(file_);
  file_ = -1;
}

ElfOnDisk::~ElfOnDisk() {
  if (file_ >= 0) ::close(file_);
}

bool ElfOnDisk::copy(std::uint64_t offset, void* to, std::size_t bytes) const noexcept {
  return file_ >= 0 && offset <= INT64_MAX &&
         ::pread(file_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

}  // namespace ctxbroker::image
