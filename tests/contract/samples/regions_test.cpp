// SPDX-License-Identifier: Apache-2.0
// Rendering by tile gives the same bytes as rendering the whole picture.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Image;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t wide = 71, tall = 45;

// A picture of samples of any type.
struct Picture {
  ImageRegion extent;
  std::size_t pixel = 16;  // bytes
  std::vector<std::uint8_t> bytes;

  std::uint8_t* at(std::int32_t x, std::int32_t y) {
    const auto column = static_cast<std::size_t>(x - extent.x);
    const auto row = static_cast<std::size_t>(y - extent.y);
    return bytes.data() + (row * extent.width + column) * pixel;
  }
};

Picture empty_picture(const ImageRegion& extent, std::size_t pixel = 16) {
  return {extent, pixel, std::vector<std::uint8_t>(pixel * extent.width * extent.height, 0xff)};
}

Picture float_picture(unsigned seed, const ImageRegion& extent = {0, 0, wide, tall}) {
  Picture picture = empty_picture(extent);
  const Image image = test_image(extent.width, extent.height, seed);
  const std::vector<float> values(image.values.begin(), image.values.end());
  std::memcpy(picture.bytes.data(), values.data(), picture.bytes.size());
  return picture;
}

// Any positive halves but infinity.
Picture half_picture(unsigned seed) {
  Picture picture = empty_picture({0, 0, wide, tall}, 8);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < picture.bytes.size(); i += 2) {
    state = state * 1664525U + 1013904223U;
    const auto value = static_cast<std::uint16_t>(i % 8 == 6 ? (state >> 24) % 2 * 0x3c00U
                                                             : 0x2000U + (state >> 16) % 0x2000U);
    std::memcpy(&picture.bytes[i], &value, 2);
  }
  return picture;
}

Picture part_of(Picture& whole, const ImageRegion& region) {
  Picture part = empty_picture(region, whole.pixel);
  for (std::int32_t y = region.y; y < region.y + static_cast<std::int32_t>(region.height); ++y) {
    std::memcpy(part.at(region.x, y), whole.at(region.x, y), region.width * whole.pixel);
  }
  return part;
}

void put_into(Picture& whole, Picture& part) {
  const ImageRegion& region = part.extent;
  for (std::int32_t y = region.y; y < region.y + static_cast<std::int32_t>(region.height); ++y) {
    std::memcpy(whole.at(region.x, y), part.at(region.x, y), region.width * whole.pixel);
  }
}

// Plug-ins in a graph, each active for the graph's sizes.
struct Work {
  SampleRunner runner;
  std::vector<std::unique_ptr<PluginInstance>> instances;
  GraphDescription description;
  std::unique_ptr<Graph> graph;

  PluginInstance& add(const std::string& name, const Stage& stage) {
    instances.push_back(std::make_unique<PluginInstance>(runner.create(stage)));
    description.nodes.push_back({name, instances.back().get()});
    return *instances.back();
  }
  PluginInstance& add_fixture(const std::string& name, const std::string& plugin) {
    const PluginLibrary library = runner.broker().load(plugin_file("images"));
    instances.push_back(std::make_unique<PluginInstance>(runner.broker().create(library, plugin)));
    description.nodes.push_back({name, instances.back().get()});
    return *instances.back();
  }
  void row(const std::vector<Stage>& stages) {
    description.inputs = {{"in"}};
    description.outputs = {{"out"}};
    std::string before = "in";
    for (const Stage& stage : stages) {
      const std::string name = "n" + std::to_string(instances.size());
      add(name, stage);
      edge(before, name);
      before = name;
    }
    edge(before, "out");
  }
  void edge(const std::string& from, const std::string& to) {
    description.edges.push_back({from, to});
  }
  void halves() {
    description.inputs[0].samples = description.outputs[0].samples = SampleType::float16;
  }
  void start(const ActivationSizes& sizes, std::uint32_t in_flight = 1) {
    graph.reset();
    for (const auto& one : instances) {
      one->deactivate();
      one->activate(sizes);
    }
    GraphOptions options;
    options.jobs_in_flight = in_flight;
    graph = std::make_unique<Graph>(runner.broker(), description, sizes, options);
  }

