// SPDX-License-Identifier: Apache-2.0
// host_graph.h, as a host written in C meets it: libraries, instances, graphs and jobs. The plug-in
// is written in C too.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t channels = 2, frames = 8;
constexpr double rate = 48000;
using Block = std::vector<float>;

// A broker with one instance of the mixer, of which every host that is refused here could be made.
class CGraphTest : public ::testing::Test {
 public:
  ~CGraphTest() override {
    EXPECT_EQ(ctxb_instance_destroy(mixer), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_close(library), CTXB_OK);
    EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  }

 protected:
  CGraphTest() {
    EXPECT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_load(broker, test_plugin("mixer").c_str(), &library), CTXB_OK)
        << ctxb_last_error();
    mixer = create();
  }

  ctxb_instance* create() const {
    ctxb_instance* made = nullptr;
    EXPECT_EQ(ctxb_instance_create(broker, library, "mixer", nullptr, &made), CTXB_OK)
        << ctxb_last_error();
    return made;
  }
  ctxb_graph* make(std::uint32_t jobs_in_flight = 1) {
    ctxb_graph_options options{};
    options.size = sizeof options;
    options.jobs_in_flight = jobs_in_flight;
    options.measure = 1;
    options.on_done = [](void* data, std::uint64_t job) { ++static_cast<Done*>(data)->at(job); };
    options.on_done_data = &told;
    ctxb_graph* graph = nullptr;
    EXPECT_EQ(ctxb_graph_create(broker, &description, &sizes, &options, &graph), CTXB_OK)
        << ctxb_last_error();
    return graph;
  }
  // One block through a graph that `make` made.
  ctxb_status run(ctxb_graph* graph, const Block& a, const Block& b, Block& out, float& peak) {
    const void* const read[] = {a.data(), b.data()};
    void* const written[] = {out.data(), &peak};
    const ctxb_job_buffers buffers{sizeof buffers, 2, 2, 0, read, written, nullptr};
    return ctxb_graph_process(graph, &buffers, &info, nullptr);
  }

  using Done = std::array<std::atomic<int>, 16>;  // how often each job was told as done
  Done told{};
  ctxb_broker* broker = nullptr;
  ctxb_plugin_library* library = nullptr;
  ctxb_instance* mixer = nullptr;
  ctxb_activation_sizes sizes{sizeof sizes, frames, channels, 0, rate};
  ctxb_job_info info{sizeof info, frames, channels, 0, 0, rate, 0, nullptr, {}, 0, 0, nullptr};
  std::array<ctxb_graph_port, 2> inputs{
      {{sizeof(ctxb_graph_port), 0, 0, 0, "voice"}, {sizeof(ctxb_graph_port), 0, 0, 0, "music"}}};
  std::array<ctxb_graph_port, 2> outputs{
      {{sizeof(ctxb_graph_port), 0, 0, 0, "mix"}, {sizeof(ctxb_graph_port), 0, 0, 0, "level"}}};
  ctxb_graph_node node{sizeof node, 0, "mixer", nullptr};
  std::array<ctxb_graph_edge, 4> edges{{{sizeof(ctxb_graph_edge), 0, "voice", "mixer"},
                                        {sizeof(ctxb_graph_edge), 0, "music", "mixer.second"},
                                        {sizeof(ctxb_graph_edge), 0, "mixer", "mix"},
                                        {sizeof(ctxb_graph_edge), 0, "mixer.peak", "level"}}};
  ctxb_graph_description description{};

  void SetUp() override {
    node.instance = mixer;
    description = {sizeof description, 2,      2, 1, 4, 0, inputs.data(), outputs.data(), &node,
                   edges.data(),       nullptr};
  }
};

template <typename Struct>
Struct sized() {
  Struct made{};
  made.size = sizeof made;
  return made;
}

