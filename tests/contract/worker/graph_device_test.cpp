// SPDX-License-Identifier: Apache-2.0
// Buffers of jobs that lie in the host's device memory, which the worker has too.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/stream.hpp"
#include "groups_fixture.hpp"
#include "no_descriptors.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

// Samples of a picture and of a block of sound.
constexpr std::size_t frame = std::size_t{width} * height * 4;
constexpr std::size_t sound = std::size_t{block} * channels;

GraphPort device_end(const std::string& name, bool on_device = true) {
  return {name, 0, SampleType::float32, on_device};
}

template <typename Sample = float>
Sample* at(const DeviceMemory& memory, std::size_t sample = 0) {
  return reinterpret_cast<Sample*>(memory.address()) + sample;
}

class WorkerDeviceTest : public WorkerGroupsTest {
 protected:
  DeviceMemory shareable(std::size_t samples) {
    return DeviceMemory::shareable(tenant, samples * sizeof(float));
  }
  // These wait, because the worker does not.
  void store(const std::vector<float>& samples, const DeviceMemory& memory, std::size_t first = 0) {
    const Stream stream(tenant);
    tenant.run(0, [&] {
      EXPECT_EQ(driver.store(samples, memory.address() + first * sizeof(float), stream.get()),
                CUDA_SUCCESS);
    });
  }
  std::vector<float> fetch(const DeviceMemory& memory, std::size_t count, std::size_t first = 0) {
    const Stream stream(tenant);
    std::vector<float> got(count);
    tenant.run(0, [&] {
      EXPECT_EQ(driver.fetch(got, memory.address() + first * sizeof(float), stream.get()),
                CUDA_SUCCESS);
    });
    return got;
  }

  // Returns how many descriptors a process has open.
  static auto descriptors(const std::string& process = "self") {
    const std::filesystem::directory_iterator all("/proc/" + process + "/fd");
    return std::distance(begin(all), end(all));
  }
  // Returns the same for this process, as soon as it is what was expected, or after 20 s: a broker
  // thread may have a file open for a moment.
  static auto settled_descriptors(std::ptrdiff_t expected) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (descriptors() != expected && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return descriptors();
  }

  static WorkerGraphDescription brightening(bool in_on_device = true, bool out_on_device = true) {
    return {{device_end("in", in_on_device)},
            {device_end("out", out_on_device)},
            {node_of("exposure")}};
  }
  static WorkerGraph active_graph(const WorkerGraphDescription& description,
                                  const WorkerGraphOptions& with) {
    WorkerGraph graph(description, with);
    if (description.nodes.back().name == "exposure") graph.set_parameter(0, "stops", 1);
    graph.activate({width, height});
    return graph;
  }
  static std::vector<float> brighter(std::vector<float> samples) {
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] *= i % 4 == 3 ? 1 : 2;
    return samples;
  }
  static std::string refusal(WorkerGraph& graph, const float* in, float* out, std::uint32_t rows,
                             ErrorKind kind = ErrorKind::invalid_argument) {
    JobInfo job = picture_job();
    job.height = rows;
    return error_of(kind, [&] { graph.process(in, out, job); });
  }

  Broker broker = Broker::open();
  Tenant tenant = broker.open_tenant("frames");
  RawDriver driver{broker.driver().path};
};

TEST_F(WorkerDeviceTest, APictureIsTheSameAsInHostMemory) {
  const auto input = noise(frame, 3);
  const DeviceMemory memory = shareable(3 * frame);
  for (const bool in_on_device : {false, true}) {
    for (const bool out_on_device : {false, true}) {
      WorkerGraph graph = active_graph(brightening(in_on_device, out_on_device), graph_options());
      const WorkerDeviceBuffer lent = graph.lend(memory);
      EXPECT_EQ(lent.address(), memory.address());
      EXPECT_EQ(lent.bytes(), memory.bytes());
      store(std::vector<float>(3 * frame, -1), memory);
      store(input, memory, frame);
      std::vector<float> own(frame);
      const float* const in = in_on_device ? at(memory, frame) : input.data();
      float* const out = out_on_device ? at(memory, 2 * frame) : own.data();
      EXPECT_EQ(graph.process(in, out, picture_job()), JobOutcome::done);
      EXPECT_EQ(out_on_device ? fetch(memory, frame, 2 * frame) : own, brighter(input));
      EXPECT_EQ(fetch(memory, frame), std::vector<float>(frame, -1)) << "it is not its own";
    }
  }
}