  // Runs a job for this region of the output and returns its picture. `inputs` return the frames of
  // each input.
  Picture render(JobInfo job, const std::vector<std::function<Picture(int)>>& inputs,
                 const ImageRegion& region, std::size_t pixel = 16) {
    job.region = region;
    const std::vector<ImageRegion> needed = graph->input_regions(job);
    std::vector<Picture> parts;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const JobInput& input = graph->job_inputs()[i];
      Picture whole = inputs[input.input](input.frame);
      parts.push_back(part_of(whole, needed[i]));
    }
    Picture out = empty_picture(region, pixel);
    JobBuffers buffers;
    for (const Picture& part : parts) buffers.inputs.push_back(part.bytes.data());
    buffers.outputs = {out.bytes.data()};
    graph->process(buffers, job);
    return out;
  }

  Picture render_tiles(const JobInfo& job, const std::vector<std::function<Picture(int)>>& inputs,
                       const ImageRegion& extent, std::uint32_t tile_wide, std::uint32_t tile_tall,
                       std::size_t pixel = 16) {
    Picture out = empty_picture(extent, pixel);
    for (std::uint32_t y = 0; y < extent.height; y += tile_tall) {
      for (std::uint32_t x = 0; x < extent.width; x += tile_wide) {
        Picture tile = render(
            job, inputs,
            {extent.x + static_cast<std::int32_t>(x), extent.y + static_cast<std::int32_t>(y),
             std::min(tile_wide, extent.width - x), std::min(tile_tall, extent.height - y)},
            pixel);
        put_into(out, tile);
      }
    }
    return out;
  }
};

JobInfo job_of(std::uint32_t width = wide, std::uint32_t height = tall) {
  JobInfo job;
  job.width = width;
  job.height = height;
  job.position = 5;
  return job;
}

const std::pair<std::uint32_t, std::uint32_t> tile_sizes[] = {
    {64, 64}, {17, 13}, {wide, 1}, {1, tall}, {32, 7}};

struct TileCase {
  const char* name;
  std::vector<Stage> row;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const TileCase& one, std::ostream* stream) {
  *stream << one.name;
}

const Stage blur{"blur", {{"radius", 5.5}}};
const Stage unsharp{"unsharp", {{"radius", 3}, {"amount", 2}}};
const Stage exposure{"exposure", {{"stops", 0.7}, {"gamma", 1.8}}};
const Stage matrix{"colour_matrix", {{"m01", 0.5}, {"m20", -0.25}}};
const Stage time_blur{"time_blur", {{"before", 1}, {"after", 2}, {"shape", 1}}};

const TileCase tile_cases[] = {{"exposure", {exposure}},
                               {"colour_matrix", {matrix}},
                               {"blur", {blur}},
                               {"unsharp", {unsharp}},
                               {"time_blur", {time_blur}},
                               {"blur_none", {{"blur", {{"radius", 0}}}}},
                               {"blur_widest", {{"blur", {{"radius", 64}}}}},
                               {"point_after_blur", {blur, exposure, matrix}},
                               {"several", {exposure, blur, time_blur, unsharp, matrix}}};

class Tiles : public testing::TestWithParam<TileCase> {};

TEST_P(Tiles, TilesGiveTheBytesOfTheWholePicture) {
  for (const bool halves : {false, true}) {
    SCOPED_TRACE(halves ? "halves" : "floats");
    Work work;
    work.row(GetParam().row);
    if (halves) work.halves();
    const std::size_t pixel = halves ? 8 : 16;
    const auto frame = [&](int at) {
      const auto seed = static_cast<unsigned>(10 + at);
      return halves ? half_picture(seed) : float_picture(seed);
    };
    work.start({wide, tall});
    const ImageRegion extent{0, 0, wide, tall};
    const Picture whole = work.render(job_of(), {frame}, extent, pixel);
    for (const auto& [tile_wide, tile_tall] : tile_sizes) {
      const Picture tiles =
          work.render_tiles(job_of(), {frame}, extent, tile_wide, tile_tall, pixel);
      EXPECT_EQ(tiles.bytes, whole.bytes) << tile_wide << " x " << tile_tall;
    }
  }
}

