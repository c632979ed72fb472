// SPDX-License-Identifier: Apache-2.0
// What an image holds, read without loading it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "image/linked.hpp"
#include "image/ptx_text.hpp"
#include "image_fixtures.hpp"

namespace ctxbroker::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

KernelImage described(std::string_view image) {
  return describe(bytes_of(image));
}

// "ptx 75 zstd", one for each entry.
std::vector<std::string> entries_of(std::string_view image) {
  static constexpr const char* kinds[] = {"ptx", "machine", "link-time", "unknown"};
  constexpr const char* packings[] = {"none", "lz4", "zstd"};
  std::vector<std::string> list;
  for (const ImageEntry& entry : described(image).entries) {
    list.push_back(std::string(kinds[static_cast<int>(entry.kind)]) + " " +
                   to_string(Target{entry.compute_capability, entry.variant}) + " " +
                   packings[static_cast<int>(entry.compression)]);
  }
  return list;
}

// "counter: 4, table: 16 constant"
std::vector<std::string> variables_of(const ImageEntry& entry) {
  std::vector<std::string> list;
  for (const ImageVariable& variable : entry.variables) {
    list.push_back(variable.name + ": " + std::to_string(variable.bytes) +
                   (variable.is_constant ? " constant" : ""));
  }
  return list;
}

void expect_symbols(const ImageEntry& entry) {
  EXPECT_THAT(entry.kernels, UnorderedElementsAre("first", "_Z8constantILi3EEvPi"));
  EXPECT_THAT(variables_of(entry),
              UnorderedElementsAre("counter: 4", "table: 16 constant", "points: 80"));
  EXPECT_TRUE(entry.is_64_bit);
}

