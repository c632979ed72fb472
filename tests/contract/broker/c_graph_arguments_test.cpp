// SPDX-License-Identifier: Apache-2.0
// host_graph.h: what a caller can get wrong.
#include <gmock/gmock.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

// The sound arguments of every call, each ready to be spoilt.
class CGraphArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
    ASSERT_EQ(ctxb_plugin_library_load(broker, test_plugin("mixer").c_str(), &library), CTXB_OK)
        << ctxb_last_error();
    ASSERT_EQ(ctxb_instance_create(broker, library, "mixer", nullptr, &mixer), CTXB_OK)
        << ctxb_last_error();
    node.instance = mixer;
    description = {sizeof description, 1, 1, 1, 2, 0, &input, &output, &node, edges, nullptr};
  }
  void TearDown() override {
    EXPECT_EQ(ctxb_instance_destroy(mixer), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_close(library), CTXB_OK);
    EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  }

  static void expect_refusal(ctxb_status status, const char* why) {
    EXPECT_EQ(status, CTXB_ERROR_INVALID_ARGUMENT) << why;
    EXPECT_THAT(ctxb_last_error(), HasSubstr(why));
  }
  // The graph as it would be after the change.
  void graph_is_refused(const std::function<void()>& spoil, const char* why) {
    const auto kept =
        std::tuple(description, input, output, node, edges[0], edges[1], sizes, options);
    spoil();
    ctxb_graph* graph = nullptr;
    expect_refusal(ctxb_graph_create(broker, &description, &sizes, &options, &graph), why);
    EXPECT_EQ(graph, nullptr);
    std::tie(description, input, output, node, edges[0], edges[1], sizes, options) = kept;
  }

  ctxb_broker* broker = nullptr;
  ctxb_plugin_library* library = nullptr;
  ctxb_instance* mixer = nullptr;
  ctxb_activation_sizes sizes{sizeof sizes, 8, 2, 0, 48000};
  ctxb_graph_options options{sizeof options, 0, 0, 0, 0, 0, nullptr, nullptr, 0, 0};
  ctxb_graph_port input{sizeof input, 0, 0, 0, "voice"};
  ctxb_graph_port output{sizeof output, 0, 0, 0, "mix"};
  ctxb_graph_node node{sizeof node, 0, "mixer", nullptr};
  ctxb_graph_edge edges[2]{{sizeof(ctxb_graph_edge), 0, "voice", "mixer"},
                           {sizeof(ctxb_graph_edge), 0, "mixer", "mix"}};
  ctxb_graph_description description{};
};