TEST_F(CGraphTest, LibraryDescribesItsPluginsPortsAndParameters) {
  auto file = sized<ctxb_library_info>();
  ASSERT_EQ(ctxb_plugin_library_describe(library, &file), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(file.name, "mixer");
  EXPECT_THAT(file.path, HasSubstr("/mixer.so"));
  EXPECT_EQ(file.plugin_count, 1u);
  EXPECT_NE(file.tenant, 0u);
  auto plugin = sized<ctxb_plugin_info>();
  ASSERT_EQ(ctxb_plugin_library_plugin(library, 0, &plugin), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(plugin.id, "com.example.test.mixer");
  EXPECT_STREQ(plugin.short_name, "mixer");
  EXPECT_STREQ(plugin.name, "Mixer");
  EXPECT_EQ(plugin.media, uint32_t{CTXB_MEDIA_AUDIO});
  EXPECT_EQ(plugin.flags, CTXB_PLUGIN_UNLOADABLE);
  EXPECT_EQ(plugin.cuda_use, uint32_t{CTXB_CUDA_KERNELS});
  EXPECT_EQ(plugin.features[0], nullptr);
  EXPECT_EQ(plugin.input_count, 2u);
  EXPECT_EQ(plugin.output_count, 2u);
  EXPECT_EQ(plugin.parameter_count, 1u);
  auto port = sized<ctxb_port_info>();
  ASSERT_EQ(ctxb_plugin_library_input(library, 0, 1, &port), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(port.id, "second");
  EXPECT_EQ(port.flags, CTXB_PORT_OPTIONAL);
  EXPECT_EQ(port.channels, CTXB_CHANNELS_ANY);
  EXPECT_EQ(port.samples, CTXB_SAMPLE_FLOAT);
  ASSERT_EQ(ctxb_plugin_library_output(library, 0, 0, &port), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(port.in_place, 1u);
  ASSERT_EQ(ctxb_plugin_library_output(library, 0, 1, &port), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(port.name, "Peak");
  EXPECT_EQ(port.flags, CTXB_PORT_OPTIONAL | CTXB_PORT_RESULTS);
  EXPECT_EQ(port.result_bytes, 4u);
  auto parameter = sized<ctxb_parameter_info>();
  ASSERT_EQ(ctxb_plugin_library_parameter(library, 0, 0, &parameter), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(parameter.id, "gain");
  EXPECT_EQ(parameter.type, uint32_t{CTXB_PARAMETER_FLOAT});
  EXPECT_EQ(parameter.maximum, 4);
  EXPECT_EQ(parameter.default_numbers[0], 1);
  EXPECT_EQ(parameter.number_count, 1u);
  EXPECT_STREQ(parameter.group, "");
  EXPECT_EQ(parameter.flags, CTXB_PARAMETER_AUTOMATABLE);
  EXPECT_EQ(parameter.choices[0], nullptr);

  EXPECT_EQ(ctxb_plugin_library_plugin(library, 1, &plugin), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("library mixer has no plug-in 1; it has 1"));
  EXPECT_EQ(ctxb_plugin_library_input(library, 0, 2, &port), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("plug-in mixer has no input 2; it has 2"));
  EXPECT_EQ(ctxb_plugin_library_output(library, 0, 9, &port), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_plugin_library_parameter(library, 0, 1, &parameter), CTXB_ERROR_INVALID_ARGUMENT);
  // The members that an older header lacks are left alone.
  plugin.size = offsetof(ctxb_plugin_info, parameter_count);
  plugin.parameter_count = 77;
  EXPECT_EQ(ctxb_plugin_library_plugin(library, 0, &plugin), CTXB_OK);
  EXPECT_EQ(plugin.parameter_count, 77u);
}

TEST_F(CGraphTest, ChoiceParameterListsItsChoices) {
  ctxb_plugin_library* behaviours = nullptr;
  ASSERT_EQ(ctxb_plugin_library_load(broker, test_plugin("behaviours").c_str(), &behaviours),
            CTXB_OK);
  auto parameter = sized<ctxb_parameter_info>();
  ASSERT_EQ(ctxb_plugin_library_parameter(behaviours, 0, 2, &parameter), CTXB_OK);
  EXPECT_EQ(parameter.type, uint32_t{CTXB_PARAMETER_CHOICE});
  EXPECT_STREQ(parameter.choices[0], "plain");
  EXPECT_STREQ(parameter.choices[1], "fancy");
  EXPECT_EQ(parameter.choices[2], nullptr);
  EXPECT_EQ(ctxb_plugin_library_close(behaviours), CTXB_OK);
}

TEST_F(CGraphTest, GraphMixesTwoInputsIntoTwoOutputs) {
  ASSERT_EQ(ctxb_instance_set_parameter(mixer, "gain", 0.5), CTXB_OK) << ctxb_last_error();
  double gain = 0;
  ASSERT_EQ(ctxb_instance_parameter(mixer, "gain", &gain), CTXB_OK);
  EXPECT_EQ(gain, 0.5);
  EXPECT_EQ(ctxb_instance_is_active(mixer), 0u);
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_instance_is_active(mixer), 1u);
  EXPECT_EQ(ctxb_instance_latency(mixer), 1u);
  EXPECT_EQ(ctxb_instance_tail(mixer), 1u);
  ctxb_graph* graph = make();
  const Block voice{1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -8};
  const Block music(channels * frames, 10);
  Block out(channels * frames);
  float level = 0;
  ASSERT_EQ(run(graph, voice, music, out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_THAT(out, ElementsAre(0, 6, 7, 8, 9, 10, 11, 12, 0, 4, 3, 2, 1, 0, -1, -2));
  EXPECT_EQ(level, 12);
  // The frame that was late comes first.
  ASSERT_EQ(ctxb_instance_set_parameter(mixer, "gain", 0), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(run(graph, voice, music, out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_THAT(out, ElementsAre(13, 1, 2, 3, 4, 5, 6, 7, -3, -1, -2, -3, -4, -5, -6, -7));
  EXPECT_EQ(level, 13);
  info.discontinuity = 1;
  ASSERT_EQ(run(graph, voice, music, out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(out[0], 0) << "the history is forgotten";
  auto metrics = sized<ctxb_instance_metrics>();
  ASSERT_EQ(ctxb_instance_measure(mixer, &metrics), CTXB_OK);
  EXPECT_EQ(metrics.jobs, 3u);
  EXPECT_EQ(metrics.launches, 3u);
  EXPECT_EQ(metrics.memory_bytes, channels * sizeof(float));
  EXPECT_EQ(metrics.strikes, 0u);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

TEST_F(CGraphTest, JobsInFlightFinishInTheirOrder) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  constexpr std::size_t jobs = 5;
  ctxb_graph* graph = make(3);
  std::vector<Block> outs(jobs, Block(channels * frames));
  std::vector<float> levels(jobs);
  const Block nothing(channels * frames);
  for (std::size_t i = 0; i < jobs; ++i) {
    const Block voice(channels * frames, static_cast<float>(i + 1));  // read before it returns
    const void* const read[] = {voice.data(), nothing.data()};
    void* const written[] = {outs[i].data(), &levels[i]};
    const ctxb_job_buffers buffers{sizeof buffers, 2, 2, 0, read, written, nullptr};
    std::uint64_t job = 0;
    ASSERT_EQ(ctxb_graph_submit(graph, &buffers, &info, &job), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(job, i + 1);
  }
  std::uint32_t done = 0;
  EXPECT_EQ(ctxb_graph_is_done(graph, 1, &done), CTXB_OK);
  EXPECT_EQ(done, 1u) << "three are in flight";
  EXPECT_EQ(ctxb_graph_is_done(graph, 6, &done), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(done, 0u);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("job 6 was not submitted"));
  std::uint32_t outcome = 7;
  ASSERT_EQ(ctxb_graph_finish(graph, jobs, &outcome), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(outcome, uint32_t{CTXB_OUTCOME_DONE});
  ASSERT_EQ(ctxb_graph_finish(graph, 1, &outcome), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(outcome, uint32_t{CTXB_OUTCOME_FORGOTTEN});
  EXPECT_EQ(ctxb_graph_finish(graph, jobs + 1, &outcome), CTXB_ERROR_INVALID_ARGUMENT);
  for (std::size_t i = 0; i < jobs; ++i) {
    EXPECT_EQ(outs[i][0], static_cast<float>(i)) << "the last frame of the job before";
    EXPECT_EQ(outs[i][1], static_cast<float>(i + 1));
    EXPECT_EQ(levels[i], static_cast<float>(i + 1));
  }
  auto metrics = sized<ctxb_instance_metrics>();
  ASSERT_EQ(ctxb_instance_measure(mixer, &metrics), CTXB_OK);
  EXPECT_GT(metrics.device_seconds, 0);
  EXPECT_EQ(metrics.late_jobs, 0u);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
  for (std::size_t i = 0; i < jobs; ++i) EXPECT_EQ(told[i + 1], 1) << i;
}

// The mixer looks at the value of the first frame only.
TEST_F(CGraphTest, ChangesWithinABlockAndTheTransportReachThePlugin) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph* graph = make();
  EXPECT_EQ(ctxb_graph_latency(graph), 1u);
  std::uint64_t before = 7;
  EXPECT_EQ(ctxb_graph_latency_before(graph, 0, &before), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(before, 0u);
  EXPECT_EQ(ctxb_graph_latency_before(graph, 1, &before), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_instance_restart_requested(mixer), 0u);
  const ctxb_parameter_change changes[] = {{sizeof changes[0], 0, mixer, 0, 0.5, 0, 0, 0},
                                           {sizeof changes[0], 0, mixer, 4, 0, 1, 8, 0}};
  auto song = sized<ctxb_transport>();
  song.flags = CTXB_TRANSPORT_PLAYING | CTXB_TRANSPORT_TEMPO | CTXB_TRANSPORT_TIME_SIGNATURE |
               CTXB_TRANSPORT_BEATS | CTXB_TRANSPORT_SECONDS;
  song.tempo = 90;
  song.beats_per_bar = song.beat_unit = 4;
  const ctxb_job_events events{sizeof events, 2, changes, &song};
  info.events = &events;
  const Block voice(channels * frames), music(channels * frames, 10);
  Block out(channels * frames);
  float level = 0;
  ASSERT_EQ(run(graph, voice, music, out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(out[7], 5);
  double gain = 7;
  ASSERT_EQ(ctxb_instance_parameter(mixer, "gain", &gain), CTXB_OK);
  EXPECT_EQ(gain, 0.5) << "half of the ramp from 1 to 0, which goes on";
  info.events = nullptr;
  ASSERT_EQ(run(graph, voice, music, out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

// Both ends lie in a tenant's memory, and the tenant's stream orders the jobs.
TEST_F(CGraphTest, GraphEndsOnTheDeviceFollowTheTenantsStream) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_tenant_open(broker, "host memory", nullptr, &tenant), CTXB_OK);
  const std::uint64_t bytes = channels * frames * sizeof(float);
  std::uint64_t voice = 0, mix = 0;
  void* stream = nullptr;
  ASSERT_EQ(ctxb_tenant_allocate(tenant, 0, bytes, &voice), CTXB_OK);
  ASSERT_EQ(ctxb_tenant_allocate(tenant, 0, bytes, &mix), CTXB_OK);
  ASSERT_EQ(ctxb_tenant_create_stream(tenant, 0, &stream), CTXB_OK);
  inputs[0].on_device = outputs[0].on_device = 1;
  description.tenant = tenant;
  ctxb_graph* graph = make();
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_ERROR_WRONG_STATE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("a graph has memory of tenant host memory"));
  const Block music(channels * frames, 5);
  float level = 0;
  const void* const read[] = {reinterpret_cast<const void*>(voice), music.data()};
  void* const written[] = {reinterpret_cast<void*>(mix), &level};
  const ctxb_job_buffers buffers{sizeof buffers, 2, 2, 0, read, written, stream};
  auto info_of_driver = sized<ctxb_driver_info>();
  ASSERT_EQ(ctxb_broker_driver(broker, &info_of_driver), CTXB_OK);
  const RawDriver driver(info_of_driver.path);
  auto* const its_stream = static_cast<CUstream>(stream);
  Block out(channels * frames);
  ctxb_guard guard;
  ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "test", &guard), CTXB_OK);
  EXPECT_EQ(driver.fill(voice, 2.0F, out.size(), its_stream), CUDA_SUCCESS);
  ctxb_guard_leave(&guard);
  std::uint64_t job = 0;
  ASSERT_EQ(ctxb_graph_submit(graph, &buffers, &info, &job), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_graph_follow(graph, job, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(ctxb_graph_follow(graph, job, stream), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_graph_finish(graph, job, nullptr), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_tenant_enter(tenant, 0, "test", &guard), CTXB_OK);
  EXPECT_EQ(driver.fetch(out, mix, its_stream), CUDA_SUCCESS);
  ctxb_guard_leave(&guard);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 7);
  EXPECT_EQ(level, 7);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << ctxb_last_error();
}

TEST_F(CGraphTest, HostMemoryIsUsedByItsAddress) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph* const graph = make();
  ctxb_host_memory *memory = nullptr, *hosts = nullptr;
  constexpr std::size_t samples = std::size_t{frames} * channels;
  ASSERT_EQ(ctxb_host_memory_make(broker, samples * sizeof(float), &memory), CTXB_OK)
      << ctxb_last_error();
  Block voice(samples, 2), music(samples, 3), expected(samples), mix(samples);
  ASSERT_EQ(ctxb_host_memory_register(broker, mix.data(), samples * sizeof(float), &hosts), CTXB_OK)
      << ctxb_last_error();
  EXPECT_EQ(ctxb_host_memory_is_registered(memory), 1u);
  EXPECT_EQ(ctxb_host_memory_is_registered(hosts), 1u);
  EXPECT_EQ(ctxb_host_memory_data(hosts), mix.data());
  float peak = 0, level = 0;
  for (int job = 0; job < 2; ++job) {  // the first one begins with the silence of a delay
    ASSERT_EQ(run(graph, voice, music, expected, peak), CTXB_OK) << ctxb_last_error();
  }
  auto* const there = static_cast<float*>(ctxb_host_memory_data(memory));
  std::copy(voice.begin(), voice.end(), there);
  const void* const read[] = {there, music.data()};
  void* const written[] = {mix.data(), &level};
  const ctxb_job_buffers buffers{sizeof buffers, 2, 2, 0, read, written, nullptr};
  ASSERT_EQ(ctxb_graph_process(graph, &buffers, &info, nullptr), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(mix, expected);
  EXPECT_EQ(level, peak);
  std::uint32_t released = 0;
  ctxb_host_memory_destroy(hosts, &released);
  EXPECT_EQ(released, 1u);
  ctxb_host_memory_destroy(memory, nullptr);
  ctxb_host_memory_destroy(nullptr, nullptr);
  EXPECT_EQ(ctxb_host_memory_data(nullptr), nullptr);
  EXPECT_EQ(ctxb_host_memory_is_registered(nullptr), 0u);
  EXPECT_EQ(ctxb_host_memory_make(broker, 0, &memory), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(ctxb_host_memory_register(broker, nullptr, 1, &memory), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_host_memory_make(nullptr, 1, &memory), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

// The device's speed decides how many jobs wait. The test checks that each job's outcome agrees
// with what the call of cancel returned.
TEST_F(CGraphTest, JobsThatWaitCanBeCancelled) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph_options options{};
  options.size = sizeof options;
  options.jobs_waiting = 8;
  options.on_done = [](void* data, std::uint64_t job) { ++static_cast<Done*>(data)->at(job); };
  options.on_done_data = &told;
  ctxb_graph* graph = nullptr;
  ASSERT_EQ(ctxb_graph_create(broker, &description, &sizes, &options, &graph), CTXB_OK)
      << ctxb_last_error();
  const Block a(channels * frames, 1), b(channels * frames, 2);
  std::array<Block, 8> outs;
  std::array<float, 8> peaks{};
  std::array<std::uint32_t, 8> cancelled{};
  for (std::size_t i = 0; i < outs.size(); ++i) {
    outs[i].assign(channels * frames, -1);
    const void* const read[] = {a.data(), b.data()};
    void* const written[] = {outs[i].data(), &peaks[i]};
    const ctxb_job_buffers buffers{sizeof buffers, 2, 2, 0, read, written, nullptr};
    std::uint64_t job = 0;
    ASSERT_EQ(ctxb_graph_submit(graph, &buffers, &info, &job), CTXB_OK) << ctxb_last_error();
    ASSERT_EQ(job, i + 1);
  }
  for (std::size_t i = 1; i < outs.size(); i += 2) {
    ASSERT_EQ(ctxb_graph_cancel(graph, i + 1, &cancelled[i]), CTXB_OK) << ctxb_last_error();
  }
  EXPECT_EQ(ctxb_graph_cancel(graph, 9, &cancelled[0]), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cancelled[0], 0U);
  EXPECT_EQ(ctxb_graph_cancel(nullptr, 1, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    std::uint32_t outcome = 99;
    ASSERT_EQ(ctxb_graph_finish(graph, i + 1, &outcome), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(outcome == CTXB_OUTCOME_CANCELLED, cancelled[i] != 0) << i;
    EXPECT_EQ(outcome == CTXB_OUTCOME_DONE, cancelled[i] == 0) << i;
    EXPECT_EQ(outs[i][0] == -1, cancelled[i] != 0) << i;
    EXPECT_EQ(told[i + 1], 1);
  }
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
  options.jobs_waiting = 1025;
  EXPECT_EQ(ctxb_graph_create(broker, &description, &sizes, &options, &graph),
            CTXB_ERROR_INVALID_ARGUMENT);
  options.jobs_waiting = 0;
  options.reserved = 1;
  EXPECT_EQ(ctxb_graph_create(broker, &description, &sizes, &options, &graph),
            CTXB_ERROR_INVALID_ARGUMENT);
}

ctxb_status keep(void* data, const char* bytes, std::uint64_t count) {
  static_cast<std::string*>(data)->append(bytes, count);
  return CTXB_OK;
}

TEST_F(CGraphTest, SavedStateIsLoadedUnchanged) {
  std::string state;
  ASSERT_EQ(ctxb_instance_save_state(mixer, keep, &state), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(state, std::string(4, '\0')) << "no blocks yet";
  state[0] = 9;
  ASSERT_EQ(ctxb_instance_load_state(mixer, state.data(), state.size()), CTXB_OK)
      << ctxb_last_error();
  EXPECT_EQ(ctxb_instance_load_state(mixer, "x", 1), CTXB_ERROR);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("the state is too short"));
  EXPECT_EQ(ctxb_instance_load_state(mixer, nullptr, 1), CTXB_ERROR_INVALID_ARGUMENT);
  for (const std::uint64_t bytes : {UINT64_MAX, (std::uint64_t{1} << 30) + 1}) {
    EXPECT_EQ(ctxb_instance_load_state(mixer, state.data(), bytes), CTXB_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ctxb_last_error(), HasSubstr("the limit plugin_state"));
  }
  std::string again;
  ASSERT_EQ(ctxb_instance_save_state(mixer, keep, &again), CTXB_OK);
  EXPECT_EQ(again, state) << "a load that fails changes nothing";
  const auto full = [](void*, const char*, std::uint64_t) -> ctxb_status {
    return CTXB_ERROR_UNAVAILABLE;
  };
  EXPECT_EQ(ctxb_instance_save_state(mixer, full, nullptr), CTXB_ERROR_UNAVAILABLE);
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK);
  EXPECT_EQ(ctxb_instance_save_state(mixer, keep, &state), CTXB_ERROR_WRONG_STATE);
}

TEST_F(CGraphTest, ALostLeaseIsRenewed) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph* graph = make();
  auto file = sized<ctxb_library_info>();
  ASSERT_EQ(ctxb_plugin_library_describe(library, &file), CTXB_OK);
  auto lease = sized<ctxb_lease_info>();
  ASSERT_EQ(ctxb_instance_lease(mixer, &lease), CTXB_OK) << ctxb_last_error();
  EXPECT_STREQ(lease.tenant, "mixer");
  EXPECT_STRNE(lease.reason, "");
  EXPECT_EQ(lease.state, uint32_t{CTXB_STATE_READY});
  const std::uint64_t before = lease.generation;
  ASSERT_EQ(ctxb_broker_force_loss(broker, file.tenant, 0, "a test"), CTXB_OK);
  EXPECT_EQ(ctxb_broker_force_loss(broker, file.tenant, 7, "a test"), CTXB_ERROR_INVALID_ARGUMENT);
  Block out(channels * frames);
  float level = 0;
  ASSERT_EQ(run(graph, Block(16, 3), Block(16, 4), out, level), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(level, 7);
  ASSERT_EQ(ctxb_instance_lease(mixer, &lease), CTXB_OK);
  EXPECT_GT(lease.generation, before);
  std::uint64_t unloaded = 7;
  EXPECT_EQ(ctxb_broker_unload_idle_modules(broker, 99, &unloaded), CTXB_ERROR_UNAVAILABLE);
  EXPECT_EQ(unloaded, 0u);
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
}

// An object that another one still needs cannot be destroyed.
TEST_F(CGraphTest, TheOrderOfTheEndsIsKept) {
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK) << ctxb_last_error();
  ctxb_graph* graph = make();
  EXPECT_EQ(ctxb_instance_destroy(mixer), CTXB_ERROR_WRONG_STATE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("instance of mixer is in a graph"));
  EXPECT_EQ(ctxb_broker_close(broker), CTXB_ERROR_WRONG_STATE);
  // The instance keeps the library.
  EXPECT_EQ(ctxb_plugin_library_close(library), CTXB_OK);
  Block out(channels * frames);
  float level = 0;
  EXPECT_EQ(run(graph, Block(16, 1), Block(16, 1), out, level), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_instance_deactivate(mixer), CTXB_OK);
  EXPECT_EQ(run(graph, Block(16, 1), Block(16, 1), out, level), CTXB_ERROR_WRONG_STATE);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("was deactivated since the graph was made"));
  EXPECT_EQ(ctxb_graph_destroy(graph), CTXB_OK);
  ASSERT_EQ(ctxb_plugin_library_load(broker, test_plugin("mixer").c_str(), &library), CTXB_OK);
}

TEST_F(CGraphTest, WithoutADriverLibrariesAreOnlyDescribed) {
  ctxb_broker* other = nullptr;
  ASSERT_EQ(ctxb_broker_open_without_driver(nullptr, &other), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_broker_device_count(other), 0u);
  ctxb_plugin_library* listed = nullptr;
  ASSERT_EQ(ctxb_plugin_library_load(other, test_plugin("mixer").c_str(), &listed), CTXB_OK)
      << ctxb_last_error();
  auto plugin = sized<ctxb_plugin_info>();
  EXPECT_EQ(ctxb_plugin_library_plugin(listed, 0, &plugin), CTXB_OK);
  ctxb_instance* made = nullptr;
  EXPECT_EQ(ctxb_instance_create(other, listed, "mixer", nullptr, &made), CTXB_ERROR_WRONG_STATE);
  EXPECT_EQ(ctxb_broker_close(other), CTXB_ERROR_WRONG_STATE) << "a library is loaded";
  // A library and an instance of another broker.
  EXPECT_EQ(ctxb_instance_create(broker, listed, "mixer", nullptr, &made),
            CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  ASSERT_EQ(ctxb_instance_activate(mixer, &sizes), CTXB_OK);
  ctxb_graph* graph = nullptr;
  EXPECT_EQ(ctxb_graph_create(other, &description, &sizes, nullptr, &graph),
            CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("the instance of mixer belongs to another broker"));
  EXPECT_EQ(ctxb_plugin_library_close(listed), CTXB_OK);
  EXPECT_EQ(ctxb_broker_close(other), CTXB_OK);
}

}  // namespace
}  // namespace ctxbroker