std::string refusal_to_describe(std::string_view image) {
  try {
    described(image);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Describe, PtxIsDescribed) {
  const KernelImage image = described(fixtures::symbols_ptx);
  EXPECT_EQ(image.kind, ImageKind::ptx);
  EXPECT_EQ(image.bytes, fixtures::symbols_ptx.size());
  ASSERT_EQ(image.entries.size(), 1U);
  const ImageEntry& entry = image.entries[0];
  EXPECT_EQ(entry.kind, CodeKind::ptx);
  EXPECT_EQ(entry.compute_capability, 90);
  EXPECT_EQ(entry.variant, 'a');
  EXPECT_THAT(std::string(fixtures::symbols_ptx), HasSubstr(".version " + entry.ptx_version));
  expect_symbols(entry);
}

TEST(Describe, CubinIsDescribed) {
  const KernelImage image = described(fixtures::symbols_cubin);
  EXPECT_EQ(image.kind, ImageKind::cubin);
  EXPECT_EQ(image.bytes, fixtures::symbols_cubin.size());
  ASSERT_EQ(image.entries.size(), 1U);
  const ImageEntry& entry = image.entries[0];
  EXPECT_EQ(entry.kind, CodeKind::machine_code);
  EXPECT_EQ(entry.compute_capability, 80);
  EXPECT_EQ(entry.variant, '\0');
  EXPECT_FALSE(entry.is_relocatable);
  expect_symbols(entry);
}

TEST(Describe, CubinToBeLinkedIsDescribed) {
  const ImageEntry entry = described(fixtures::relocatable_cubin).entries.at(0);
  EXPECT_TRUE(entry.is_relocatable);
  expect_symbols(entry);
}

TEST(Describe, CubinForOneArchitectureAloneIsDescribed) {
  const ImageEntry entry = described(fixtures::specific_cubin).entries.at(0);
  EXPECT_EQ(entry.compute_capability, 90);
  // Only the newer compilers write it down.
  if (fixtures::specific_cubin.find(".nv.compat") == std::string_view::npos) GTEST_SKIP();
  EXPECT_EQ(entry.variant, 'a');
}

TEST(Describe, CubinOfAnOlderAbiIsDescribed) {
  std::string image(fixtures::symbols_cubin);
  image[8] = 7;
  const std::uint32_t flags = 0x00560556;
  std::memcpy(image.data() + 48, &flags, sizeof flags);
  const ImageEntry entry = described(image).entries.at(0);
  EXPECT_EQ(entry.compute_capability, 86);
  EXPECT_TRUE(entry.is_64_bit);
}

TEST(Describe, FatbinsOfEveryPackingAreDescribed) {
  const std::pair<std::string_view, std::string> packings[] = {{fixtures::unpacked_fatbin, "none"},
                                                               {fixtures::usual_fatbin, "zstd"}};
  for (const auto& [fatbin, packing] : packings) {
    EXPECT_THAT(entries_of(fatbin),
                UnorderedElementsAre(HasSubstr("ptx sm_75 " + packing), HasSubstr("machine sm_75 "),
                                     HasSubstr("ptx sm_90 " + packing)));
  }
  if (fixtures::speed_fatbin == fixtures::usual_fatbin) GTEST_SKIP() << "this nvcc has one packing";
  EXPECT_THAT(entries_of(fixtures::speed_fatbin), ::testing::Contains("ptx sm_75 lz4"));
}

TEST(Describe, EntriesOfAFatbinAreReadToo) {
  const KernelImage packed = described(fixtures::usual_fatbin);
  const KernelImage plain = described(fixtures::unpacked_fatbin);
  const ImageEntry text = described(fixtures::plain_ptx).entries.at(0);
  EXPECT_EQ(packed.kind, ImageKind::fatbin);
  EXPECT_EQ(packed.bytes, fixtures::usual_fatbin.size());
  ASSERT_FALSE(text.kernels.empty());
  for (const KernelImage* image : {&packed, &plain}) {
    for (const ImageEntry& entry : image->entries) {
      EXPECT_THAT(entry.kernels, ::testing::UnorderedElementsAreArray(text.kernels));
      EXPECT_GE(entry.unpacked_bytes, entry.bytes);
      EXPECT_TRUE(entry.is_64_bit);
    }
  }
  EXPECT_GT(packed.entries.back().unpacked_bytes, packed.entries.back().bytes);
}

TEST(Describe, FatbinTellsKindAndNameOfItsEntries) {
  EXPECT_THAT(entries_of(fixtures::specific_fatbin),
              UnorderedElementsAre(HasSubstr("ptx sm_75"), HasSubstr("ptx sm_90a")));
  EXPECT_THAT(entries_of(fixtures::link_time_fatbin), ElementsAre(HasSubstr("link-time sm_75")));
  EXPECT_THAT(described(fixtures::lines_fatbin).entries.at(0).name,
              ::testing::EndsWith("language.cu"));
}

TEST(Describe, BytesBehindAnImageAreNotRead) {
  for (const std::string_view image : {fixtures::usual_fatbin, fixtures::symbols_cubin}) {
    EXPECT_EQ(described(std::string(image) + "more").bytes, image.size());
  }
  EXPECT_EQ(described(std::string(fixtures::plain_ptx) + std::string("\0more", 5)).bytes,
            fixtures::plain_ptx.size());
}

TEST(Describe, LinkedImagesAreDescribed) {
  const std::vector<std::byte> bytes = write_linked(
      {{"a.ptx", std::string(fixtures::symbols_ptx)},
       {"b.ptx", ".version 8.0\n.target sm_70\n.address_size 64\n.entry k() { ret; }"}});
  const std::string_view image(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(image_size(image.data()), image.size());
  const KernelImage linked = described(image);
  EXPECT_EQ(linked.kind, ImageKind::linked);
  ASSERT_EQ(linked.entries.size(), 2U);
  EXPECT_EQ(linked.entries[0].name, "a.ptx");
  EXPECT_THAT(linked.entries[1].kernels, ElementsAre("k"));
  for (std::size_t size = 0; size < image.size(); size += 7) {
    EXPECT_NE(refusal_to_describe(image.substr(0, size)), "accepted") << size;
  }
}

TEST(Describe, PtxOfOddShapeIsDescribed) {
  const ImageEntry entry = described(R"(// .entry comment
/* .version 1.0 */
.version   8.3 .target sm_90a , texmode_independent
.address_size /* so */ 64
.extern .func (.param .b32 r) other (.param .b32 x);
.extern .global .align 4 .u32 elsewhere;
.extern .shared .align 16 .b8 dynamic[];
.visible .global .align 8 .v2 .f32 pair[2][0x3] = {{1, 2}, {3}};
.const .attribute(.managed) .align 4 .u32 a, b[2] = { 7, 8 } , c;
.global .b8 open[] = "text;{";
.weak .entry forward(.param .u64 p);
.weak .entry forward(.param .u64 p) .maxntid 32 { { .reg .b32 %r<2>; } /* } */ ret; }
.visible .entry $odd_name.1() { .shared .b8 kept[4]; ret; }
.func helper() { ret; })")
                               .entries.at(0);
  EXPECT_EQ(entry.ptx_version, "8.3");
  EXPECT_EQ(entry.compute_capability, 90);
  EXPECT_EQ(entry.variant, 'a');
  EXPECT_TRUE(entry.is_64_bit);
  EXPECT_THAT(entry.kernels, ElementsAre("forward", "$odd_name.1"));
  EXPECT_THAT(variables_of(entry), ElementsAre("pair: 48", "a: 4 constant", "b: 8 constant",
                                               "c: 4 constant", "open: 0"));
}

TEST(Describe, PtxThatNeverEndsIsDescribed) {
  for (const char* rest : {"{", ".global", ".global .u32 a", ".global .u32 a[", ".entry", "\"",
                           "/*", ".global .u32 a[99999999999999999999][9999999999999999999];",
                           "}}}", ".entry k {{{", ".const .attribute(", ".global .align"}) {
    const std::string text = std::string(".version 8.0 .target sm_80 ") + rest;
    EXPECT_EQ(described(text).entries.at(0).compute_capability, 80) << rest;
  }
}

TEST(Describe, BadImagesAreRefusedWithTheReason) {
  const std::string_view cubin = fixtures::symbols_cubin;
  std::string host_file(cubin), section_beyond(cubin), odd_class(cubin);
  host_file[18] = 62;
  host_file[19] = 0;
  std::uint64_t sections = 0;
  std::memcpy(&sections, cubin.data() + 40, sizeof sections);
  const std::uint64_t beyond = cubin.size() + 10;
  std::memcpy(section_beyond.data() + sections + 64 + 24, &beyond, sizeof beyond);
  odd_class[4] = 1;
  const std::string wrapper(
      "\xB1\x43\x62\x46"
      "0123456789012345678901234567",
      32);
  const std::pair<std::string, const char*> refusals[] = {
      {"", "first bytes"},
      {"GIF89a", "first bytes"},
      {"// nothing", "is not PTX"},
      {host_file, "not one with code for NVIDIA GPUs"},
      {section_beyond, "lies beyond its end"},
      {odd_class, "not a 64-bit little-endian"},
      {std::string(cubin.substr(0, 20)), "less than its header"},
      {wrapper, "give the fatbin itself"},
      {std::string(fixtures::usual_fatbin.substr(0, 100)), "truncated"},
  };
  for (const auto& [image, text] : refusals) {
    EXPECT_THAT(refusal_to_describe(image), HasSubstr(text));
  }
}

TEST(Describe, EveryPrefixOfACubinIsRefused) {
  std::size_t accepted = 0;
  for (std::size_t size = 0; size < fixtures::symbols_cubin.size(); size += 3) {
    const std::string copy(fixtures::symbols_cubin.substr(0, size));
    accepted += refusal_to_describe(copy) == "accepted" ? 1U : 0U;
  }
  EXPECT_EQ(accepted, 0U);
}

}  // namespace
}  // namespace ctxbroker::image
