// SPDX-License-Identifier: Apache-2.0
// A graph in a worker does what the same graph does in this process.
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

// A branch that is late meets one that is not, so the graph's own delays are in it.
WorkerGraphDescription audio_graph() {
  return {
      {{"in"}},
      {{"out"}},
      {node_of("gain"), node_of("fir"), node_of("mix")},
      {{"in", "gain"}, {"gain", "fir"}, {"fir", "mix.in_1"}, {"gain", "mix.in_2"}, {"mix", "out"}}};
}

ActivationSizes audio_sizes() {
  return {block, channels, 48000, false};
}

JobInfo audio_job(int number) {
  JobInfo job;
  job.width = block;
  job.height = channels;
  job.position = std::int64_t{number} * block;
  job.sample_rate = 48000;
  return job;
}

// Ramps over block borders, and jumps.
WorkerJobEvents changes_of(int number) {
  WorkerJobEvents events;
  events.changes.push_back({0, 0, -std::int64_t{number % 4} * block, -12, 4 * block, 0});
  events.changes.push_back({0, 1, 100, number % 3 == 0 ? 1.0 : 0.0, 0, 0});
  events.transport.emplace();
  events.transport->playing = true;
  events.transport->tempo = 120;
  return events;
}

TEST_F(WorkerGraphTest, SoundOfAWorkerIsTheSameAsInTheHost) {
  for (const std::uint32_t in_flight : {1U, 3U}) {
    GraphOptions how;
    how.jobs_in_flight = in_flight;
    InProcess here(audio_graph());
    here.instances[1].set_parameter("taps", 65);
    here.activate(audio_sizes(), how);
    WorkerGraphOptions with = graph_options();
    with.graph = how;
    with.worker.network = in_flight == 1;  // neither graph nor driver needs these
    with.worker.other_processes = in_flight == 1 || !can_give_up_other_processes();
    WorkerGraph there(audio_graph(), with);
    there.set_parameter(1, "taps", 65);
    there.activate(audio_sizes());
    EXPECT_EQ(there.latency_frames(), here.graph->latency_frames());
    EXPECT_GT(there.latency_frames(), 0U);
    EXPECT_EQ(there.latency_before(2), here.graph->latency_before(2));

    constexpr int jobs = 12;
    std::vector<std::vector<float>> expected, got(jobs);
    std::uint64_t last = 0;
    for (int i = 0; i < jobs; ++i) {
      const auto input = noise(block * channels, static_cast<unsigned>(i));
      expected.emplace_back(block * channels);
      got[static_cast<std::size_t>(i)].resize(block * channels);
      JobEvents events;
      const WorkerJobEvents given = changes_of(i);
      events.transport = given.transport;
      for (const auto& one : given.changes) {
        events.changes.push_back({&here.instances[one.node], one.parameter, one.offset, one.value,
                                  one.ramp_frames, one.from});
      }
      here.graph->process(input.data(), expected.back().data(), audio_job(i), events);
      const JobBuffers buffers{{input.data()}, {got[static_cast<std::size_t>(i)].data()}};
      if (in_flight == 1) {
        EXPECT_EQ(there.process(buffers, audio_job(i), given), JobOutcome::done);
      } else {
        last = there.submit(buffers, audio_job(i), given);
      }
      EXPECT_EQ(there.parameter_value(0, "gain_db"), here.instances[0].parameter_value("gain_db"));
    }
    if (in_flight != 1) {
      EXPECT_EQ(there.finish(last), JobOutcome::done);
    }
    for (std::size_t i = 0; i < jobs; ++i) {
      EXPECT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * sizeof(float)), 0)
          << i;
    }
    EXPECT_NE(expected[5], expected[6]);
    EXPECT_EQ(there.exits(), 0U);
  }
}

constexpr std::uint32_t wide = 64, high = 48;

WorkerGraphDescription image_graph() {
  return {{{"in"}},
          {{"out"}},
          {node_of("exposure"), node_of("blur"), node_of("merge")},
          {{"in", "exposure"},
           {"exposure", "blur"},
           {"blur", "merge.a"},
           {"exposure", "merge.b"},
           {"merge", "out"}}};
}

