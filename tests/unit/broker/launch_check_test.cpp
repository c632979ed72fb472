// SPDX-License-Identifier: Apache-2.0
#include "module/launch_check.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <string>

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() {
    kernel.name = "blur";
    kernel.block_threads = 512;
    kernel.static_shared_bytes = 1024;
    kernel.arguments_known = true;
    kernel.arguments = {{0, 8}, {8, 4}};
    limits = {{2147483647, 65535, 65535}, {1024, 1024, 64}, 1024, 49152, 65536, true, true};
    options.size = sizeof options;
    launch = {sizeof launch, 2, nullptr, nullptr, {1, 1, 1}, {256, 1, 1}, 0, arguments, sizes};
  }

  bool fits(const ctxb_launch& given, RefusalText& text) const {
    return shape_fits(kernel, limits, given, &options, text) &&
           arguments_fit(kernel, given, &options, text);
  }

  std::string refusal(const std::function<void(ctxb_launch&)>& spoil) {
    ctxb_launch spoilt = launch;
    spoil(spoilt);
    RefusalText text;
    EXPECT_FALSE(fits(spoilt, text)) << "accepted";
    EXPECT_THAT(text.text, HasSubstr("\"blur\""));
    return text.text;
  }

  Kernel kernel;
  DeviceLimits limits;
  std::uint64_t address = 0;
  std::uint32_t count = 0;
  const void* arguments[2] = {&address, &count};
  std::uint32_t sizes[2] = {8, 4};
  ctxb_launch launch{};
  ctxb_launch_options options{};
};

TEST_F(LaunchTest, LaunchWithinTheLimitsPasses) {
  RefusalText text;
  EXPECT_TRUE(fits(launch, text));
  EXPECT_STREQ(text.text, "");
  launch.grid[0] = 2147483647;
  launch.block[0] = 512;
  launch.shared_bytes = 65536 - 1024;
  EXPECT_TRUE(fits(launch, text));
}

TEST_F(LaunchTest, RefusalsNameKernelLimitAndValue) {
  EXPECT_THAT(refusal([](auto& l) { l.grid[1] = 65536; }),
              HasSubstr("grid.y is 65536; it must be 1 to 65535"));
  EXPECT_THAT(refusal([](auto& l) { l.grid[2] = 0; }), HasSubstr("grid.z is 0"));
  EXPECT_THAT(refusal([](auto& l) { l.block[2] = 65; }), HasSubstr("block.z is 65"));
  EXPECT_THAT(refusal([](auto& l) { l.block[1] = 3; }), HasSubstr("768 threads; at most 512"));
  EXPECT_THAT(refusal([](auto& l) { l.shared_bytes = 65536; }), HasSubstr("at most 65536"));
  EXPECT_THAT(refusal([](auto& l) { l.shared_bytes = 0xFFFFFFFF; }), HasSubstr("at most 65536"));
  EXPECT_THAT(refusal([](auto& l) { l.argument_count = 1; }),
              HasSubstr("takes 2 arguments; the launch gives 1"));
  EXPECT_THAT(refusal([](auto& l) { l.arguments = nullptr; }), HasSubstr("null"));
  EXPECT_THAT(refusal([](auto& l) { l.argument_sizes = nullptr; }), HasSubstr("null"));
}

TEST_F(LaunchTest, ArgumentsAreComparedWithTheKernels) {
  sizes[1] = 8;
  EXPECT_THAT(refusal([](auto&) {}),
              HasSubstr("argument 2 (of 2) has 8 bytes; the kernel takes 4 there, at offset 8"));
  sizes[1] = 4;
  arguments[0] = nullptr;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("argument 1 (of 2) is null"));
}

TEST_F(LaunchTest, WithoutTheDriversKnowledgeSizesPass) {
  kernel.arguments_known = false;
  kernel.arguments.clear();
  sizes[1] = 1;
  RefusalText text;
  EXPECT_TRUE(fits(launch, text));
}