TEST_F(CGraphArgumentsTest, NullHandlesAreRefused) {
  ctxb_broker* no_broker = nullptr;
  ctxb_plugin_library* no_library = nullptr;
  ctxb_instance* no_instance = nullptr;
  ctxb_graph* no_graph = nullptr;
  const char* const path = "x.so";
  double value = 7;
  std::uint64_t number = 7;
  std::uint32_t flag = 7;
  const std::vector<ctxb_status> answers = {
      ctxb_broker_open_without_driver(nullptr, nullptr),
      ctxb_broker_force_loss(nullptr, 1, 0, "x"),
      ctxb_broker_force_loss(broker, 1, 0, nullptr),
      ctxb_broker_unload_idle_modules(nullptr, 0, &number),
      ctxb_plugin_library_load(no_broker, path, &no_library),
      ctxb_plugin_library_load(broker, nullptr, &no_library),
      ctxb_plugin_library_load(broker, path, nullptr),
      ctxb_plugin_library_close(no_library),
      ctxb_plugin_library_describe(library, nullptr),
      ctxb_plugin_library_describe(no_library, nullptr),
      ctxb_plugin_library_plugin(no_library, 0, nullptr),
      ctxb_plugin_library_plugin(library, 0, nullptr),
      ctxb_plugin_library_input(library, 0, 0, nullptr),
      ctxb_plugin_library_output(no_library, 0, 0, nullptr),
      ctxb_plugin_library_parameter(library, 0, 0, nullptr),
      ctxb_instance_create(no_broker, library, "mixer", nullptr, &no_instance),
      ctxb_instance_create(broker, no_library, "mixer", nullptr, &no_instance),
      ctxb_instance_create(broker, library, nullptr, nullptr, &no_instance),
      ctxb_instance_create(broker, library, "mixer", nullptr, nullptr),
      ctxb_instance_destroy(no_instance),
      ctxb_instance_set_parameter(no_instance, "gain", 1),
      ctxb_instance_set_parameter(mixer, nullptr, 1),
      ctxb_instance_parameter(no_instance, "gain", &value),
      ctxb_instance_parameter(mixer, "gain", nullptr),
      ctxb_instance_activate(no_instance, &sizes),
      ctxb_instance_activate(mixer, nullptr),
      ctxb_instance_deactivate(no_instance),
      ctxb_instance_save_state(
          no_instance, [](auto...) { return CTXB_OK; }, nullptr),
      ctxb_instance_save_state(mixer, nullptr, nullptr),
      ctxb_instance_load_state(no_instance, "", 0),
      ctxb_instance_lease(mixer, nullptr),
      ctxb_instance_lease(no_instance, nullptr),
      ctxb_instance_measure(mixer, nullptr),
      ctxb_instance_measure(no_instance, nullptr),
      ctxb_graph_create(no_broker, &description, &sizes, nullptr, &no_graph),
      ctxb_graph_create(broker, nullptr, &sizes, nullptr, &no_graph),
      ctxb_graph_create(broker, &description, nullptr, nullptr, &no_graph),
      ctxb_graph_create(broker, &description, &sizes, nullptr, nullptr),
      ctxb_graph_destroy(no_graph),
      ctxb_graph_submit(no_graph, nullptr, nullptr, &number),
      ctxb_graph_finish(no_graph, 1, &flag),
      ctxb_graph_is_done(no_graph, 1, &flag),
      ctxb_graph_latency_before(no_graph, 0, &number),
      ctxb_graph_process(no_graph, nullptr, nullptr, nullptr),
      ctxb_graph_follow(no_graph, 1, nullptr)};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i], CTXB_ERROR_INVALID_ARGUMENT) << "call " << i;
  }
  EXPECT_EQ(ctxb_instance_is_active(no_instance), 0u);
  EXPECT_EQ(ctxb_instance_latency(no_instance) + ctxb_instance_tail(no_instance), 0u);
  EXPECT_EQ(ctxb_instance_restart_requested(no_instance) + ctxb_graph_latency(no_graph), 0u);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(number, 0u);
  EXPECT_EQ(flag, 0u);
}

TEST_F(CGraphArgumentsTest, UnknownLibraryOrPluginIsUnavailable) {
  ctxb_plugin_library* none = library;
  EXPECT_EQ(ctxb_plugin_library_load(broker, "/no/such/file.so", &none), CTXB_ERROR_UNAVAILABLE);
  EXPECT_EQ(none, nullptr);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("/no/such/file.so"));
  ctxb_instance* made = nullptr;
  EXPECT_EQ(ctxb_instance_create(broker, library, "reverb", nullptr, &made),
            CTXB_ERROR_UNAVAILABLE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("reverb"));
  EXPECT_EQ(ctxb_plugin_library_load(broker, test_plugin("broken_abi_major").c_str(), &none),
            CTXB_ERROR_VERSION);
  EXPECT_EQ(ctxb_plugin_library_load(broker, test_plugin("broken_bad_descriptor").c_str(), &none),
            CTXB_ERROR);
}

TEST_F(CGraphArgumentsTest, BadInstanceOptionsAreRefused) {
  const auto refused = [&](const std::function<void(ctxb_instance_options&)>& spoil,
                           const char* why) {
    ctxb_instance_options wanted{};
    wanted.size = sizeof wanted;
    spoil(wanted);
    ctxb_instance* made = nullptr;
    expect_refusal(ctxb_instance_create(broker, library, "mixer", &wanted, &made), why);
    EXPECT_EQ(made, nullptr);
  };
  refused([](auto& wanted) { wanted.size = 2; }, "sizeof(ctxb_instance_options)");
  refused([](auto& wanted) { wanted.placement = 9; }, "placement 9");
  refused([](auto& wanted) { wanted.device = 1; }, "only CTXB_PLACEMENT_DEVICE");
  refused([](auto& wanted) { wanted.lease = CTXB_LEASE_WORKER; }, "lease 4");
  refused([](auto& wanted) { wanted.multiprocessors = 8; }, "only CTXB_LEASE_GREEN");
  refused([](auto& wanted) { wanted.job_graphs = 2; }, "job_graphs is 2");
  ctxb_instance_options wanted{};
  wanted.size = sizeof wanted;
  wanted.placement = CTXB_PLACEMENT_DEVICE;
  wanted.device = 99;
  ctxb_instance* made = nullptr;
  EXPECT_EQ(ctxb_instance_create(broker, library, "mixer", &wanted, &made), CTXB_ERROR_UNAVAILABLE);
  // The plug-in allocates 8 bytes.
  wanted.device = 0;
  wanted.memory_budget = 4;
  ASSERT_EQ(ctxb_instance_create(broker, library, "mixer", &wanted, &made), CTXB_OK);
  EXPECT_LT(ctxb_instance_activate(made, &sizes), 0);
  EXPECT_EQ(ctxb_instance_destroy(made), CTXB_OK);
}

