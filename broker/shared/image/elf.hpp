// SPDX-License-Identifier: Apache-2.0
// Reads 64-bit ELF files: the one reader of them. Safe for any bytes, because nothing is read that
// does not lie inside of the file, whatever the file's own numbers say.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace ctxbroker::image {

constexpr std::string_view elf_magic =
    "\x7F"
    "ELF";
constexpr std::size_t elf_header_bytes = sizeof(Elf64_Ehdr);

// Answers nothing for what does not lie in the file as a whole. The caller says what that means,
// and looks at class, machine and counts in the header.
class ElfReader {
 public:
  ElfReader() = default;
  ElfReader(const ElfReader&) = delete;
  ElfReader& operator=(const ElfReader&) = delete;
  virtual ~ElfReader() = default;

  // Copies bytes of the file; false when not all of them are there.
  virtual bool copy(std::uint64_t offset, void* to, std::size_t bytes) const noexcept = 0;

  template <typename Struct>
  std::optional<Struct> read(std::uint64_t offset) const noexcept {
    static_assert(std::is_trivially_copyable_v<Struct>);
    Struct made{};
    return copy(offset, &made, sizeof made) ? std::optional(made) : std::nullopt;
  }

  // Nothing also for a file that does not begin as an ELF file.
  std::optional<Elf64_Ehdr> header() const noexcept;
  // The index may be above the header's count. `stride` is for who goes by e_phentsize.
  std::optional<Elf64_Phdr> segment(const Elf64_Ehdr& header, std::uint32_t index,
                                    std::uint16_t stride = sizeof(Elf64_Phdr)) const noexcept;
  std::optional<Elf64_Shdr> section(const Elf64_Ehdr& header, std::uint32_t index) const noexcept;
};

// A file's bytes in memory, which outlive the reader.
class ElfInMemory final : public ElfReader {
 public:
  explicit ElfInMemory(std::span<const std::byte> file) noexcept : file_(file) {}

  bool copy(std::uint64_t offset, void* to, std::size_t bytes) const noexcept override;
  std::optional<std::span<const std::byte>> part(std::uint64_t offset,
                                                 std::uint64_t bytes) const noexcept;
  // The text up to its terminating 0.
  std::optional<std::string_view> text(std::uint64_t offset) const noexcept;

 private:
  std::span<const std::byte> file_;
};

// A file of which only what is asked for is read. Holds nothing when it cannot be opened or is no
// regular file: a pipe may have taken its place, and nobody waits for that.
class ElfOnDisk final : public ElfReader {
 public:
  explicit ElfOnDisk(const std::filesystem::path& file) noexcept;
  ~ElfOnDisk() override;

  bool copy(std::uint64_t offset, void* to, std::size_t bytes) const noexcept override;
  std::uint64_t size() const noexcept { return size_; }

 private:
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace ctxbroker::image