TEST_F(LaunchTest, PackedArgumentsAreComparedByLengthAndOffset) {
  const std::uint32_t offsets[] = {0, 8};
  const char packed[16] = {};
  options.packed = packed;
  options.packed_bytes = 12;
  options.argument_offsets = offsets;
  launch.arguments = nullptr;
  RefusalText text;
  EXPECT_TRUE(fits(launch, text)) << text.text;
  options.packed_bytes = 16;
  EXPECT_TRUE(fits(launch, text)) << "a struct's padding: " << text.text;
  const std::uint32_t wrong[] = {0, 12};
  options.argument_offsets = wrong;
  EXPECT_THAT(refusal([](auto&) {}),
              HasSubstr("argument 2 (of 2), 4 bytes, is at offset 12 of the packed arguments; the "
                        "kernel takes it at 8"));
  options.argument_offsets = nullptr;
  EXPECT_TRUE(fits(launch, text)) << "not compared: " << text.text;
  options.packed_bytes = 11;
  EXPECT_THAT(refusal([](auto&) {}),
              HasSubstr("11 bytes of packed arguments; the kernel takes 12"));
  options.packed_bytes = 28;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("28 bytes of packed arguments"));
  options.packed_bytes = 12;
  sizes[0] = 4;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("argument 1 (of 2) has 4 bytes"));
  EXPECT_THAT(refusal([this](auto& l) { l.arguments = arguments; }), HasSubstr("both"));
  EXPECT_THAT(refusal([](auto& l) { l.argument_sizes = nullptr; }), HasSubstr("null"));
}

TEST_F(LaunchTest, LaunchAttributesBeyondTheirLimitsAreRefused) {
  launch.grid[0] = 6;
  const auto cluster = [this](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    options.cluster[0] = x;
    options.cluster[1] = y;
    options.cluster[2] = z;
  };
  cluster(2, 1, 1);
  RefusalText text;
  EXPECT_TRUE(fits(launch, text)) << text.text;
  cluster(4, 1, 1);
  EXPECT_THAT(refusal([](auto&) {}),
              HasSubstr("grid.x is 6; it must be a multiple of the cluster's 4"));
  cluster(2, 0, 1);
  EXPECT_THAT(refusal([](auto&) {}),
              HasSubstr("grid.y is 1; it must be a multiple of the cluster's 0"));
  cluster(17, 1, 1);
  EXPECT_THAT(refusal([](auto& l) { l.grid[0] = 34; }), HasSubstr("17 blocks; at most 16 fit"));
  cluster(0x10000, 0x10000, 1);
  EXPECT_THAT(refusal([](auto& l) { l.grid[0] = 0x10000, l.grid[1] = 0; }), HasSubstr("grid.y"));
  limits.clusters = false;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("this device has no clusters"));
  cluster(0, 0, 0);
  options.flags = CTXB_LAUNCH_COOPERATIVE | CTXB_LAUNCH_PROGRAMMATIC | CTXB_LAUNCH_PRIORITY;
  EXPECT_TRUE(fits(launch, text)) << text.text;
  limits.cooperative = false;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("no cooperative launches"));
  options.flags = 1u << 31;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("flags 0x80000000 are not known"));
}

TEST_F(LaunchTest, BlocksOfACooperativeLaunchMustFitAtOnce) {
  launch.grid[0] = 8;
  RefusalText text;
  EXPECT_TRUE(blocks_fit_together(kernel, launch, 4, 2, text));
  launch.grid[1] = 2;
  EXPECT_FALSE(blocks_fit_together(kernel, launch, 4, 2, text));
  EXPECT_THAT(text.text, HasSubstr("a cooperative launch of 16 blocks; at most 8 run at once, 4 on "
                                   "each of 2 multiprocessors"));
}

}  // namespace
}  // namespace ctxbroker::detail
