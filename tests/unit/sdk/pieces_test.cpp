// SPDX-License-Identifier: Apache-2.0
// The SDK's pieces on their own: parameter tables, device buffers, launch shapes.
#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/plugin.hpp"
#include "fake_host.hpp"

namespace {

using namespace ctxbroker::sdk;
using ctxbroker::test::FakeHost;
using ctxbroker::test::RecordedLaunch;
using testing::ElementsAre;

TEST(SdkParameterTable, BadParameterTablesAreRefused) {
  // In a constexpr variable these do not compile; at run time they throw.
  EXPECT_THROW(static_cast<void>(parameter_table(Toggle{2, "on", "On", "Whether.", true})),
               std::logic_error);
  EXPECT_THROW(static_cast<void>(parameter_table(Real{0, "a", "", "", "", {0, 1}, 2})),
               std::logic_error);
  EXPECT_THROW(static_cast<void>(parameter_table(Real{0, "a", "", "", "", {1, 0}, 0})),
               std::logic_error);
  EXPECT_THROW(static_cast<void>(parameter_table(Real{0, "A", "", "", "", {0, 1}, 0})),
               std::logic_error);
  EXPECT_THROW(static_cast<void>(parameter_table(Real{0, "", "", "", "", {0, 1}, 0})),
               std::logic_error);
  EXPECT_THROW(static_cast<void>(parameter_table(Real{0, "a", "", "", "", {0, 1}, 0},
                                                 Real{1, "a", "", "", "", {0, 1}, 0})),
               std::logic_error);
}

TEST(SdkParameterTable, BadDefaultsAndSkewsAreRefused) {
  const auto refused = [](const auto& one) {
    EXPECT_THROW(static_cast<void>(parameter_table(one)), std::logic_error);
  };
  refused(Colour{0, "a", "", "", {0, 1}, {1, 1, 1, 2}});
  refused(Point{0, "a", "", "", "", {0, 1}, {0, -1}});
  refused(skewed(0, Real{0, "a", "", "", "", {0, 1}, 0}));
  refused(skewed(-1, Integer{0, "a", "", "", "", {0, 1}, 0}));
  refused(skewed(2, Toggle{0, "a", "", "", true}));
  refused(skewed(2, Colour{0, "a", "", "", {0, 1}, {0, 0, 0, 0}}));
  EXPECT_NO_THROW(static_cast<void>(parameter_table(
      skewed(2, Integer{0, "a", "", "", "", {0, 1}, 0}), Text{1, "b", "", "", ""})));
}

TEST(SdkParameter, ParameterHasTheAuthorsSettings) {
  static constexpr const char* endings[] = {".txt", nullptr};
  constexpr Real real = in_group("Tone", skewed(3, hidden(Real{0, "a", "A", "Hz", "", {0, 9}, 1})));
  EXPECT_STREQ(real.raw.group, "Tone");
  EXPECT_EQ(real.raw.skew, 3);
  EXPECT_EQ(real.raw.flags, CTXB_PARAMETER_AUTOMATABLE | CTXB_PARAMETER_HIDDEN);
  constexpr Colour colour{0, "c", "C", "", {0, 4}, {1, 2, 3, 4}};
  EXPECT_EQ(colour.raw.type, std::uint32_t{CTXB_PARAMETER_COLOUR});
  EXPECT_THAT(colour.raw.default_numbers, ElementsAre(1, 2, 3, 4));
  constexpr Point point = advanced(Point{0, "p", "P", "px", "", {0, 4}, {1, 2}});
  EXPECT_EQ(point.raw.type, std::uint32_t{CTXB_PARAMETER_POINT});
  EXPECT_THAT(point.raw.default_numbers, ElementsAre(1, 2, 0, 0));
  EXPECT_EQ(point.raw.flags, CTXB_PARAMETER_AUTOMATABLE | CTXB_PARAMETER_ADVANCED);
  constexpr Text text{0, "t", "T", "", "hello"};
  EXPECT_EQ(text.raw.type, std::uint32_t{CTXB_PARAMETER_STRING});
  EXPECT_STREQ(text.raw.default_text, "hello");
  EXPECT_EQ(text.raw.flags, 0U) << "a text is never automatable";
  constexpr File file{0, "f", "F", "", endings};
  EXPECT_EQ(file.raw.type, std::uint32_t{CTXB_PARAMETER_FILE});
  EXPECT_STREQ(file.raw.endings[0], ".txt");
  EXPECT_EQ((File{0, "f", "F", ""}.raw.endings), nullptr);
}

TEST(SdkParameterValues, ValuesHaveTheTypesOfTheirParameters) {
  // A later host's values are longer.
  struct Longer {
    ctxb_value known;
    double unknown[2];
  };
  const auto value = [](std::uint32_t type, double a, double b, double c, double d,
                        const char* text) {
    return Longer{{sizeof(Longer), type, {a, b, c, d}, text}, {9, 9}};
  };
  const Longer values[] = {value(CTXB_PARAMETER_FLOAT, 0.5, 0, 0, 0, ""),
                           value(CTXB_PARAMETER_COLOUR, 1, 2, 3, 4, ""),
                           value(CTXB_PARAMETER_POINT, 5, 6, 0, 0, ""),
                           value(CTXB_PARAMETER_STRING, 0, 0, 0, 0, "hello")};
  const ParameterValues all(&values[0].known, 4);
  EXPECT_EQ((all[Real{0, "a", "", "", "", {0, 1}, 0}]), 0.5);
  const ColourValue colour = all[Colour{1, "c", "", "", {0, 4}, {0, 0, 0, 0}}];
  EXPECT_THAT((std::vector<double>{colour.red, colour.green, colour.blue, colour.alpha}),
              ElementsAre(1, 2, 3, 4));
  const PointValue point = all[Point{2, "p", "", "", "", {0, 9}, {0, 0}}];
  EXPECT_EQ(point.x + 10 * point.y, 65);
  EXPECT_EQ((all[Text{3, "t", "", "", ""}]), "hello");
  EXPECT_THROW(static_cast<void>(all[Toggle{4, "x", "", "", true}]), std::out_of_range);
}

bool same(const Rectangle& a, const Rectangle& b) {
  return a.x == b.x && a.y == b.y && a.width == b.width && a.height == b.height;
}

TEST(SdkRectangle, GrowsAndMeetsOthers) {
  const Rectangle extent{-2, 0, 10, 6};
  EXPECT_TRUE(same(grown({3, 4, 5, 6}, 2), {1, 2, 9, 10}));
  EXPECT_TRUE(same(within(grown({0, 0, 2, 2}, 3), extent), {-2, 0, 7, 5}));
  EXPECT_TRUE(same(within({1, 2, 3, 3}, extent), {1, 2, 3, 3}));
  EXPECT_TRUE(same(within({7, 5, 100, 100}, extent), {7, 5, 1, 1}));
  // Outside, it is the nearest pixel.
  EXPECT_TRUE(same(within({50, -9, 3, 3}, extent), {7, 0, 1, 1}));
  EXPECT_TRUE(same(within({-50, 3, 3, 9}, extent), {-2, 3, 1, 3}));
  EXPECT_TRUE(same(around({0, 0, 2, 2}, {-5, 1, 1, 9}), {-5, 0, 7, 10}));
  // No number runs over.
  const Rectangle far = grown({INT32_MAX, 0, UINT32_MAX, 1}, UINT32_MAX);
  EXPECT_EQ(far.x, -INT32_MAX);
  EXPECT_EQ(std::int64_t{far.x} + far.width, INT32_MAX);
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

TEST(SdkGlobal, HasTheSizeOfItsType) {
  FakeHost host;
  host.globals = {{"gain", {0x100, 4}}, {"taps", {0x200, 64}}};
  ctxbroker::sdk::detail::Gpu gpu{Host(host.raw())};
  gpu.open();
  const ctxb_activation raw{};
  const Activation activation(gpu, raw);
  const Global<float> gain = activation.global<float>("gain");
  EXPECT_EQ(gain.address(), 0x100u);
  EXPECT_EQ(activation.global("taps"), 0x200u);
  EXPECT_EQ(activation.global<float[16]>("taps").bytes(), 64u);
  activation.set(gain, 2.0F);
  EXPECT_EQ(host.uploads.at(0x100).size(), 4u);
  EXPECT_FALSE(Global<float>());
  try {
    static_cast<void>(activation.global<double>("gain"));
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "the variable 'gain' has 4 bytes; the type given for it has 8");
  }
  EXPECT_THROW(static_cast<void>(activation.global<float>("bias")), Failure);
}

// These templates show of which arguments a module can be made: of objects that stay, and not of
// temporaries.
template <class... Arguments>
using Linked = decltype(linked("", std::declval<Arguments>()...));
template <class... Arguments>
using Compiled = decltype(compiled("", std::declval<Arguments>()...));
template <class... Arguments>
using WithJit = decltype(with_jit(ctxb_module(), std::declval<Arguments>()...));
template <template <class...> class Made, class Argument, class = void>
inline constexpr bool can_be_made_of = false;
template <template <class...> class Made, class Argument>
inline constexpr bool can_be_made_of<Made, Argument, std::void_t<Made<Argument>>> = true;

static_assert(can_be_made_of<Linked, const ctxb_module_part (&)[2]>);
static_assert(!can_be_made_of<Linked, ctxb_module_part (&&)[2]>);
static_assert(!can_be_made_of<Linked, const ctxb_module_part (&&)[2]>);
static_assert(can_be_made_of<Compiled, ctxb_cuda_source&>);
static_assert(can_be_made_of<Compiled, const ctxb_cuda_source&>);
static_assert(!can_be_made_of<Compiled, ctxb_cuda_source>);
static_assert(!can_be_made_of<Compiled, const ctxb_cuda_source>);
static_assert(can_be_made_of<WithJit, const ctxb_jit_options&>);
static_assert(!can_be_made_of<WithJit, ctxb_jit_options>);
static_assert(!can_be_made_of<WithJit, const ctxb_jit_options>);

TEST(SdkModule, ModuleTellsItsPartsAndSource) {
  static constexpr char text[] = ".version 7.0";
  static constexpr ctxb_module_part parts[] = {part("a.cu", text, sizeof text),
                                               part_in_file("b.o")};
  static constexpr ctxb_module one = linked("both", parts);
  static_assert(one.size == sizeof(ctxb_module) && one.part_count == 2 && one.data == nullptr);
  static_assert(one.parts[1].data == nullptr && one.parts[1].file == one.parts[1].name);
  static constexpr ctxb_cuda_source source = cuda_source("x.cu", "");
  static_assert(compiled("x", source).source == &source);
  constexpr ctxb_module plain = module("m", text, sizeof text);
  static_assert(on_first_use(plain).flags == CTXB_MODULE_ON_FIRST_USE && plain.flags == 0);
  static_assert(watched(plain, "m.ptx").flags == CTXB_MODULE_DEVELOPMENT);
  static constexpr const char* options[] = {"-Icommon", nullptr};
  static_assert(watched(plain, "m.cu", options).file_options == options);
  static constexpr ctxb_jit_options jit = jit_options();
  static_assert(with_jit(plain, jit).jit == &jit && jit.size == sizeof jit);
}

TEST(SdkLaunchShape, LaunchShapeCoversEverySize) {
  for (const auto& [columns, rows] : {std::pair<std::uint32_t, std::uint32_t>{1, 1},
                                      {1, 70000},
                                      {70000, 1},
                                      {1, 4000000},
                                      {33, 9},
                                      {640, 479},
                                      {4000000000U, 3}}) {
    const LaunchShape shape = over(columns, rows);
    EXPECT_LE(shape.block.x * shape.block.y, 256U);
    EXPECT_GE(shape.block.x, 32U);
    EXPECT_LE(shape.block.y, rows) << "threads without a row would do the last row's work again";
    EXPECT_LE(shape.grid.y, 65535U);
    EXPECT_GE(std::uint64_t{shape.grid.x} * shape.block.x, columns);
    EXPECT_TRUE(std::uint64_t{shape.grid.y} * shape.block.y >= rows || shape.grid.y == 65535);
  }
}

// Stands for float4. The test expects the layout that the device's compiler gives `struct { char;
// double; float4; const float*; short; }` as single parameters.
struct alignas(16) Colour {
  float r, g, b, a;
};

TEST(SdkArguments, ArgumentsLieWhereTheDevicesCompilerPutsThem) {
  using Layout = ArgumentLayout<char, double, Colour, const float*, short, DeviceBuffer<float>>;
  EXPECT_THAT(std::vector<std::uint32_t>(Layout::offsets, Layout::offsets + 6),
              ElementsAre(0, 8, 16, 32, 40, 48));
  EXPECT_THAT(std::vector<std::uint32_t>(Layout::sizes, Layout::sizes + 6),
              ElementsAre(1, 8, 16, 8, 2, 8));
  EXPECT_EQ(Layout::bytes, 56U);
  EXPECT_EQ(ArgumentLayout<>::bytes, 0U);
}

TEST(SdkArguments, OnlyCopyableTypesAreArguments) {
  EXPECT_TRUE(is_kernel_argument_v<double>);
  EXPECT_TRUE(is_kernel_argument_v<Colour>);
  EXPECT_TRUE(is_kernel_argument_v<float*>);
  EXPECT_TRUE(is_kernel_argument_v<DeviceBuffer<float>>);
  EXPECT_FALSE(is_kernel_argument_v<std::string>);
  EXPECT_FALSE(is_kernel_argument_v<char[6]>) << "a literal is no argument";
}

class SdkLaunch : public testing::Test {
 protected:
  SdkLaunch() { gpu.open(); }
  const RecordedLaunch& last() const { return host.launches.back(); }