TEST_P(Tiles, TilesOfOnePixelGiveTheBytesOfTheWholePicture) {
  Work work;
  work.row(GetParam().row);
  work.start({9, 7});
  const auto frame = [&](int at) {
    return float_picture(static_cast<unsigned>(10 + at), {0, 0, 9, 7});
  };
  const ImageRegion extent{0, 0, 9, 7};
  const Picture whole = work.render(job_of(9, 7), {frame}, extent);
  EXPECT_EQ(work.render_tiles(job_of(9, 7), {frame}, extent, 1, 1).bytes, whole.bytes);
}

INSTANTIATE_TEST_SUITE_P(All, Tiles, testing::ValuesIn(tile_cases),
                         [](const auto& one) { return std::string(one.param.name); });

// Nothing in the graph is larger than a tile and what the blur needs around it.
TEST(Region, TilesNeedLittleMemory) {
  Work work;
  work.row({exposure, blur, matrix});
  const auto frame = [](int) { return float_picture(3); };
  const ImageRegion extent{0, 0, wide, tall};
  work.start({wide, tall});
  const Picture whole = work.render(job_of(), {frame}, extent);
  work.start({16 + 12, 16 + 12});
  EXPECT_EQ(work.render_tiles(job_of(), {frame}, extent, 16, 16).bytes, whole.bytes);
  try {
    work.render(job_of(), {frame}, {20, 10, 17, 16});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("29 x 28 does not fit into 28 x 28"), HasSubstr("pixels of in")));
  }
}

// Branches that need different parts, in different leases, with a mask of its own.
TEST(Region, BranchesNeedDifferentParts) {
  Work work;
  work.description.inputs = {{"plate"}, {"mask", 1}};
  work.description.outputs = {{"out"}};
  work.add("bright", exposure);
  work.add("soft", blur);
  work.add("sharp", unsharp);
  work.add("merge", {"merge", {{"operation", 0}, {"amount", 0.8}}});
  for (const auto& [from, to] : {std::pair("plate", "bright"),
                                 {"plate", "soft"},
                                 {"soft", "sharp"},
                                 {"bright", "merge.a"},
                                 {"sharp", "merge.b"},
                                 {"mask", "merge.mask"},
                                 {"merge", "out"}}) {
    work.edge(from, to);
  }
  const auto plate = [](int) { return float_picture(4); };
  const auto mask = [](int) {
    Picture picture = empty_picture({0, 0, wide, tall}, 4);
    for (std::size_t i = 0; i < picture.bytes.size() / 4; ++i) {
      const float value = static_cast<float>(i % 7) / 6;
      std::memcpy(&picture.bytes[i * 4], &value, 4);
    }
    return picture;
  };
  work.start({wide, tall}, 2);
  const ImageRegion extent{0, 0, wide, tall};
  const Picture whole = work.render(job_of(), {plate, mask}, extent);
  for (const auto& [tile_wide, tile_tall] : tile_sizes) {
    EXPECT_EQ(work.render_tiles(job_of(), {plate, mask}, extent, tile_wide, tile_tall).bytes,
              whole.bytes);
  }
  // 6 pixels for the blur and 3 for the mask that sharpens, up to the edges; the mask as it is.
  JobInfo job = job_of();
  job.region = {10, 2, 20, 5};
  const std::vector<ImageRegion> needed = work.graph->input_regions(job);
  ASSERT_EQ(needed.size(), 2U);
  EXPECT_EQ(needed[0].x, 1);
  EXPECT_EQ(needed[0].y, 0);
  EXPECT_EQ(needed[0].width, 38U);
  EXPECT_EQ(needed[0].height, 16U);
  EXPECT_EQ(needed[1].x, 10);
  EXPECT_EQ(needed[1].height, 5U);
}

// The output lies in the middle of a larger part of its input, which the blur needed before.
TEST(Region, OutputInPlaceIsAPartOfItsInput) {
  Work work;
  work.description.inputs = {{"in"}};
  work.description.outputs = {{"out"}};
  work.add("soft", blur);
  work.add_fixture("one", "per_pixel");
  work.edge("in", "soft");
  work.edge("soft", "one.after");
  work.edge("in", "one.in");
  work.edge("one", "out");
  work.start({wide, tall});
  Picture in = float_picture(11);
  const auto frame = [&](int) { return in; };
  for (const auto& [tile_wide, tile_tall] : tile_sizes) {
    EXPECT_EQ(work.render_tiles(job_of(), {frame}, in.extent, tile_wide, tile_tall).bytes,
              in.bytes);
  }
}

