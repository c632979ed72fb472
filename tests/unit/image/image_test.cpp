// SPDX-License-Identifier: Apache-2.0
// Images as nvcc writes them: every packing, several architectures, machine code only.
#include "image/image.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "image_fixtures.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::image {
namespace {

namespace ptx = software::ptx;
using ::testing::HasSubstr;

std::size_t count_instructions(const ptx::Module& module) {
  std::size_t count = 0;
  for (const auto& function : module.functions) count += function.body.size();
  return count;
}

TEST(Checksum, IsWhatCksumPrints) {
  const auto checksum = [](std::string_view text) {
    return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(checksum("123456789"), 930766865u);
  EXPECT_EQ(checksum(""), 4294967295u);
  EXPECT_EQ(checksum(std::string(300, 'a')), 1664553091u) << "the length has two bytes";
}

TEST(Size, IsReadFromTheImageItself) {
  for (const std::string_view image :
       {fixtures::usual_fatbin, fixtures::unpacked_fatbin, fixtures::speed_fatbin,
        fixtures::size_fatbin, fixtures::small_fatbin, fixtures::machine_fatbin, fixtures::cubin}) {
    EXPECT_EQ(image_size(image.data()), image.size());
  }
  const std::string text(fixtures::plain_ptx);
  EXPECT_EQ(image_size(text.c_str()), text.size());
}

TEST(Size, SizeOfNoImageIsRefused) {
  EXPECT_THROW(image_size(nullptr), ImageError);
  EXPECT_THROW(image_size(""), ImageError);
  EXPECT_THROW(image_size("hello"), ImageError);
  EXPECT_THROW(image_size("P"), ImageError);
}

TEST(Fatbin, EveryPackingGivesTheSameModule) {
  const ptx::Module plain = ptx::parse(fixtures::plain_ptx);
  for (const std::string_view image : {fixtures::usual_fatbin, fixtures::unpacked_fatbin,
                                       fixtures::speed_fatbin, fixtures::size_fatbin}) {
    const ptx::Module module = ptx::parse(extract(image, 75));
    EXPECT_EQ(module.target, "sm_75");
    EXPECT_EQ(module.functions.size(), plain.functions.size());
    EXPECT_EQ(module.variables.size(), plain.variables.size());
    EXPECT_EQ(count_instructions(module), count_instructions(plain));
  }
}

// Otherwise the test above would not show that each packing is read.
TEST(Fatbin, TheFixturesArePackedInDifferentWays) {
  EXPECT_THAT(std::string(fixtures::unpacked_fatbin), HasSubstr(".target sm_75"));
  EXPECT_THAT(std::string(fixtures::usual_fatbin), ::testing::Not(HasSubstr(".target sm_75")));
  if (fixtures::speed_fatbin == fixtures::usual_fatbin) GTEST_SKIP() << "this nvcc has one packing";
  EXPECT_THAT(std::string(fixtures::usual_fatbin), HasSubstr("\x28\xb5\x2f\xfd")) << "zstd";
  EXPECT_THAT(std::string(fixtures::speed_fatbin), ::testing::Not(HasSubstr("\x28\xb5\x2f\xfd")))
      << "lz4";
}

TEST(Fatbin, EntriesWithNamesAndOptionsAreRead) {
  EXPECT_THAT(extract(fixtures::lines_fatbin, 75), HasSubstr(".loc"));
}

TEST(Fatbin, TheHighestTargetNotAboveTheDeviceIsTaken) {
  const std::pair<int, const char*> choices[] = {
      {75, "sm_75"}, {80, "sm_75"}, {89, "sm_75"}, {90, "sm_90"}, {120, "sm_90"}};
  for (const auto& [compute, target] : choices) {
    EXPECT_EQ(ptx::parse(extract(fixtures::usual_fatbin, compute)).target, target) << compute;
  }
}

TEST(Fatbin, ArchitectureSpecificPtxRunsOnlyThere) {
  const std::pair<int, const char*> choices[] = {{89, "sm_75"}, {90, "sm_90a"}, {100, "sm_75"}};
  for (const auto& [compute, target] : choices) {
    EXPECT_EQ(ptx::parse(extract(fixtures::specific_fatbin, compute)).target, target) << compute;
  }
}

TEST(Fatbin, FatbinOfNewerPtxAloneIsRefused) {
  const auto refusal = refusal_of(fixtures::usual_fatbin, 70);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::newer_ptx);
  EXPECT_THAT(refusal->message, HasSubstr("sm_75, sm_90"));
  EXPECT_THAT(refusal->message, HasSubstr("compute_70"));
}

TEST(Fatbin, FatbinOfMachineCodeAloneIsRefused) {
  const auto refusal = refusal_of(fixtures::machine_fatbin);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::no_ptx);
  EXPECT_THAT(refusal->message, HasSubstr("machine code only (sm_75)"));
  EXPECT_THAT(refusal->message, HasSubstr("-gencode arch=compute_75,code=compute_75"));
}

TEST(Fatbin, FatbinOfLinkTimeCodeAloneIsRefused) {
  const auto refusal = refusal_of(fixtures::link_time_fatbin);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::no_ptx);
  EXPECT_THAT(refusal->message, HasSubstr("link-time optimisation only (sm_75)"));
}

TEST(Cubin, CubinIsRefusedAsMachineCode) {
  const auto refusal = refusal_of(fixtures::cubin);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::no_ptx);
  EXPECT_THAT(refusal->message, HasSubstr("cubin, machine code for sm_75"));
  EXPECT_THAT(refusal->message, HasSubstr("-gencode arch=compute_75,code=compute_75"));
}

TEST(Text, IsTakenUpToItsEndingZero) {
  std::string text(fixtures::plain_ptx);
  EXPECT_EQ(extract(text, 75), text);
  EXPECT_EQ(extract(text + std::string("\0rest", 5), 75), text);
}

TEST(Text, CommentsMayStandFirst) {
  const std::string text = "\n// a\n/* b */ .version 8.0 // c\n.target sm_80, debug\n";
  EXPECT_EQ(extract(text, 80), text);
  EXPECT_EQ(refusal_of(text, 75)->reason, Reason::newer_ptx);
}

TEST(Text, FamilyTargetRunsOnlyOnItsFamily) {
  const std::string text = ".version 8.8\n.target sm_100f\n";
  EXPECT_FALSE(refusal_of(text, 100).has_value());
  EXPECT_FALSE(refusal_of(text, 103).has_value());
  EXPECT_EQ(refusal_of(text, 120)->reason, Reason::newer_ptx);
  EXPECT_EQ(refusal_of(text, 90)->reason, Reason::newer_ptx);
}

TEST(Text, OtherTextIsRefused) {
  for (const char* text :
       {"", "hello", "  hello", "// only a comment", "/* open", ".version 9.0",
        ".version 9.0\n.target", ".version 9.0\n.target gfx90", ".version 9.0 .target sm_",
        ".version 9.0 .target sm_x", ".version 9.0 .target sm_90q", ".version 9.0 .target sm_90ab",
        ".version 9.0 .target sm_99999999999", ".target sm_75"}) {
    const auto refusal = refusal_of(text);
    ASSERT_TRUE(refusal.has_value()) << text;
    EXPECT_EQ(refusal->reason, Reason::invalid) << text;
  }
}

}  // namespace
}  // namespace ctxbroker::image