  FakeHost host;
  ctxbroker::sdk::detail::Gpu gpu{Host(host.raw())};
  int stream = 0;
  const Stream work{gpu, &stream};
  const Kernel kernel{reinterpret_cast<const ctxb_kernel*>("blur"), "blur"};
};

TEST_F(SdkLaunch, PackedLaunchHoldsTheSameBytes) {
  const Colour colour{1, 2, 3, 4};
  work.launch_packed(kernel, {{2}, {64}}, pack('x', 2.5, colour, short{7}));
  EXPECT_THAT(last().offsets, ElementsAre(0, 8, 16, 32));
  ASSERT_EQ(last().packed.size(), 34U);
  EXPECT_EQ(last().packed[0], 'x');
  double half = 0;
  std::memcpy(&half, &last().packed[8], 8);
  EXPECT_EQ(half, 2.5);
  float read[4] = {};
  std::memcpy(read, &last().packed[16], 16);
  EXPECT_THAT(read, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(last().packed[32], 7);
  EXPECT_TRUE(last().arguments.empty());
}

TEST_F(SdkLaunch, AttributesReachTheHost) {
  LaunchShape shape{{4, 2}, {32}};
  shape.cluster = {2, 1, 1};
  shape.flags = CTXB_LAUNCH_PRIORITY;
  shape.priority = -3;
  work.launch(kernel, shape, 1);
  EXPECT_EQ(last().options.cluster[0], 2U);
  EXPECT_EQ(last().options.flags, CTXB_LAUNCH_PRIORITY);
  EXPECT_EQ(last().options.priority, -3);
  kernel.launch(work, {3}, {96}, 1, 2.0);
  EXPECT_THAT(last().grid, ElementsAre(3, 1, 1));
  EXPECT_THAT(last().block, ElementsAre(96, 1, 1));
  EXPECT_THAT(last().sizes, ElementsAre(4, 8));
  EXPECT_EQ(last().options.cluster[0], 0U);
}

TEST_F(SdkLaunch, OlderHostLaunchesPlainLaunches) {
  host.offers_launch = false;
  gpu.open();
  work.launch(kernel, {{2}, {64}, 128}, 1.5F);
  EXPECT_EQ(last().options.size, 0U) << "through " CTXB_EXT_GPU;
  EXPECT_EQ(last().shared_bytes, 128U);
  LaunchShape shape{{2}, {64}};
  shape.flags = CTXB_LAUNCH_COOPERATIVE;
  try {
    work.launch(kernel, shape, 1.5F);
    FAIL() << "the flag was dropped";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CTXB_ERROR_UNSUPPORTED);
    EXPECT_THAT(failure.what(), testing::HasSubstr(CTXB_EXT_LAUNCH));
  }
  EXPECT_THROW(work.launch_packed(kernel, {{2}, {64}}, pack(1)), Failure);
}

}  // namespace