TEST_F(WorkerDeviceTest, SamplesDoNotGoThroughHostMemory) {
  constexpr std::uint32_t edge = 256;
  constexpr std::size_t samples = std::size_t{edge} * edge * 4;
  const DeviceMemory memory = shareable(samples);
  JobInfo job;
  job.width = job.height = edge;
  for (const bool on_device : {true, false}) {
    WorkerGraph graph(brightening(on_device, on_device), graph_options());
    graph.set_parameter(0, "stops", 1);
    graph.activate({edge, edge});
    const WorkerDeviceBuffer lent = graph.lend(memory);
    std::vector<float> own = noise(samples, 8);
    store(own, memory);
    const auto expected = brighter(own);
    const std::size_t before = lent_bytes();
    float* const place = on_device ? at(memory) : own.data();
    EXPECT_EQ(graph.process(place, place, job), JobOutcome::done);
    EXPECT_EQ(on_device ? fetch(memory, samples) : own, expected);
    if (on_device) {
      EXPECT_LT(lent_bytes(), before + samples * sizeof(float));
    } else {
      EXPECT_GE(lent_bytes(), before + samples * sizeof(float)) << "the control";
    }
  }
}

// One output is in device memory, and the other one is not.
TEST_F(WorkerDeviceTest, SoundIsTheSameAsInHostMemory) {
  const ActivationSizes sizes{block, channels, 48000, false};
  InProcess here(late_and_early());
  here.activate(sizes);
  WorkerGraphDescription description = late_and_early();
  description.inputs[0].on_device = description.outputs[0].on_device = true;
  WorkerGraph there(description, graph_options());
  there.activate(sizes);
  const DeviceMemory in = shareable(sound), out = shareable(sound);
  const WorkerDeviceBuffer lent_in = there.lend(in), lent_out = there.lend(out);
  for (unsigned i = 0; i < 6; ++i) {
    JobInfo job;
    job.width = block;
    job.height = channels;
    job.sample_rate = 48000;
    job.position = std::int64_t{i} * block;
    const auto input = noise(sound, i);
    std::vector<float> late(sound), early(sound), early_there(sound);
    here.graph->process({{input.data()}, {late.data(), early.data()}}, job);
    store(input, in);
    there.process({{at(in)}, {at(out), early_there.data()}}, job);
    EXPECT_EQ(fetch(out, sound), late) << i;
    EXPECT_EQ(early_there, early) << i;
  }
}

TEST_F(WorkerDeviceTest, JobsInFlightUseLentDeviceMemory) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 3;
  WorkerGraph graph = active_graph(brightening(), with);
  constexpr std::size_t jobs = 7;
  const DeviceMemory in = shareable(jobs * frame), out = shareable(jobs * frame);
  const WorkerDeviceBuffer lent_in = graph.lend(in), lent_out = graph.lend(out);
  const auto input = noise(jobs * frame, 4);
  store(input, in);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < jobs; ++i) {
    last = graph.submit({{at(in, i * frame)}, {at(out, i * frame)}}, picture_job());
  }
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  EXPECT_EQ(fetch(out, jobs * frame), brighter(input));
}

TEST_F(WorkerDeviceTest, AnActivationCanMoveTheEnds) {
  WorkerGraph graph = active_graph(brightening(false, false), graph_options());
  graph.activate({width, height}, {device_end("in")}, {device_end("out")});
  const DeviceMemory memory = shareable(frame);
  const WorkerDeviceBuffer lent = graph.lend(memory);
  auto samples = noise(frame, 5);
  store(samples, memory);
  EXPECT_EQ(graph.process(at(memory), at(memory), picture_job()), JobOutcome::done);
  EXPECT_EQ(fetch(memory, frame), brighter(samples));
  graph.activate({width, height}, {device_end("in", false)}, {device_end("out", false)});
  EXPECT_EQ(graph.process(samples.data(), samples.data(), picture_job()), JobOutcome::done);
  EXPECT_EQ(samples, fetch(memory, frame));
}