TEST_F(WorkerGraphTest, PicturesOfAWorkerAreTheSameAsInTheHost) {
  InProcess here(image_graph());
  WorkerGraph there(image_graph(), graph_options());
  here.instances[0].set_parameter("stops", 1.5);
  there.set_parameter(0, "stops", 1.5);
  here.activate({wide, high});
  there.activate({wide, high});
  const auto input = noise(wide * high * 4, 7);
  std::vector<float> expected(input.size()), got(input.size());
  JobInfo job;
  job.width = wide;
  job.height = high;
  here.graph->process(input.data(), expected.data(), job);
  there.process(input.data(), got.data(), job);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  EXPECT_NE(got, input);

  // A tile, for which the blur needs more than the tile.
  job.region = {16, 16, 16, 8};
  const auto needed = there.input_regions(job);
  const auto here_needed = here.graph->input_regions(job);
  ASSERT_EQ(needed.size(), 1U);
  EXPECT_EQ(needed[0].x, here_needed[0].x);
  EXPECT_EQ(needed[0].width, here_needed[0].width);
  EXPECT_GT(needed[0].width, job.region.width);
  const auto part = noise(std::size_t{needed[0].width} * needed[0].height * 4, 3);
  std::vector<float> expected_tile(16 * 8 * 4), tile(16 * 8 * 4);
  here.graph->process(part.data(), expected_tile.data(), job);
  there.process(part.data(), tile.data(), job);
  EXPECT_EQ(std::memcmp(tile.data(), expected_tile.data(), tile.size() * sizeof(float)), 0);
  EXPECT_EQ(there.output_extents(job)[0].width, wide);
  // Without the answer, the host does not know how long its own buffer is.
  job.region.x = 0;
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument, [&] { there.process(part.data(), tile.data(), job); }),
      HasSubstr("call input_regions for it right before"));

  // Larger images, and other samples.
  there.activate({2 * wide, high}, {{"in", 0, SampleType::float16}},
                 {{"out", 0, SampleType::float16}});
  here.described.inputs[0].samples = here.described.outputs[0].samples = SampleType::float16;
  here.activate({2 * wide, high});
  const std::vector<std::uint16_t> halves(std::size_t{2} * wide * high * 4, 0x3800);
  std::vector<std::uint16_t> expected_halves(halves.size()), got_halves(halves.size());
  job = {};
  job.width = 2 * wide;
  job.height = high;
  here.graph->process({{halves.data()}, {expected_halves.data()}}, job);
  there.process({{halves.data()}, {got_halves.data()}}, job);
  EXPECT_EQ(got_halves, expected_halves);
  EXPECT_NE(got_halves, halves);
}

TEST_F(WorkerGraphTest, WorkerGraphDescribesPluginsDriverAndDevices) {
  WorkerGraphDescription description = audio_graph();
  description.nodes[0].options.lease = LeaseChoice(LeaseKind::shared);
  WorkerGraph graph(description, graph_options());
  InProcess here(description);
  EXPECT_EQ(graph.description(0).id, "org.ctxbroker.sample.gain");
  EXPECT_EQ(graph.description(1).parameters.size(),
            here.instances[1].description().parameters.size());
  EXPECT_EQ(graph.driver().version, here.broker.driver().version);
  EXPECT_EQ(graph.devices().size(), here.broker.devices().size());
  EXPECT_EQ(graph.devices()[0].name, here.broker.devices()[0].name);
  graph.activate(audio_sizes());
  const auto input = noise(block * channels, 1);
  std::vector<float> output(input.size());
  graph.process(input.data(), output.data(), audio_job(0));
  const WorkerNodeState gain = graph.node_state(0), fir = graph.node_state(1);
  EXPECT_EQ(gain.lease.granted.kind, LeaseKind::shared);
  EXPECT_EQ(gain.lease.asked, LeaseChoice(LeaseKind::shared));
  EXPECT_EQ(fir.lease.granted.kind, LeaseKind::green);
  EXPECT_EQ(gain.lease.tenant_name, "gain");
  EXPECT_EQ(gain.metrics.jobs, 1U);
  EXPECT_GT(fir.metrics.memory_bytes, 0U);
  EXPECT_FALSE(gain.restart_requested);
  EXPECT_THAT(records(), ::testing::Contains(HasSubstr("green")));  // of the broker in the worker
}

