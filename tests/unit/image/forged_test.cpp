// SPDX-License-Identifier: Apache-2.0
// Fatbins, wrappers and ELF files made by hand: what headers may claim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <elf.h>
#include <zstd.h>

#include <cstring>
#include <memory>

#include "image/fatbin.hpp"
#include "image/linked.hpp"
#include "image_fixtures.hpp"
#include "limits/limits.hpp"

namespace ctxbroker::image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Offsets of the first entry and of its fields. The fatbin's own header has 16 bytes.
constexpr std::size_t entry_at = 16, header_size_at = entry_at + 4, payload_size_at = entry_at + 8,
                      packed_size_at = entry_at + 16, unpacked_size_at = entry_at + 56;

template <typename Number>
std::string with(std::string_view image, std::size_t offset, Number number) {
  std::string changed(image);
  std::memcpy(changed.data() + offset, &number, sizeof number);
  return changed;
}

void expect_invalid(const std::string& image, const char* message) {
  const auto refusal = refusal_of(image);
  ASSERT_TRUE(refusal.has_value()) << message;
  EXPECT_EQ(refusal->reason, Reason::invalid) << refusal->message;
  EXPECT_THAT(refusal->message, HasSubstr(message));
}

TEST(Forged, ForgedHeaderOfAFatbinIsRefused) {
  const std::string_view good = fixtures::usual_fatbin;
  expect_invalid(with<std::uint16_t>(good, 6, 8), "its header has 8 bytes");
  expect_invalid(with<std::uint64_t>(good, 8, ~std::uint64_t{0}), "the limit image_bytes");
  expect_invalid(with<std::uint64_t>(good, 8, good.size()), "the fatbin is truncated");
  expect_invalid(with<std::uint64_t>(good, 8, 20), "entry 1 at byte 16 has no room");
  expect_invalid(std::string(good.substr(0, 10)), "less than its header");
  EXPECT_THROW(image_size(with<std::uint64_t>(good, 8, ~std::uint64_t{0}).data()), ImageError);
}

TEST(Forged, ForgedHeaderOfAnEntryIsRefused) {
  const std::string_view good = fixtures::usual_fatbin;
  expect_invalid(with<std::uint32_t>(good, header_size_at, 8), "its header has 8 bytes");
  expect_invalid(with<std::uint32_t>(good, header_size_at, 0xFFFFFFFF),
                 "its header has 4294967295");
  expect_invalid(with<std::uint64_t>(good, payload_size_at, 0xFFFFFFFFFFFF),
                 "says it has 281474976710655 bytes where");
  expect_invalid(with<std::uint64_t>(good, payload_size_at, ~std::uint64_t{0}), "are left");
  expect_invalid(with<std::uint32_t>(good, packed_size_at, 0x7FFFFFFF), "packed bytes in");
}