TEST_F(WorkerDeviceTest, NextProcessHasTheLentMemory) {
  for (const bool stand_by : {false, true}) {
    WorkerGraphOptions with = graph_options();
    with.stand_by = stand_by;
    with.stand_by_memory = std::uint64_t{1} << 30;
    WorkerGraph graph = active_graph(brightening(), with);
    const DeviceMemory in = shareable(frame), out = shareable(frame);
    const WorkerDeviceBuffer lent_in = graph.lend(in), lent_out = graph.lend(out);
    for (unsigned round = 1; round < 4; ++round) {
      const auto input = noise(frame, round);
      store(input, in);  // before the next process is there
      kill(graph.process_id(), SIGKILL);
      wait_for_end((stand_by ? 3 : 0) + round);
      EXPECT_EQ(fetch(in, frame), input) << "it outlives the process";
      EXPECT_EQ(graph.process(at(in), at(out), picture_job()), JobOutcome::done);
      EXPECT_EQ(fetch(out, frame), brighter(input));
    }
    EXPECT_EQ(graph.exits(), 3U);
  }
}

// A dead process may have written there.
TEST_F(WorkerDeviceTest, AJobWithAnInputOnTheDeviceIsNotDoneOnceMore) {
  const DeviceMemory memory = shareable(frame);
  for (const bool input : {true, false}) {
    WorkerGraphOptions with = graph_options({"CTXB_TEST_CRASH=process:segv"});
    with.retry = true;
    WorkerGraphDescription description = one("crashes");
    description.inputs[0].on_device = input;
    description.outputs[0].on_device = !input;
    WorkerGraph graph = active_graph(description, with);
    const WorkerDeviceBuffer lent = graph.lend(memory);
    std::vector<float> own(frame);
    refusal(graph, input ? at(memory) : own.data(), input ? own.data() : at(memory), height,
            ErrorKind::context_lost);
    EXPECT_EQ(graph.exits(), input ? 1U : 2U) << "an input in host memory is the control";
  }
}

TEST_F(WorkerDeviceTest, ABufferOutsideOfWhatIsLentIsRefused) {
  WorkerGraph graph = active_graph(brightening(true, false), graph_options());
  DeviceMemory memory = shareable(frame);
  const std::string whole = std::to_string(memory.bytes());
  const std::size_t end = memory.bytes() / sizeof(float), row = std::size_t{width} * 4;
  const DeviceMemory other = shareable(frame), plain(tenant, frame * sizeof(float));
  std::optional<WorkerDeviceBuffer> lent = graph.lend(memory);
  std::vector<float> own(frame);
  EXPECT_THAT(
      refusal(graph, at(memory, end - row), own.data(), 2),
      HasSubstr("a buffer of the port \"in\", which has " +
                std::to_string(2 * row * sizeof(float)) + " bytes, begins at byte " +
                std::to_string(memory.bytes() - row * sizeof(float)) +
                " of lent device memory that has " + whole + "; lend more, or begin earlier"));
  const WorkerBuffer host_memory = graph.lend(std::size_t{65536});
  for (const void* const buffer :
       {static_cast<const void*>(at(other)), static_cast<const void*>(at(plain)),
        static_cast<const void*>(own.data()), static_cast<const void*>(host_memory.data())}) {
    EXPECT_THAT(refusal(graph, static_cast<const float*>(buffer), own.data(), 1),
                HasSubstr(", is in no device memory that is lent; call WorkerGraph::lend"));
  }
  EXPECT_THAT(refusal(graph, nullptr, own.data(), 1), HasSubstr("null"));
  const auto refused_after_the_end = [&] {
    EXPECT_THAT(refusal(graph, at(memory), own.data(), 1), HasSubstr("is in no device memory"));
  };
  // The controls: the last row, and after it is lent again.
  JobInfo job = picture_job();
  job.height = 1;
  store(std::vector<float>(end, 1), memory);
  EXPECT_EQ(graph.process(at(memory, end - row), own.data(), job), JobOutcome::done);
  EXPECT_EQ(own[0], 2);
  lent.reset();
  refused_after_the_end();
  lent = graph.lend(memory);
  EXPECT_EQ(graph.process(at(memory), own.data(), job), JobOutcome::done);
  *lent = {};
  refused_after_the_end();
  EXPECT_EQ(graph.exits(), 0U);
}