TEST_F(WorkerGraphTest, WorkerGraphTellsTheMetricsOfItsBroker) {
  WorkerGraphDescription description = audio_graph();
  WorkerGraph there(description, graph_options());
  InProcess here(description);
  there.activate(audio_sizes());
  here.activate(audio_sizes());
  const auto input = noise(block * channels, 1);
  std::vector<float> output(input.size());
  for (int i = 0; i < 3; ++i) {
    there.process(input.data(), output.data(), audio_job(i));
    here.graph->process(input.data(), output.data(), audio_job(i));
  }
  BrokerMetrics metrics = there.metrics(), expected = here.broker.metrics();
  for (BrokerMetrics* one : {&metrics, &expected}) {
    for (TenantMetrics& tenant : one->tenants) {  // what takes time, and this process's history
      tenant.id = {};
      tenant.waits = {};
      tenant.guarded_calls.clear();
      for (LeaseMetrics& lease : tenant.leases) {
        lease.module_load_seconds = 0;
        lease.guards_entered = 0;
        lease.generation = 0;
      }
      for (InstanceMetrics& instance : tenant.instances) instance.generation = 0;
    }
  }
  ASSERT_EQ(expected.tenants.size(), 4U);
  EXPECT_EQ(expected.tenants[1].instances.at(0).metrics.jobs, 3U);
  EXPECT_GT(expected.tenants[2].leases.at(0).memory_bytes, 0U);
  EXPECT_EQ(to_json(metrics), to_json(expected));
}

TEST_F(WorkerGraphTest, WritesATimeline) {
  WorkerGraphOptions with = graph_options();
  with.timeline.emplace();
  WorkerGraph graph(audio_graph(), with);
  graph.activate(audio_sizes());
  const auto input = noise(block * channels, 1);
  std::vector<float> output(input.size());
  graph.process(input.data(), output.data(), audio_job(0));
  std::string text;
  const TimelineSummary summary =
      graph.write_timeline([&](std::string_view piece) { text += piece; });
  EXPECT_GT(summary.spans, 3U);
  EXPECT_EQ(summary.dropped, 0U);
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("traceEvents"), HasSubstr("\"tenant\":\"gain\"")));
  WorkerGraph without(audio_graph(), graph_options());
  error_of(ErrorKind::wrong_state,
           [&] { without.write_timeline([](std::string_view) { FAIL() << "nothing is there"; }); });
  EXPECT_EQ(without.exits(), 0U);
}

// A plug-in asks for a call while no message is on its way.
TEST_F(WorkerGraphTest, PollAnswersRequestsOfIdlePlugins) {
  WorkerGraph graph(
      {{{"in"}}, {{"out"}}, {{"later", built("test_plugins/behaviours.so"), "asks_later"}}},
      graph_options());
  graph.poll();
  graph.activate({8, 8});
  const auto has_record = [&](const std::string& text) {
    for (const std::string& record : records()) {
      if (record.find(text) != std::string::npos) return true;
    }
    return false;
  };
  for (int i = 0; i < 2000 && !has_record("has asked"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(has_record("called back"));
  graph.poll();
  for (int i = 0; i < 2000 && !has_record("called back"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(has_record("called back"));
}

TEST_F(WorkerGraphTest, WorkerGraphTellsWhetherAJobIsDone) {
  WorkerGraph graph(one("deaths"), graph_options());
  graph.activate({8, 8});
  JobInfo job;
  job.width = job.height = 8;
  std::vector<float> pixels(8 * 8 * 4);
  const std::uint64_t number = graph.submit({{pixels.data()}, {pixels.data()}}, job);
  while (!graph.is_done(number)) std::this_thread::yield();
  EXPECT_EQ(graph.finish(number), JobOutcome::done);
  EXPECT_TRUE(graph.is_done(number));
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.is_done(number + 1)); });
  const std::uint64_t lost = graph.submit({{pixels.data()}, {pixels.data()}}, job);
  graph.kill("the test wants it");
  EXPECT_TRUE(graph.is_done(lost));
  error_of(ErrorKind::context_lost, [&] { graph.finish(lost); });
  // Also when it ends during the question.
  const std::uint64_t stopped = graph.submit({{pixels.data()}, {pixels.data()}}, job);
  kill(graph.process_id(), SIGSTOP);
  EXPECT_TRUE(graph.is_done(stopped));
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { graph.finish(stopped); }),
              HasSubstr("stopped by a signal"));
}