TEST(Forged, UnpackedSizesAreNotBelieved) {
  for (const std::string_view good : {fixtures::usual_fatbin, fixtures::speed_fatbin}) {
    const auto real = [&] {
      std::uint64_t size = 0;
      std::memcpy(&size, good.data() + unpacked_size_at, sizeof size);
      return size;
    }();
    for (const std::uint64_t claim : {real + 1, real - 1, std::uint64_t{0}, std::uint64_t{1} << 27,
                                      std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
      const auto refusal = refusal_of(with(good, unpacked_size_at, claim));
      ASSERT_TRUE(refusal.has_value()) << claim;
      EXPECT_EQ(refusal->reason, Reason::invalid);
      EXPECT_THAT(refusal->message, HasSubstr("entry 1 of the fatbin (PTX for sm_75)"));
    }
  }
}

// A few kilobytes unpack to gigabytes, so the stated size is refused before they are.
TEST(Forged, TextAndMachineCodeOfAFatbinHaveTheirLimitsUnpacked) {
  expect_invalid(with(fixtures::usual_fatbin, unpacked_size_at, limits::ptx_text.most + 1),
                 "the limit ptx_text");
  const std::string code = with<std::uint16_t>(fixtures::usual_fatbin, entry_at, 2);
  try {
    describe(bytes_of(with(code, unpacked_size_at, limits::image_code.most + 1)));
    ADD_FAILURE() << "it was accepted";
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the limit image_code"));
  }
}

// The parts of one image share their limit, so that many small ones make no large one.
TEST(Forged, PartsOfAFatbinHaveALimitTogetherUnpacked) {
  for (const std::string_view image : {fixtures::usual_fatbin, fixtures::unpacked_fatbin}) {
    const FatbinEntry entry = read_fatbin(bytes_of(image)).front();
    Allowances left;
    const std::uint64_t size = unpack(entry, left).size();
    Allowances enough, too_few;
    ASSERT_TRUE(enough.take_unpacked(limits::image_unpacked.most - size));
    EXPECT_EQ(unpack(entry, enough).size(), size) << "a control, at the limit";
    ASSERT_TRUE(too_few.take_unpacked(limits::image_unpacked.most - size + 1));
    try {
      unpack(entry, too_few);
      ADD_FAILURE() << "it was accepted";
    } catch (const ImageError& error) {
      EXPECT_EQ(error.reason(), Reason::invalid);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("entry 1 of the fatbin"),
                                      HasSubstr(limits::beyond(limits::image_unpacked))));
    }
  }
}

// The smallest file that reaches it: each part is PTX of as many bytes as one part may have, and
// takes a few kilobytes.
TEST(Forged, FatbinThatUnpacksToTooMuchIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers take minutes for 1 GiB";
#endif
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n";
  text.resize(limits::ptx_text.most, '\n');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  std::string part(64, '\0');
  part = with<std::uint16_t>(part, 0, 1);  // PTX
  part = with<std::uint32_t>(part, 4, 64);
  part = with<std::uint64_t>(part, 8, packed.size());
  part = with(part, 16, static_cast<std::uint32_t>(packed.size()));
  part = with<std::uint32_t>(part, 28, 75);
  part = with<std::uint64_t>(part, 40, 0x8001);  // of 64 bits, packed by zstd
  part = with<std::uint64_t>(part, 56, text.size()) + packed;
  const auto fatbin_of = [&](std::uint64_t parts) {
    std::string fatbin(fatbin_header_bytes, '\0');
    fatbin.replace(0, fatbin_magic.size(), fatbin_magic);
    fatbin = with<std::uint16_t>(fatbin, 6, fatbin_header_bytes);
    fatbin = with<std::uint64_t>(fatbin, 8, parts * part.size());
    for (std::uint64_t i = 0; i < parts; ++i) fatbin += part;
    return fatbin;
  };
  const std::uint64_t most = limits::image_unpacked.most / text.size();
  EXPECT_EQ(describe(bytes_of(fatbin_of(most))).entries.size(), most) << "a control";
  const std::string bomb = fatbin_of(most + 1);
  EXPECT_LT(bomb.size(), limits::mib);
  try {
    describe(bytes_of(bomb));
    ADD_FAILURE() << "it was accepted";
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("entry " + std::to_string(most + 1)),
                                    HasSubstr("the limit image_unpacked")));
  }
}

TEST(Forged, PackedBytesAreChecked) {
  std::string image(fixtures::usual_fatbin);
  std::uint32_t header_size = 0;
  std::memcpy(&header_size, image.data() + header_size_at, sizeof header_size);
  std::memset(image.data() + entry_at + header_size, 0x55, 64);
  expect_invalid(image, "corrupt");
}

TEST(Forged, PackedTextThatIsNoPtxIsRefused) {
  std::string image(fixtures::unpacked_fatbin);
  const std::size_t target = image.find(".target");
  ASSERT_NE(target, std::string::npos);
  image.replace(target, 7, ".tarGet");
  expect_invalid(image, "no .version and .target");
}

struct Wrapper {
  std::uint32_t magic = 0x466243B1, version = 1;
  const char* data = nullptr;
  const void* other = nullptr;
};