TEST_F(WorkerDeviceTest, MemoryThatCannotBeLentIsRefused) {
  WorkerGraph graph = active_graph(brightening(), graph_options());
  const auto refused = [&](const DeviceMemory& memory,
                           ErrorKind kind = ErrorKind::invalid_argument) {
    return error_of(kind, [&] { static_cast<void>(graph.lend(memory)); });
  };
  Tenant other = broker.open_tenant("other");
  const DeviceMemory plain(tenant, 4096);
  DeviceMemory made = DeviceMemory::shareable(other, 4096);
  if (has_descriptors()) {
    const int descriptor = made.export_descriptor();
    const DeviceMemory imported = DeviceMemory::imported(tenant, descriptor, 4096);
    close(descriptor);
    EXPECT_THAT(refused(imported), HasSubstr("only memory from DeviceMemory::shareable can"));
  }
  EXPECT_THAT(refused(plain), HasSubstr("only memory from DeviceMemory::shareable can"));
  EXPECT_THAT(refused({}), HasSubstr("the object holds no memory"));
  other.close();
  EXPECT_THAT(refused(made, ErrorKind::wrong_state), HasSubstr("the tenant is closed"));

  WorkerGraphDescription elsewhere = brightening();
  elsewhere.device = 1;
  WorkerGraph on_another(elsewhere, graph_options());
  const DeviceMemory here = shareable(1);
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(on_another.lend(here)); }),
      HasSubstr("the memory is on device 0, and the ports of the graph are on device 1"));
  EXPECT_EQ(graph.exits(), 0U);
}

TEST_F(WorkerDeviceTest, AJobCannotWaitForAStream) {
  WorkerGraph graph = active_graph(brightening(), graph_options());
  const DeviceMemory memory = shareable(frame);
  const WorkerDeviceBuffer lent = graph.lend(memory);
  const Stream stream(tenant);
  const JobBuffers buffers{{at(memory)}, {at(memory)}, stream.get()};
  for (const bool submits : {true, false}) {
    EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                         [&] {
                           if (submits) {
                             graph.submit(buffers, picture_job());
                           } else {
                             graph.process(buffers, picture_job());
                           }
                         }),
                HasSubstr("synchronise the stream before submit, and leave `after` null"));
  }
}

TEST_F(WorkerDeviceTest, GraphInSeveralProcessesRefusesEndsOnTheDevice) {
  WorkerGraphDescription description = row({"exposure", "blur"});
  const auto each = grouped(WorkerGrouping::each_instance);
  constexpr const char* why =
      "the graph is in 2 processes, so it has to be in host memory; use "
      "WorkerGrouping::together, or clear GraphPort::on_device";
  for (const bool input : {true, false}) {
    WorkerGraphDescription on_device = description;
    (input ? on_device.inputs : on_device.outputs)[0].on_device = true;
    EXPECT_THAT(
        error_of(ErrorKind::invalid_argument, [&] { const WorkerGraph graph(on_device, each); }),
        HasSubstr(std::string("the port \"") + (input ? "in" : "out") +
                  "\" is on the device, and " + why));
  }
  WorkerGraph graph(description, each);
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument,
               [&] {
                 graph.activate({width, height}, {device_end("in")}, {device_end("out", false)});
               }),
      HasSubstr(why));
  const DeviceMemory memory = shareable(frame);
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.lend(memory)); }),
              HasSubstr("it is in 2 processes, and device memory can be lent to one only"));
  // A grouping that comes out as one process will do.
  WorkerGraphDescription same = row({"exposure", "exposure"});
  same.inputs[0].on_device = same.outputs[0].on_device = true;
  WorkerGraph whole(same, grouped(WorkerGrouping::by_plugin));
  whole.set_parameter(0, "stops", 1);
  whole.set_parameter(1, "stops", 1);
  whole.activate({width, height});
  const WorkerDeviceBuffer lent = whole.lend(memory);
  const auto input = noise(frame, 6);
  store(input, memory);
  EXPECT_EQ(whole.process(at(memory), at(memory), picture_job()), JobOutcome::done);
  EXPECT_EQ(fetch(memory, frame), brighter(brighter(input)));
}

TEST_F(WorkerDeviceTest, ALateJobCanOnlyBeDelivered) {
  WorkerGraphOptions with = graph_options();
  with.graph.late = LateJobs::drop;
  WorkerGraph graph(brightening(), with);
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] {
                         graph.activate({width, height});
                       }),
              HasSubstr("a late job can only be delivered"));
}