// A fault of one client of an MPS server would end them all.
TEST_F(WorkerGraphTest, IsOutsideTheHostsMpsServer) {
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/own", 1);  // as the host is inside
  WorkerGraphOptions with = graph_options({"CTXBROKER_SOFTWARE_MPS=/run/own"});
  with.driver = DriverChoice::software;
  WorkerGraph outside(audio_graph(), with);
  EXPECT_FALSE(outside.devices()[0].mps);
  EXPECT_THAT(outside.node_state(0).lease.reason, ::testing::Not(HasSubstr("MPS")));
  with.worker.environment.emplace_back("CUDA_MPS_PIPE_DIRECTORY=/run/own");
  WorkerGraph inside(audio_graph(), with);
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_TRUE(inside.devices()[0].mps);
  EXPECT_THAT(inside.node_state(0).lease.reason,
              HasSubstr("; under MPS, so a fault of any client"));
  EXPECT_THAT(records(), ::testing::Contains(HasSubstr("through an MPS server")));
}

TEST_F(WorkerGraphTest, WorkerGraphConvertsTextsAndValues) {
  WorkerGraph there(one("parameters"), graph_options());
  InProcess here({{{"in"}},
                  {{"out"}},
                  {{"parameters", built("test_plugins/parameters.so"), there.description(0).id}}});
  EXPECT_EQ(there.from_text(0, "gain", "-inf dB"), ParameterValue(-60));
  for (const double gain : {-60.0, 0.5}) {
    EXPECT_EQ(there.to_text(0, "gain", gain), here.instances[0].to_text("gain", gain));
  }
  error_of(ErrorKind::parameter_value, [&] { static_cast<void>(there.to_text(0, "gain", 1000)); });
  EXPECT_EQ(there.from_text(0, "centre", "middle"), ParameterValue(0, 0));
  EXPECT_THAT(error_of(ErrorKind::parameter_value,
                       [&] { static_cast<void>(there.from_text(0, "centre", "left")); }),
              HasSubstr("write middle, or x and y"));
  there.set_text(0, "title", "a title");
  there.set_parameter(0, "tint", {0.1, 0.2, 0.3, 1});
  there.set_parameter(0, "mode", 2);
  here.instances[0].set_text("title", "a title");
  here.instances[0].set_parameter("tint", {0.1, 0.2, 0.3, 1});
  here.instances[0].set_parameter("mode", 2);
  const Preset preset = there.save_preset(0);
  EXPECT_EQ(to_json(preset), to_json(save_preset(here.instances[0])));
  there.set_text(0, "title", "another");
  Preset changed = preset;
  changed.values["nobody"] = 1.0;
  const auto remarks = there.load_preset(0, changed);
  ASSERT_EQ(remarks.size(), 1U);
  EXPECT_THAT(remarks[0].text, HasSubstr("no parameter \"nobody\""));
  EXPECT_EQ(there.text(0, "title"), "a title");
  changed.plugin = "com.example.other";
  error_of(ErrorKind::preset, [&] { there.load_preset(0, changed); });
  error_of(ErrorKind::parameter_value, [&] { there.set_parameter(0, "gain", 1000); });
  error_of(ErrorKind::unknown_parameter, [&] { there.set_parameter(0, "nobody", 1); });
  error_of(ErrorKind::invalid_argument, [&] { there.set_parameter(0, "title", 1); });
  error_of(ErrorKind::invalid_argument, [&] { there.set_text(0, "gain", "1"); });
  there.activate({64, 64});
  error_of(ErrorKind::wrong_state, [&] { there.set_text(0, "title", "late"); });
  error_of(ErrorKind::wrong_state, [&] { there.set_parameter(0, "count", 3); });
}

