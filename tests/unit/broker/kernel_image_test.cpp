// SPDX-License-Identifier: Apache-2.0
// The words for what an image holds, and on which devices it runs. tests/unit/image/ reads real
// ones.
#include "ctxbroker/kernel_image.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ctxbroker/error.hpp"

namespace ctxbroker {
namespace {

constexpr const char* text = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }";

TEST(KernelImage, PtxInMemoryIsDescribed) {
  const KernelImage image = describe_image(text, std::strlen(text));
  EXPECT_EQ(summary(image), "PTX 8.0 for sm_80");
  EXPECT_THAT(image.entries.at(0).kernels, ::testing::ElementsAre("k"));
}

TEST(KernelImage, BytesThatAreNoImageAreRefused) {
  const std::pair<const void*, std::size_t> bytes[] = {{nullptr, 10}, {text, 0}, {"hello", 5}};
  for (const auto& [data, size] : bytes) {
    try {
      static_cast<void>(describe_image(data, size));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kernel_image);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("neither PTX text nor a fatbin"));
    }
  }
}

ImageEntry entry(CodeKind kind, int capability, char variant = '\0', bool is_relocatable = false) {
  ImageEntry result;
  result.kind = kind;
  result.compute_capability = capability;
  result.variant = variant;
  result.is_relocatable = is_relocatable;
  result.ptx_version = "9.0";
  return result;
}

TEST(KernelImage, EntryRunsOnTheDevicesOfItsKindOfCode) {
  struct Case {
    ImageEntry entry;
    std::vector<int> runs, fails;
  };
  const Case cases[] = {
      {entry(CodeKind::ptx, 75), {75, 80, 90, 120}, {70, 60}},
      {entry(CodeKind::ptx, 90, 'a'), {90}, {89, 100}},
      {entry(CodeKind::ptx, 100, 'f'), {100, 103}, {90, 110, 120}},
      {entry(CodeKind::machine_code, 80), {80, 86, 89}, {75, 90}},
      {entry(CodeKind::machine_code, 90, 'a'), {90}, {100}},
      {entry(CodeKind::machine_code, 80, '\0', true), {}, {80}},
      {entry(CodeKind::link_time, 80), {}, {80}},
      {entry(CodeKind::unknown, 80), {}, {80}},
  };
  for (const Case& one : cases) {
    for (const int device : one.runs) {
      EXPECT_TRUE(runs_on(one.entry, device)) << target_name(one.entry) << " on " << device;
    }
    for (const int device : one.fails) {
      EXPECT_FALSE(runs_on(one.entry, device)) << target_name(one.entry) << " on " << device;
    }
  }
}

TEST(KernelImage, ImageOfSeveralEntriesRunsWhereOneOfThemRuns) {
  const KernelImage fatbin{
      ImageKind::fatbin, 0, {entry(CodeKind::machine_code, 90, 'a'), entry(CodeKind::ptx, 100)}};
  EXPECT_EQ(summary(fatbin), "fatbin with machine code for sm_90a and PTX 9.0 for sm_100");
  EXPECT_TRUE(runs_on(fatbin, 90));
  EXPECT_FALSE(runs_on(fatbin, 80));
  const KernelImage linked{
      ImageKind::linked, 0, {entry(CodeKind::ptx, 75), entry(CodeKind::ptx, 90)}};
  EXPECT_EQ(summary(linked), "linked image with PTX 9.0 for sm_75 and PTX 9.0 for sm_90");
  EXPECT_TRUE(runs_on(linked, 90));
  EXPECT_FALSE(runs_on(linked, 80));
  EXPECT_EQ(summary({ImageKind::fatbin, 0, {}}), "fatbin with nothing in it");
}

TEST(KernelImage, KindsArePrintedAsWords) {
  EXPECT_STREQ(to_string(ImageKind::ptx), "ptx");
  EXPECT_STREQ(to_string(ImageKind::cubin), "cubin");
  EXPECT_STREQ(to_string(ImageKind::fatbin), "fatbin");
  EXPECT_STREQ(to_string(ImageKind::linked), "linked");
  EXPECT_STREQ(to_string(CodeKind::ptx), "ptx");
  EXPECT_STREQ(to_string(CodeKind::machine_code), "machine-code");
  EXPECT_STREQ(to_string(CodeKind::link_time), "link-time");
  EXPECT_STREQ(to_string(CodeKind::unknown), "unknown");
  EXPECT_STREQ(to_string(Compression::none), "none");
  EXPECT_STREQ(to_string(Compression::lz4), "lz4");
  EXPECT_STREQ(to_string(Compression::zstd), "zstd");
}

}  // namespace
}  // namespace ctxbroker