// Plug-ins that know nothing of regions get whole pictures, between others that do.
TEST(Region, PluginsWithoutRegionsGetWholePictures) {
  Work work;
  work.description.inputs = {{"in"}};
  work.description.outputs = {{"out"}};
  work.add("soft", blur);
  work.add_fixture("all", "needs_all");
  work.add_fixture("one", "per_pixel");
  work.add("bright", exposure);
  work.edge("in", "soft");
  work.edge("soft", "all");
  work.edge("all", "one");
  work.edge("one", "bright");
  work.edge("bright", "out");
  work.start({wide, tall});
  const auto frame = [](int) { return float_picture(5); };
  const ImageRegion extent{0, 0, wide, tall};
  const Picture whole = work.render(job_of(), {frame}, extent);
  EXPECT_EQ(work.render_tiles(job_of(), {frame}, extent, 19, 8).bytes, whole.bytes);
  JobInfo job = job_of();
  job.region = {3, 4, 1, 1};
  EXPECT_EQ(work.graph->input_regions(job).at(0).width, wide);
}

// The padding is transparent, and the picture in it is that of the input.
TEST(Region, ExtentsMayGrowAndShrink) {
  for (const int by : {3, 0, -4}) {
    SCOPED_TRACE(by);
    Work work;
    work.description.inputs = {{"in"}};
    work.description.outputs = {{"out"}};
    work.add_fixture("pads", "pads").set_parameter("by", by);
    work.add("copy", {"colour_matrix"});
    work.edge("in", "pads");
    work.edge("pads", "copy");
    work.edge("copy", "out");
    work.start({wide + 6, tall + 6});
    Picture in = float_picture(6);
    const auto frame = [&](int) { return in; };
    const ImageRegion extent = work.graph->output_extents(job_of()).at(0);
    EXPECT_EQ(extent.x, -by);
    EXPECT_EQ(extent.y, -by);
    EXPECT_EQ(extent.width, static_cast<std::uint32_t>(static_cast<int>(wide) + 2 * by));
    EXPECT_EQ(extent.height, static_cast<std::uint32_t>(static_cast<int>(tall) + 2 * by));
    Picture whole = work.render(job_of(), {frame}, extent);
    for (std::int32_t y = extent.y; y < extent.y + static_cast<std::int32_t>(extent.height); ++y) {
      for (std::int32_t x = extent.x; x < extent.x + static_cast<std::int32_t>(extent.width); ++x) {
        const bool is_inside = x >= 0 && y >= 0 && x < static_cast<std::int32_t>(wide) &&
                               y < static_cast<std::int32_t>(tall);
        const std::uint8_t nothing[16] = {};
        ASSERT_EQ(std::memcmp(whole.at(x, y), is_inside ? in.at(x, y) : nothing, 16), 0)
            << x << ", " << y;
      }
    }
    for (const auto& [tile_wide, tile_tall] : tile_sizes) {
      EXPECT_EQ(work.render_tiles(job_of(), {frame}, extent, tile_wide, tile_tall).bytes,
                whole.bytes);
    }
  }
}

// A small picture beside the middle of a large one; where there is none, it is transparent.
TEST(Region, PicturesOfDifferentExtentsMerge) {
  Work work;
  work.description.inputs = {{"a"}, {"b"}};
  work.description.outputs = {{"out"}};
  work.add("merge", {"merge", {{"operation", 1}}});
  work.edge("a", "merge.a");
  work.edge("b", "merge.b");
  work.edge("merge", "out");
  work.start({80, 60});
  JobInfo job = job_of();
  job.extents = {{-4, 40, 20, 10}, {0, 0, wide, tall}};
  Picture small = float_picture(7, job.extents[0]), large = float_picture(8);
  const std::vector<std::function<Picture(int)>> inputs{[&](int) { return small; },
                                                        [&](int) { return large; }};
  const ImageRegion extent = work.graph->output_extents(job).at(0);
  EXPECT_EQ(extent.x, -4);
  EXPECT_EQ(extent.y, 0);
  EXPECT_EQ(extent.width, wide + 4);
  EXPECT_EQ(extent.height, 50U);
  Picture whole = work.render(job, inputs, extent);
  const auto component = [](Picture& picture, std::int32_t x, std::int32_t y, std::size_t c) {
    const ImageRegion& its = picture.extent;
    if (x < its.x || y < its.y || x >= its.x + static_cast<std::int32_t>(its.width) ||
        y >= its.y + static_cast<std::int32_t>(its.height)) {
      return 0.0F;
    }
    float value = 0;
    std::memcpy(&value, picture.at(x, y) + c * 4, 4);
    return value;
  };
  for (std::int32_t y = 0; y < 50; ++y) {
    for (std::int32_t x = -4; x < static_cast<std::int32_t>(wide); ++x) {
      for (std::size_t c = 0; c < 4; ++c) {
        const float b = component(large, x, y, c);
        const float sum = component(small, x, y, c) + b;
        ASSERT_NEAR(component(whole, x, y, c), c == 3 ? std::min(sum, 1.0F) : sum, 1e-5)
            << x << ", " << y;
      }
    }
  }
  EXPECT_EQ(work.render_tiles(job, inputs, extent, 11, 9).bytes, whole.bytes);
}

