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
    kernel.signature = signature_of(kernel.arguments);
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

TEST_F(LaunchTest, AFittingOneIsLeftAlone) {
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
  kernel.signature = 0;
  sizes[1] = 1;
  RefusalText text;
  EXPECT_TRUE(fits(launch, text));
}

TEST_F(LaunchTest, TheKernelsSignatureSparesComparingSizes) {
  options.signature = kernel.signature;
  sizes[1] = 8;  // a lie: with its signature the caller has promised another size
  RefusalText text;
  EXPECT_TRUE(fits(launch, text));
  EXPECT_THAT(refusal([](auto& l) { l.argument_count = 1; }), HasSubstr("gives 1"))
      << "the driver would read beyond the caller's pointers";
  options.signature += 1;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("argument 2"));
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

TEST_F(LaunchTest, AttributesHaveLimitsToo) {
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

// What is wrong with a launch in one way.
struct Spoil {
  const char* what;
  void (*spoil)(Kernel&, ctxb_launch&, ctxb_launch_options&);
};
std::uint32_t other_sizes[] = {8, 8};
const void* no_second[] = {other_sizes, nullptr};
const Spoil spoils[] = {
    {"grid.x 0", [](auto&, auto& l, auto&) { l.grid[0] = 0; }},
    {"grid.y 65536", [](auto&, auto& l, auto&) { l.grid[1] = 65536; }},
    {"grid.z most", [](auto&, auto& l, auto&) { l.grid[2] = UINT32_MAX; }},
    {"block.x 1025", [](auto&, auto& l, auto&) { l.block[0] = 1025; }},
    {"block.y 0", [](auto&, auto& l, auto&) { l.block[1] = 0; }},
    {"block.z 65", [](auto&, auto& l, auto&) { l.block[2] = 65; }},
    {"513 threads", [](auto&, auto& l, auto&) { l.block[0] = 513; }},
    {"more threads than the device",
     [](auto& k, auto& l, auto&) {
       k.block_threads = 4096;
       l.block[0] = 1024, l.block[1] = 2;
     }},
    {"all shared memory", [](auto&, auto& l, auto&) { l.shared_bytes = UINT32_MAX; }},
    {"shared memory to be allowed", [](auto&, auto& l, auto&) { l.shared_bytes = 50000; }},
    {"one argument", [](auto&, auto& l, auto&) { l.argument_count = 1; }},
    {"no arguments", [](auto&, auto& l, auto&) { l.arguments = nullptr; }},
    {"no sizes", [](auto&, auto& l, auto&) { l.argument_sizes = nullptr; }},
    {"another size", [](auto&, auto& l, auto&) { l.argument_sizes = other_sizes; }},
    {"a null argument", [](auto&, auto& l, auto&) { l.arguments = no_second; }},
    {"not known", [](auto& k, auto&, auto&) { k.arguments_known = false; }},
    {"another signature", [](auto&, auto&, auto& o) { o.signature = 77; }},
    {"the kernel's signature", [](auto& k, auto&, auto& o) { o.signature = k.signature; }},
    {"a flag", [](auto&, auto&, auto& o) { o.flags = CTXB_LAUNCH_PRIORITY; }},
    {"an unknown flag", [](auto&, auto&, auto& o) { o.flags = 1u << 31; }},
    {"a cluster", [](auto&, auto&, auto& o) { o.cluster[2] = 1; }},
    {"packed beside", [](auto&, auto&, auto& o) { o.packed = other_sizes, o.packed_bytes = 12; }},
    {"packed",
     [](auto&, auto& l, auto& o) {
       o.packed = other_sizes, o.packed_bytes = 12;
       l.arguments = nullptr;
     }},
    {"packed, short",
     [](auto&, auto& l, auto& o) {
       o.packed = other_sizes, o.packed_bytes = 11;
       l.arguments = nullptr;
     }},
};

// Every pair of them: the quick look never lets pass what the long one refuses, nor what has to be
// asked of the driver first; and it does let pass what is right.
TEST_F(LaunchTest, TheQuickLookNeverSaysMoreThanTheLongOne) {
  kernel.dynamic_shared_bytes = 49152 - 1024;
  const Kernel whole = kernel;
  int passed = 0;
  for (const Spoil& one : spoils) {
    for (const Spoil& other : spoils) {
      SCOPED_TRACE(std::string(one.what) + ", " + other.what);
      kernel = whole;
      ctxb_launch given = launch;
      ctxb_launch_options with{};
      with.size = sizeof with;
      one.spoil(kernel, given, with);
      other.spoil(kernel, given, with);
      if (!surely_fits(kernel, limits, given, &with)) continue;
      ++passed;
      RefusalText text;
      EXPECT_TRUE(shape_fits(kernel, limits, given, &with, text) &&
                  arguments_fit(kernel, given, &with, text))
          << text.text;
      EXPECT_TRUE(with.flags == 0 && !has_cluster(with) &&
                  given.shared_bytes <= kernel.dynamic_shared_bytes);
    }
  }
  // The two signatures, and the kernel's with what it makes good: other sizes, and packed.
  EXPECT_EQ(passed, 4 + 2 + 2);
  kernel = whole;
  EXPECT_TRUE(surely_fits(kernel, limits, launch, nullptr));
  EXPECT_TRUE(surely_fits(kernel, limits, launch, &options));
  for (const std::uint32_t x : {1u, 512u}) {
    launch.block[0] = x;
    launch.grid[0] = 2147483647, launch.grid[1] = launch.grid[2] = 65535;
    launch.shared_bytes = kernel.dynamic_shared_bytes;
    EXPECT_TRUE(surely_fits(kernel, limits, launch, nullptr));
  }
  kernel.arguments.clear();
  launch.argument_count = 0;
  launch.arguments = nullptr;
  launch.argument_sizes = nullptr;
  EXPECT_TRUE(surely_fits(kernel, limits, launch, nullptr)) << "a kernel without arguments";
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
