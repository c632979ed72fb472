// SPDX-License-Identifier: Apache-2.0
// host_graph.h: frames around a job's frame, and parts of pictures.
#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

// A graph of one plug-in of the library "images".
class CGraphImagesTest : public ::testing::Test {
 public:
  ~CGraphImagesTest() override {
    EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
    EXPECT_EQ(ctxb_instance_destroy(instance), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_close(library), CTXB_OK);
    EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  }

 protected:
  CGraphImagesTest() {
    EXPECT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_load(broker, test_plugin("images").c_str(), &library), CTXB_OK)
        << ctxb_last_error();
  }
  void create(const char* plugin) {
    ASSERT_EQ(ctxb_instance_create(broker, library, plugin, nullptr, &instance), CTXB_OK)
        << ctxb_last_error();
  }
  void build() {
    ctxb_activation_sizes sizes{};
    sizes.size = sizeof sizes;
    sizes.max_width = sizes.max_height = 64;
    ASSERT_EQ(ctxb_instance_activate(instance, &sizes), CTXB_OK) << ctxb_last_error();
    ctxb_graph_port in{}, out{};
    in.size = out.size = sizeof in;
    in.name = "in";
    out.name = "out";
    const ctxb_graph_node node{sizeof node, 0, "node", instance};
    const ctxb_graph_edge edges[] = {{sizeof(ctxb_graph_edge), 0, "in", "node"},
                                     {sizeof(ctxb_graph_edge), 0, "node", "out"}};
    ctxb_graph_description description{};
    description.size = sizeof description;
    description.input_count = description.output_count = description.node_count = 1;
    description.edge_count = 2;
    description.inputs = &in;
    description.outputs = &out;
    description.nodes = &node;
    description.edges = edges;
    ASSERT_EQ(ctxb_graph_create(broker, &description, &sizes, nullptr, &graph), CTXB_OK)
        << ctxb_last_error();
  }
  static ctxb_job_info picture(std::uint32_t width, std::uint32_t height) {
    ctxb_job_info info{};
    info.size = sizeof info;
    info.width = width;
    info.height = height;
    return info;
  }
  ctxb_status run(const std::vector<const void*>& inputs, void* output,
                  const ctxb_job_info& info) const {
    ctxb_job_buffers buffers{};
    buffers.size = sizeof buffers;
    buffers.input_count = static_cast<std::uint32_t>(inputs.size());
    buffers.output_count = 1;
    buffers.inputs = inputs.data();
    buffers.outputs = &output;
    return ctxb_graph_process(graph, &buffers, &info, nullptr);
  }

  ctxb_broker* broker = nullptr;
  ctxb_plugin_library* library = nullptr;
  ctxb_instance* instance = nullptr;
  ctxb_graph* graph = nullptr;
};

TEST_F(CGraphImagesTest, AJobHasTheFramesThatThePlugInAsksFor) {
  create("asks_frames");
  ASSERT_EQ(ctxb_instance_set_parameter(instance, "first", -1), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_instance_set_parameter(instance, "last", 2), CTXB_OK) << ctxb_last_error();
  build();
  ASSERT_EQ(ctxb_graph_job_input_count(graph), 4u);
  std::vector<float> frames(4, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ctxb_job_input input{};
    input.size = sizeof input;
    ASSERT_EQ(ctxb_graph_job_input(graph, i, &input), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(input.input, 0u);
    EXPECT_EQ(input.frame, static_cast<std::int32_t>(i) - 1);
  }
  ctxb_job_input none{};
  none.size = sizeof none;
  EXPECT_EQ(ctxb_graph_job_input(graph, 4, &none), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_job_input(graph, 0, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_job_input_count(nullptr), 0u);
  float images[4][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}, {4, 4, 4, 4}}, out[4] = {};
  EXPECT_EQ(run({images[0], images[1], images[2], images[3]}, out, picture(1, 1)), CTXB_OK)
      << ctxb_last_error();
  EXPECT_EQ(out[0], 2) << "the job's own frame";
  EXPECT_EQ(run({images[0]}, out, picture(1, 1)), CTXB_ERROR_INVALID_ARGUMENT);
}

TEST_F(CGraphImagesTest, HostGivesAndGetsTilesOfAPicture) {
  create("pads");
  build();
  ctxb_job_info info = picture(16, 8);
  ctxb_rectangle extent{}, region{};
  ASSERT_EQ(ctxb_graph_output_extents(graph, &info, 1, &extent), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(extent.x, -3);
  EXPECT_EQ(extent.y, -3);
  EXPECT_EQ(extent.width, 22u);
  EXPECT_EQ(extent.height, 14u);
  // A tile at the corner: a part of it is new, the rest comes from 2 x 1 pixels.
  info.region = {-3, -3, 5, 4};
  ASSERT_EQ(ctxb_graph_input_regions(graph, &info, 1, &region), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(region.width, 2u);
  ASSERT_EQ(region.height, 1u);
  const float in[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  std::vector<float> out(std::size_t{5} * 4 * 4, -1);
  ASSERT_EQ(run({in}, out.data(), info), CTXB_OK) << ctxb_last_error();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t inside = (3 * 5 + 3) * 4;
    EXPECT_EQ(out[i], i < inside ? 0 : static_cast<float>(i - inside + 1)) << i;
  }
  // The same picture elsewhere.
  const ctxb_rectangle elsewhere{100, 50, 16, 8};
  info.extents = &elsewhere;
  info.extent_count = 1;
  ASSERT_EQ(ctxb_graph_output_extents(graph, &info, 1, &extent), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(extent.x, 97);
}

TEST_F(CGraphImagesTest, BadRegionsAndExtentsAreRefused) {
  create("pads");
  build();
  ctxb_job_info info = picture(16, 8);
  ctxb_rectangle answers[2] = {};
  EXPECT_EQ(ctxb_graph_output_extents(graph, &info, 2, answers), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("count is 2, and there are 1"));
  EXPECT_EQ(ctxb_graph_input_regions(graph, &info, 1, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_input_regions(nullptr, &info, 1, answers), CTXB_ERROR_INVALID_ARGUMENT);
  info.region = {0, 0, 100, 1};
  EXPECT_EQ(ctxb_graph_input_regions(graph, &info, 1, answers), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("is not inside"));
  info.region = {};
  info.extent_count = 1;
  EXPECT_EQ(ctxb_graph_output_extents(graph, &info, 1, answers), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("extents is null"));
}

}  // namespace
}  // namespace ctxbroker
