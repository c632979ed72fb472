#include "module/kernel.hpp"

#include <gmock/gmock.h>

#include <functional>

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
    kernel.argument_bytes = {8, 4};
    limits = {{2147483647, 65535, 65535}, {1024, 1024, 64}, 1024, 49152, 65536};
    launch = {sizeof launch, 2, nullptr, nullptr, {1, 1, 1}, {256, 1, 1}, 0, arguments, sizes};
  }

  std::string refusal(const std::function<void(ctxb_launch&)>& spoil) {
    ctxb_launch spoilt = launch;
    spoil(spoilt);
    RefusalText text;
    EXPECT_FALSE(launch_fits(kernel, limits, spoilt, text)) << "accepted";
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
};

TEST_F(LaunchTest, AFittingOneIsLeftAlone) {
  RefusalText text;
  EXPECT_TRUE(launch_fits(kernel, limits, launch, text));
  EXPECT_STREQ(text.text, "");
  launch.grid[0] = 2147483647;
  launch.block[0] = 512;
  launch.shared_bytes = 65536 - 1024;
  EXPECT_TRUE(launch_fits(kernel, limits, launch, text));
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
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("argument 1 has 8 bytes; the kernel takes 4"));
  sizes[1] = 4;
  arguments[0] = nullptr;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("argument 0 is null"));
}

TEST_F(LaunchTest, WithoutTheDriversKnowledgeSizesPass) {
  kernel.arguments_known = false;
  kernel.argument_bytes.clear();
  sizes[1] = 1;
  RefusalText text;
  EXPECT_TRUE(launch_fits(kernel, limits, launch, text));
}

TEST(KernelHandleTest, OnlyHandlesOfThisActivationAreKnown) {
  const ctxb_kernel* handle = kernel_handle(5, 2);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(kernel_index(handle, 5, 3), 2);
  EXPECT_EQ(kernel_index(handle, 5, 2), -1) << "an index that was never given";
  EXPECT_EQ(kernel_index(handle, 6, 3), -1) << "another activation";
  EXPECT_EQ(kernel_index(nullptr, 5, 3), -1);
  const int local = 0;
  EXPECT_EQ(kernel_index(reinterpret_cast<const ctxb_kernel*>(&local), 5, 3), -1);
}

}  // namespace
}  // namespace ctxbroker::detail