// The worker writes there all the same, and no other job names it.
TEST_F(WorkerDeviceTest, MemoryThatEndsBeforeItsJobIsKeptInTheWorker) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 2;
  WorkerGraph graph = active_graph(brightening(false, true), with);
  const std::vector<float> own(frame, 0.25F);
  const DeviceMemory memory = shareable(frame);
  const auto lend_and_use = [&] {
    const WorkerDeviceBuffer lent = graph.lend(memory);
    graph.process(own.data(), at(memory), picture_job());
  };
  lend_and_use();  // with what the first job needs for good
  const auto before = descriptors();
  for (int round = 0; round < 5; ++round) {
    store(std::vector<float>(frame), memory);
    std::optional<WorkerDeviceBuffer> ended = graph.lend(memory);
    const std::uint64_t job = graph.submit({{own.data()}, {at(memory)}}, picture_job());
    ended.reset();
    EXPECT_EQ(settled_descriptors(before + 1), before + 1) << "it is not taken back yet";
    const auto use = [&] { graph.submit({{own.data()}, {at(memory)}}, picture_job()); };
    EXPECT_THAT(error_of(ErrorKind::invalid_argument, use),
                HasSubstr("a buffer of the port \"out\""));
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
    EXPECT_EQ(settled_descriptors(before), before);
    EXPECT_EQ(fetch(memory, frame), brighter(own));
  }
  EXPECT_EQ(graph.exits(), 0U);
}

TEST_F(WorkerDeviceTest, GraphLoanAndMemoryEndInAnyOrder) {
  close(shareable(1).export_descriptor());  // a driver may open some for good
  const auto before = descriptors();
  std::vector<int> order{0, 1, 2};
  do {
    for (const bool in_flight : {false, true}) {
      std::optional<DeviceMemory> memory = shareable(frame);
      std::optional<WorkerGraph> graph = active_graph(brightening(), graph_options());
      std::optional<WorkerDeviceBuffer> lent = graph->lend(*memory);
      graph->submit({{at(*memory)}, {at(*memory)}}, picture_job());
      if (!in_flight) graph->finish(1);
      for (const int what : order) {
        if (what == 0) graph.reset();
        if (what == 1) lent.reset();
        if (what == 2) memory.reset();
        EXPECT_EQ(graph ? graph->exits() : 0, 0U);
      }
      EXPECT_EQ(tenant.memory_bytes(), 0U);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(settled_descriptors(before), before);
}

// Neither of the graph, nor of a loan in a graph that goes on.
TEST_F(WorkerDeviceTest, GraphsAndLoansLeaveNothing) {
  const DeviceMemory memory = shareable(frame);
  store(std::vector<float>(frame), memory);
  close(memory.export_descriptor());  // a driver may open some for good
  const auto use = [&](WorkerGraph& graph) {
    const WorkerDeviceBuffer lent = graph.lend(memory);
    EXPECT_EQ(graph.process(at(memory), at(memory), picture_job()), JobOutcome::done);
  };
  const Left before = settled_left();
  {
    WorkerGraphOptions with = graph_options();
    with.stand_by = true;
    WorkerGraph graph = active_graph(brightening(), with);
    const WorkerDeviceBuffer lent = graph.lend(memory);
    use(graph);
    kill(graph.process_id(), SIGKILL);
    wait_for_end();
    use(graph);
  }
  EXPECT_EQ(left_after_all(before), before);
  {
    WorkerGraph graph = active_graph(brightening(), graph_options());
    use(graph);
    const Left with_graph = left();
    const auto in_worker = descriptors(std::to_string(graph.process_id()));
    for (int round = 0; round < 20; ++round) use(graph);
    EXPECT_EQ(left_after_all(with_graph), with_graph);
    EXPECT_EQ(descriptors(std::to_string(graph.process_id())), in_worker);
    // The controls.
    const WorkerDeviceBuffer lent = graph.lend(memory);
    EXPECT_EQ(left().descriptors, with_graph.descriptors + 1);
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerDeviceTest, MovedLoanKeepsItsMemory) {
  WorkerGraph graph = active_graph(brightening(), graph_options());
  const DeviceMemory first = shareable(frame), second = shareable(frame);
  WorkerDeviceBuffer lent = graph.lend(first);
  WorkerDeviceBuffer moved(std::move(lent));
  EXPECT_FALSE(lent);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(lent.bytes(), 0U);
  EXPECT_EQ(moved.address(), first.address());
  moved = graph.lend(second);
  EXPECT_THAT(refusal(graph, at(first), at(second), height), HasSubstr("is in no device memory"));
  EXPECT_EQ(graph.process(at(second), at(second), picture_job()), JobOutcome::done);
  WorkerDeviceBuffer& same = moved;
  moved = std::move(same);
  EXPECT_EQ(moved.address(), second.address());
  WorkerGraph elsewhere = std::move(graph);
  EXPECT_EQ(elsewhere.process(at(second), at(second), picture_job()), JobOutcome::done);
}

}  // namespace
}  // namespace ctxbroker