TEST(Wrapper, LeadsToItsFatbin) {
  const Wrapper wrapper{.data = fixtures::usual_fatbin.data()};
  EXPECT_EQ(image_size(&wrapper), sizeof wrapper);
  const std::string_view image(reinterpret_cast<const char*>(&wrapper), sizeof wrapper);
  EXPECT_EQ(extract(image, 75), extract(fixtures::usual_fatbin, 75));
  EXPECT_EQ(refusal_of(image.substr(0, 20))->reason, Reason::invalid);
}

TEST(Wrapper, WrapperOfSomethingElseIsRefused) {
  const std::string other(32, 'x');
  for (const char* data : {static_cast<const char*>(nullptr), other.data()}) {
    const Wrapper wrapper{.data = data};
    const auto refusal = refusal_of({reinterpret_cast<const char*>(&wrapper), sizeof wrapper});
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->reason, Reason::invalid);
  }
}

TEST(Elf, ElfOfAnotherMachineIsRefused) {
  expect_invalid(with<std::uint16_t>(fixtures::cubin, 18, 62), "not one with code for NVIDIA GPUs");
}

TEST(Elf, ElfOfAnOlderAbiNamesItsArchitecture) {
  std::string image = with<std::uint8_t>(fixtures::cubin, 8, 7);
  image = with<std::uint32_t>(image, 48, 0x00560556);
  EXPECT_THAT(refusal_of(image)->message, HasSubstr("sm_86"));
}

TEST(Elf, TruncatedOrAbsurdElfIsRefused) {
  expect_invalid(std::string(fixtures::cubin.substr(0, 40)), "truncated");
  const std::string image = with<std::uint64_t>(fixtures::cubin, 40, ~std::uint64_t{0});
  EXPECT_THROW(image_size(image.data()), ImageError);
}

TEST(Forged, PartsOfAnImageAreLimited) {
  // Entries of 64 bytes that hold nothing.
  const std::size_t count = limits::image_parts.most + 1, entry_bytes = 64;
  std::string fatbin(16 + count * entry_bytes, '\0');
  fatbin.replace(0, fatbin_magic.size(), fatbin_magic);
  fatbin = with<std::uint16_t>(fatbin, 6, 16);
  fatbin = with<std::uint64_t>(fatbin, 8, count * entry_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(entry_bytes);
    std::memcpy(fatbin.data() + 16 + i * entry_bytes + 4, &size, sizeof size);
  }
  expect_invalid(fatbin, "the limit image_parts");

  std::string linked(linked_header_bytes, '\0');
  linked.replace(0, linked_magic.size(), linked_magic);
  linked = with<std::uint64_t>(linked, linked_magic.size(), linked.size());
  linked = with<std::uint64_t>(linked, 16, count);
  try {
    read_linked(bytes_of(linked));
    ADD_FAILURE() << "it was accepted";
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the limit image_parts"));
  }
}

// 400 KB of symbols and a name of 1 MB would take 16 GB.
TEST(Forged, SymbolsThatShareALongNameAreLimited) {
  constexpr std::size_t symbols = 16'384;
  const std::string name = std::string(1 << 20, 'x') + '\0';
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident,
              "\x7f"
              "ELF",
              4);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shoff = sizeof header;
  Elf64_Shdr sections[3] = {};
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = sizeof header + sizeof sections;
  sections[1].sh_size = name.size();
  sections[2].sh_type = SHT_SYMTAB;
  sections[2].sh_link = 1;
  sections[2].sh_offset = sections[1].sh_offset + name.size();
  sections[2].sh_size = symbols * sizeof(Elf64_Sym);
  Elf64_Sym kernel{};
  kernel.st_info = STT_FUNC;
  kernel.st_other = 0x10;
  kernel.st_shndx = 1;
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image.append(reinterpret_cast<const char*>(sections), sizeof sections).append(name);
  for (std::size_t i = 0; i < symbols; ++i) {
    image.append(reinterpret_cast<const char*>(&kernel), sizeof kernel);
  }
  try {
    describe(bytes_of(image));
    ADD_FAILURE() << "it was accepted";
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the limit image_names"));
  }
}

}  // namespace
}  // namespace ctxbroker::image