TEST_F(WorkerGraphTest, WorkerGraphRefusesBadDescriptions) {
  const auto refused = [&](const WorkerGraphDescription& description,
                           const WorkerGraphOptions& with, ErrorKind kind, const char* text) {
    EXPECT_THAT(error_of(kind, [&] { WorkerGraph graph(description, with); }), HasSubstr(text));
  };
  const WorkerGraphDescription good = one("deaths");
  WorkerGraphDescription bad = good;
  bad.nodes.clear();
  refused(bad, graph_options(), ErrorKind::invalid_argument, "nodes is empty");
  bad = good;
  bad.inputs.clear();
  refused(bad, graph_options(), ErrorKind::invalid_argument, "no edges");
  bad = good;
  bad.nodes[0].library = built("test_plugins/no_such.so");
  refused(bad, graph_options(), ErrorKind::plugin_not_found, "no_such.so");
  bad = good;
  bad.nodes[0].plugin = "nobody";
  refused(bad, graph_options(), ErrorKind::plugin_not_found, "has no plug-in \"nobody\"");
  refused({{{"in"}}, {{"out"}}, {node_of("behaviours", "test_plugins/")}}, graph_options(),
          ErrorKind::plugin_not_found, "has several plug-ins; name one of");
  WorkerGraph sound(
      {{{"in"}}, {{"out"}}, {node_of("parameters", "test_plugins/"), node_of("gain")}},
      graph_options());
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] {
                         sound.activate({8, 8});
                       }),
              HasSubstr("sample_rate is 0"));
  for (const double rate : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                         [&] {
                           sound.activate({8, 8, rate});
                         }),
                HasSubstr("sample_rate must be a finite number"));
  }
  sound.set_text(0, "title", "none is active");
  refused(one("broken_init_fails"), graph_options(), ErrorKind::plugin_init, "init");
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_waiting = 1;
  refused(good, with, ErrorKind::invalid_argument, "jobs_waiting");
  with = graph_options();
  with.worker.module = worker_file("worker_module.so");
  refused(good, with, ErrorKind::invalid_argument, "module");
  with = graph_options();
  with.policy = "/no/such/policy.json";
  refused(good, with, ErrorKind::policy, "/no/such/policy.json");

  WorkerGraph graph(good, graph_options());
  std::vector<float> pixels(wide * high * 4);
  JobInfo job;
  job.width = wide;
  job.height = high;
  error_of(ErrorKind::wrong_state, [&] { graph.process(pixels.data(), pixels.data(), job); });
  graph.activate({wide, high});
  error_of(ErrorKind::invalid_argument, [&] { graph.process({{}, {pixels.data()}}, job); });
  error_of(ErrorKind::invalid_argument, [&] { graph.process(nullptr, pixels.data(), job); });
  error_of(ErrorKind::invalid_argument, [&] { graph.finish(1); });
  error_of(ErrorKind::invalid_argument, [&] { graph.set_parameter(1, "way", 0); });
  error_of(ErrorKind::invalid_argument, [&] {
    graph.process({{pixels.data()}, {pixels.data()}}, job, {{{5, 0, 0, 0}}, {}});
  });
  error_of(ErrorKind::invalid_argument, [&] {
    graph.activate({wide, high}, {{"in"}}, {{"another"}});
  });
  EXPECT_TRUE(graph.active());
  job.width = job.height = 1U << 14U;  // beyond the end of the pixels, which nobody may read
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] { graph.process(pixels.data(), pixels.data(), job); }),
              HasSubstr("a job of 16384 x 16384 does not fit into 64 x 48"));
  job.height = high;
  job.width = 2 * wide;
  std::vector<float> larger(2 * pixels.size());
  error_of(ErrorKind::invalid_argument, [&] { graph.process(larger.data(), larger.data(), job); });
  job.width = job.height = UINT32_MAX;
  error_of(ErrorKind::invalid_argument, [&] { graph.process(larger.data(), larger.data(), job); });
  EXPECT_EQ(graph.exits(), 0U);
  // And it still works.
  job.width = wide;
  job.height = high;
  EXPECT_EQ(graph.process(pixels.data(), pixels.data(), job), JobOutcome::done);
}

TEST_F(WorkerGraphTest, ErrorsOfPluginsInAWorkerAreTheSame) {
  WorkerGraphDescription description{
      {{"in"}}, {{"out"}}, {{"fails", built("test_plugins/behaviours.so"), "process_fails"}}};
  InProcess here(description);
  here.activate({8, 8});
  WorkerGraph there(description, graph_options());
  there.activate({8, 8});
  std::vector<float> pixels(8 * 8 * 4);
  JobInfo job;
  job.width = job.height = 8;
  const std::string expected = error_of(
      ErrorKind::plugin_failed, [&] { here.graph->process(pixels.data(), pixels.data(), job); });
  EXPECT_EQ(
      error_of(ErrorKind::plugin_failed, [&] { there.process(pixels.data(), pixels.data(), job); }),
      expected);
  EXPECT_EQ(there.exits(), 0U);
}

// A row of plug-ins has the formats of the graph's ports, as a graph with edges has.
TEST_F(WorkerGraphTest, RowInAWorkerHasTheFormatsOfItsEnds) {
  WorkerGraph graph({{{"in", 1}}, {{"out", 1}}, {node_of("exposure")}}, graph_options());
  graph.set_parameter(0, "stops", 1);
  graph.activate({width, height});
  const std::vector<float> grey(width * height, 0.25F);
  std::vector<float> out(grey.size());
  graph.process(grey.data(), out.data(), picture_job());
  EXPECT_THAT(out, ::testing::Each(0.5F));
}

}  // namespace
}  // namespace ctxbroker
