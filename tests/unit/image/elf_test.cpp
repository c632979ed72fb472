// SPDX-License-Identifier: Apache-2.0
// The reader of ELF files, with numbers that lead out of the file.
#include "image/elf.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>

namespace ctxbroker::image {
namespace {

constexpr std::uint64_t highest = std::numeric_limits<std::uint64_t>::max();

TEST(ElfReaderTest, MemoryBeyondItsEndIsNotRead) {
  const std::array<char, 8> bytes{'a', 'b', 0, 'c', 'd', 'e', 'f', 'g'};
  const ElfInMemory file(std::as_bytes(std::span(bytes)));
  std::array<char, 16> to{};
  EXPECT_TRUE(file.copy(4, to.data(), 4));
  EXPECT_EQ(std::memcmp(to.data(), "defg", 4), 0);
  EXPECT_TRUE(file.copy(8, to.data(), 0));
  EXPECT_FALSE(file.copy(5, to.data(), 4));
  EXPECT_FALSE(file.copy(9, to.data(), 0));
  EXPECT_FALSE(file.copy(highest, to.data(), 2));
  EXPECT_FALSE(file.part(2, highest).has_value());
  EXPECT_EQ(file.text(0), "ab");
  EXPECT_EQ(file.text(2), "");
  EXPECT_FALSE(file.text(3).has_value());  // no 0 follows
  EXPECT_FALSE(file.text(8).has_value());
  EXPECT_FALSE(file.text(highest).has_value());
  EXPECT_FALSE(file.header().has_value());
}

TEST(ElfReaderTest, TableThatLeadsRoundTheEndOfAllOffsetsHasNoEntries) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, elf_magic.data(), elf_magic.size());
  const std::span<const Elf64_Ehdr> bytes(&header, 1);
  const ElfInMemory file(std::as_bytes(bytes));
  ASSERT_TRUE(file.header().has_value());
  EXPECT_TRUE(file.segment(header, 0).has_value());
  EXPECT_FALSE(file.segment(header, 1).has_value());
  EXPECT_TRUE(file.segment(header, 1000, 0).has_value());
  EXPECT_TRUE(file.section(header, 0).has_value());
  header.e_phoff = highest - sizeof(Elf64_Phdr) + 1;
  header.e_shoff = highest - sizeof(Elf64_Shdr) + 1;
  EXPECT_FALSE(file.segment(header, 1).has_value());
  EXPECT_FALSE(file.section(header, 1).has_value());
}

TEST(ElfReaderTest, FileOnDiskReadsAsInMemory) {
  const ElfOnDisk file("/proc/self/exe");
  ASSERT_TRUE(file.header().has_value());
  EXPECT_EQ(file.size(), std::filesystem::file_size("/proc/self/exe"));
  EXPECT_TRUE(file.segment(*file.header(), 0).has_value());
  char byte = 0;
  EXPECT_TRUE(file.copy(file.size() - 1, &byte, 1));
  EXPECT_FALSE(file.copy(file.size(), &byte, 1));
  EXPECT_FALSE(file.copy(highest, &byte, 1));
}

TEST(ElfReaderTest, NoRegularFileIsAnEmptyOne) {
  for (const char* path : {"/", "/dev/zero", "/no/such/file"}) {
    const ElfOnDisk file(path);
    char byte = 0;
    EXPECT_EQ(file.size(), 0U) << path;
    EXPECT_FALSE(file.copy(0, &byte, 1)) << path;
    EXPECT_FALSE(file.header().has_value()) << path;
  }
}

}  // namespace
}  // namespace ctxbroker::image
