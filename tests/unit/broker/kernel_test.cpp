#include "module/kernel.hpp"

#include <gmock/gmock.h>

#include <string>

namespace ctxbroker::detail {
namespace {

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

// ctxb_launch_options.signature is part of the ABI: these numbers never change.
TEST(KernelSignatureTest, IsAsTheHeaderSays) {
  const auto fnv = [](const std::string& bytes) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211;
    return hash;
  };
  EXPECT_EQ(signature_of({}), fnv(std::string(4, '\0')));
  EXPECT_EQ(signature_of({{0, 8}, {16, 300}}),
            fnv(std::string("\2\0\0\0\10\0\0\0\0\0\0\0\54\1\0\0\20\0\0\0", 20)));
}

}  // namespace
}  // namespace ctxbroker::detail