std::string refusal(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(Region, AbsurdAnswersAreRefusedByName) {
  Work work;
  work.description.inputs = {{"in"}};
  work.description.outputs = {{"out"}};
  PluginInstance& absurd = work.add_fixture("node", "absurd");
  work.edge("in", "node");
  work.edge("node", "out");
  work.start({wide, tall});
  const auto frame = [](int) { return float_picture(9); };
  const Picture sound = work.render(job_of(), {frame}, {3, 2, 9, 8});
  for (const auto& [answer, text] :
       {std::pair(1, "its output out (node) has 0 x 0 pixels"),
        {2, "its output out (node) has 71 x 2147483649 pixels"},
        {3, "its output out (node) has 71 x 45 pixels at (2147483647, 0)"},
        {4, "needs 0 x 0 pixels at (0, 0) of its input in (node), which has 71 x 45 pixels"},
        {5, "needs 4294967280 x 2 pixels"},
        {6, "needs 1 x 1 pixels at (71, 0) of its input in"},
        {7, "needs 73 x 47 pixels at (-1, -1)"},
        {8, "the map is lost"}}) {
    absurd.set_parameter("answer", answer);
    EXPECT_THAT(refusal(ErrorKind::plugin_failed,
                        [&] {
                          work.render(job_of(), {frame}, {3, 2, 9, 8});
                        }),
                AllOf(HasSubstr("plug-in absurd"), HasSubstr(text)));
    float pixel[4] = {};
    JobInfo job = job_of();
    job.region = {0, 0, 1, 1};
    EXPECT_THAT(refusal(ErrorKind::plugin_failed, [&] { work.graph->process(pixel, pixel, job); }),
                HasSubstr(text));
  }
  absurd.set_parameter("answer", 0);
  EXPECT_EQ(work.render(job_of(), {frame}, {3, 2, 9, 8}).bytes, sound.bytes);
}

TEST(Region, RegionsOutsideOfThePictureAreRefused) {
  Work work;
  work.row({exposure});
  work.start({wide, tall});
  const auto said = [&](const JobInfo& job) {
    return refusal(ErrorKind::invalid_argument,
                   [&] { static_cast<void>(work.graph->input_regions(job)); });
  };
  JobInfo job = job_of();
  job.region = {1, 0, wide, tall};
  EXPECT_THAT(said(job), HasSubstr("71 x 45 pixels at (1, 0), is not inside n0.out, which has"));
  job.region = {-1, 0, 1, 1};
  EXPECT_THAT(said(job), HasSubstr("is not inside"));
  job.region = {INT32_MAX, 0, 10, 10};
  EXPECT_THAT(said(job), HasSubstr("out of range"));
  job.region = {0, 0, 5, 0};
  EXPECT_THAT(said(job), HasSubstr("empty"));
  job.region = {};
  job.extents = {{0, 0, 4, 4}, {0, 0, 4, 4}};
  EXPECT_THAT(said(job), HasSubstr("2 extents; the graph has 1 inputs"));
  job.extents = {{0, INT32_MIN, 4, 4}};
  EXPECT_THAT(said(job), HasSubstr("the extent of the input \"in\""));
}

}  // namespace
}  // namespace ctxbroker::test