TEST_F(CGraphArgumentsTest, BadParametersAndActivationSizesAreRefused) {
  expect_refusal(ctxb_instance_set_parameter(mixer, "loudness", 1), "loudness");
  expect_refusal(ctxb_instance_set_parameter(mixer, "gain", 5), "gain");
  double value = 7;
  expect_refusal(ctxb_instance_parameter(mixer, "loudness", &value), "loudness");
  EXPECT_EQ(value, 0);
  sizes.realtime = 2;
  expect_refusal(ctxb_instance_activate(mixer, &sizes), "realtime is 2");
  sizes.realtime = 0;
  sizes.sample_rate = 0;
  EXPECT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_ERROR_INVALID_ARGUMENT);
  sizes.sample_rate = 48000;
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_ERROR_WRONG_STATE);
}

TEST_F(CGraphArgumentsTest, BadGraphDescriptionsAreRefused) {
  graph_is_refused([] {}, "not active");
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  graph_is_refused([&] { description.size = 3; }, "sizeof(ctxb_graph_description)");
  graph_is_refused([&] { description.device = 1; }, "no tenant whose memory");
  graph_is_refused([&] { description.inputs = nullptr; }, "inputs is null");
  graph_is_refused([&] { description.input_count = 1u << 30; }, "too long");
  graph_is_refused([&] { input.size = 10; }, "sizeof(ctxb_graph_port)");
  graph_is_refused([&] { input.name = nullptr; }, "name in the graph's description is null");
  graph_is_refused([&] { input.samples = 9; }, "samples that its media does not have");
  graph_is_refused([&] { input.channels = 33; }, "more than 32 channels");
  graph_is_refused([&] { output.on_device = 2; }, "on_device is 2");
  graph_is_refused([&] { output.on_device = 1; }, "the description has no tenant");
  graph_is_refused([&] { description.output_count = 0; }, "no output");
  graph_is_refused([&] { node.instance = nullptr; }, "the instance of mixer is null");
  graph_is_refused([&] { node.reserved = 1; }, "reserved of a ctxb_graph_node");
  graph_is_refused([&] { description.node_count = 0; }, "at least one plug-in");
  graph_is_refused([&] { edges[1].size += 8; }, "sizeof(ctxb_graph_edge)");
  graph_is_refused([&] { edges[1].to = nullptr; }, "name in the graph's description is null");
  graph_is_refused([&] { edges[1].reserved = 1; }, "reserved of a ctxb_graph_edge");
  graph_is_refused([&] { edges[0].to = "mixer.third"; }, "it has: in, second");
  graph_is_refused([&] { edges[1].from = "mixer.peak", description.edge_count = 1; },
                   "has no source");
  graph_is_refused([&] { sizes.max_width = 9; }, "active for 8 x 2 only");
  graph_is_refused([&] { options.jobs_in_flight = 65; }, "jobs_in_flight");
  graph_is_refused([&] { options.measure = 2; }, "measure is 2");
  graph_is_refused([&] { options.without_marks = 2; }, "without_marks is 2");
  graph_is_refused([&] { options.late = 3; }, "late is 3");
  graph_is_refused([&] { options.changes_per_job = 1u << 30; }, "changes_per_job");
  // An element that a later header made longer is stridden over, if what is new is 0.
  struct {
    ctxb_graph_edge edge;
    std::uint64_t later;
  } longer[2] = {{edges[0], 0}, {edges[1], 0}};
  longer[0].edge.size = longer[1].edge.size = sizeof longer[0];
  graph_is_refused([&] { description.edges = &longer[0].edge, longer[1].later = 1; },
                   "does not know");
  longer[1].later = 0;
  description.edges = &longer[0].edge;
  ctxb_graph* graph = nullptr;
  ASSERT_EQ(ctxb_graph_create(broker, &description, &sizes, nullptr, &graph), CTXB_OK)
      << ctxb_last_error();
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

TEST_F(CGraphArgumentsTest, BadJobsAreRefused) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph* graph = nullptr;
  ASSERT_EQ(ctxb_graph_create(broker, &description, &sizes, &options, &graph), CTXB_OK)
      << ctxb_last_error();
  std::vector<float> samples(16, 1);
  const void* read[] = {samples.data()};
  void* written[] = {samples.data()};
  const ctxb_job_buffers sound{sizeof sound, 1, 1, 0, read, written, nullptr};
  const ctxb_job_info whole{sizeof whole, 8, 2, 0, 0, 48000, 0, nullptr, {}, 0, 0, nullptr};
  const auto refused = [&](const std::function<void(ctxb_job_buffers&, ctxb_job_info&)>& spoil,
                           const char* why) {
    ctxb_job_buffers buffers = sound;
    ctxb_job_info info = whole;
    spoil(buffers, info);
    std::uint64_t job = 7;
    expect_refusal(ctxb_graph_process(graph, &buffers, &info, nullptr), why);
    expect_refusal(ctxb_graph_submit(graph, &buffers, &info, &job), why);
    EXPECT_EQ(job, 0u);
  };
  refused([](auto& buffers, auto&) { buffers.size = 1; }, "sizeof(ctxb_job_buffers)");
  refused([](auto& buffers, auto&) { buffers.reserved = 1; }, "reserved");
  refused([](auto& buffers, auto&) { buffers.input_count = 0; }, "0 inputs; the graph has 1");
  refused([](auto& buffers, auto&) { buffers.output_count = 1u << 31; }, "the graph has 1");
  refused([](auto& buffers, auto&) { buffers.inputs = nullptr; }, "inputs is null");
  refused(
      [&](auto& buffers, auto&) {
        static void* const nowhere[] = {nullptr};
        buffers.outputs = nowhere;
      },
      "an output of the job is null");
  refused([](auto&, auto& info) { info.size = 1; }, "sizeof(ctxb_job_info)");
  refused([](auto&, auto& info) { info.width = 9; }, "does not fit");
  refused([](auto&, auto& info) { info.height = 0; }, "is 0");
  refused([](auto&, auto& info) { info.sample_rate = 44100; }, "sample rate of 44100");
  refused([](auto&, auto& info) { info.discontinuity = 2; }, "discontinuity is 2");
  ctxb_parameter_change change{sizeof change, 0, mixer, 3, 0.5, 0, 0, 0};
  ctxb_transport song{};
  song.size = sizeof song;
  ctxb_job_events events{sizeof events, 1, &change, &song};
  const auto events_are_refused = [&](const std::function<void()>& spoil, const char* why) {
    const auto kept = std::tuple(change, song, events);
    spoil();
    refused([&](auto&, auto& info) { info.events = &events; }, why);
    std::tie(change, song, events) = kept;
  };
  events_are_refused([&] { events.size = 1; }, "sizeof(ctxb_job_events)");
  events_are_refused([&] { events.changes = nullptr; }, "changes is null");
  events_are_refused([&] { events.change_count = 1025; }, "1025 changes; at most 1024");
  events_are_refused([&] { change.size = 7; }, "sizeof(ctxb_parameter_change)");
  events_are_refused([&] { change.reserved = 1; }, "reserved of a ctxb_parameter_change");
  events_are_refused([&] { change.from = 1; }, "no ramp");
  events_are_refused([&] { change.instance = nullptr; }, "a change has no instance");
  events_are_refused([&] { change.parameter = 9; }, "names parameter 9");
  events_are_refused([&] { change.offset = 8; }, "the block has 8 frames");
  events_are_refused([&] { change.value = 5; }, "gain");
  events_are_refused([&] { song.size = 9; }, "sizeof(ctxb_transport)");
  events_are_refused([&] { song.flags = 1u << 30; }, "flags of the ctxb_transport");
  events_are_refused([&] { song.flags = CTXB_TRANSPORT_TEMPO; }, "tempo is not above 0");
  refused([&](auto& buffers, auto&) { buffers.after = &song; }, "no port of the graph is on");
  EXPECT_EQ(ctxb_graph_submit(graph, &sound, &whole, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_is_done(graph, 1, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_process(graph, &sound, &whole, nullptr), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(samples[0], 0);
  EXPECT_EQ(samples[1], 1);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

}  // namespace
}  // namespace ctxbroker
