// The SDK's pieces on their own: parameter tables, device buffers, launch shapes.
#include <gmock/gmock.h>

#include <utility>

#include "ctxbroker/plugin.hpp"
#include "fake_host.hpp"

namespace {

using namespace ctxbroker::sdk;
using ctxbroker::test::FakeHost;
using testing::ElementsAre;

TEST(SdkParameterTable, RefusesMistakes) {
  // In a constexpr variable these do not compile; at run time they throw.
  EXPECT_THROW(parameter_table(Toggle{2, "on", "On", "Whether.", true}), std::logic_error);
  EXPECT_THROW(parameter_table(Real{0, "a", "", "", "", {0, 1}, 2}), std::logic_error);
  EXPECT_THROW(parameter_table(Real{0, "a", "", "", "", {1, 0}, 0}), std::logic_error);
  EXPECT_THROW(parameter_table(Real{0, "A", "", "", "", {0, 1}, 0}), std::logic_error);
  EXPECT_THROW(parameter_table(Real{0, "", "", "", "", {0, 1}, 0}), std::logic_error);
  EXPECT_THROW(
      parameter_table(Real{0, "a", "", "", "", {0, 1}, 0}, Real{1, "a", "", "", "", {0, 1}, 0}),
      std::logic_error);
}

TEST(SdkDeviceBuffer, MovesAndReplacesWithoutLeakOrDoubleFree) {
  FakeHost host;
  ctxbroker::sdk::detail::Gpu gpu{Host(host.raw())};
  gpu.open();
  const ctxb_activation raw{};
  const Activation activation(gpu, raw);
  {
    DeviceBuffer<float> a = activation.buffer<float>(1);
    DeviceBuffer<float> b = activation.buffer<float>(2);
    DeviceBuffer<float> c = activation.buffer<float>(3);
    const std::uint64_t address_a = a.address();
    const std::uint64_t address_b = b.address();
    b = std::move(a);
    EXPECT_THAT(host.released, ElementsAre(address_b));
    EXPECT_EQ(b.address(), address_a);
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_EQ(b.size(), 1U);
    std::swap(b, c);
    EXPECT_EQ(c.address(), address_a);
    EXPECT_EQ(b.size(), 3U);
    EXPECT_EQ(host.live.size(), 2U);
    DeviceBuffer<float>& self = b;
    b = std::move(self);
    EXPECT_EQ(b.size(), 3U);
    EXPECT_THROW(activation.buffer<float>(0), Failure);
    EXPECT_THROW(activation.buffer<float>(SIZE_MAX / 2), Failure);
    EXPECT_THROW(activation.upload(b, static_cast<const float*>(nullptr), 2, 2), Failure);
    EXPECT_THROW(activation.copy(c, b, 2), Failure);
  }
  EXPECT_TRUE(host.live.empty());
  DeviceBuffer<float> late = activation.buffer<float>(1);
  gpu.release_all();
  EXPECT_FALSE(late);
  EXPECT_TRUE(host.live.empty());
}

TEST(SdkLaunchShape, CoversEverySize) {
  for (const auto& [columns, rows] : {std::pair<std::uint32_t, std::uint32_t>{1, 1},
                                      {1, 70000},
                                      {70000, 1},
                                      {1, 4000000},
                                      {33, 9},
                                      {640, 479},
                                      {4000000000U, 3}}) {
    const LaunchShape shape = over(columns, rows);
    EXPECT_EQ(shape.block.x * shape.block.y, 256U);
    EXPECT_LE(shape.grid.y, 65535U);
    EXPECT_GE(std::uint64_t{shape.grid.x} * shape.block.x, columns);
    EXPECT_TRUE(std::uint64_t{shape.grid.y} * shape.block.y >= rows || shape.grid.y == 65535);
  }
}

}  // namespace
