// SPDX-License-Identifier: Apache-2.0
// Pictures while a process of the graph is away: WorkerGraphOptions::dry_while_away. Which ones are
// dry, and when the process is back.
#include "dry_pictures_fixture.hpp"
#include "support/left.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(WorkerDryPicturesTest, PicturesAreDryUntilTheNextProcessIsThere) {
  WorkerGraph graph = active(row({"exposure", "blur"}), dry());
  graph.set_parameter(0, "stops", 1);
  InProcess here(row({"exposure", "blur"}));
  const auto expected = [&](double stops) {
    here.instances[0].set_parameter("stops", stops);
    here.activate({width, height});
    Pixels out(samples_of(whole_frame));
    const Pixels in = picture(0);
    here.graph->process(in.data(), out.data(), picture_job());
    return out;
  };
  expect(JobOutcome::done, expected(1), process(graph, {picture(0)}));
  for (unsigned times = 0; times < 2; ++times) {
    end_process(graph);
    expect(JobOutcome::dry, picture(times), process(graph, {picture(times)}));
    EXPECT_NE(graph.state(), WorkerState::ready);  // it did not wait
    graph.set_parameter(0, "stops", 2 + times);
    EXPECT_EQ(until_done(graph, {picture(0)}), expected(2 + times));
  }
  EXPECT_EQ(graph.exits(), 2U);
  EXPECT_THAT(records(), Contains(HasSubstr("ran without its plug-ins meanwhile")));
}

// The positive control.
TEST_F(WorkerDryPicturesTest, PictureWithoutTheDryOptionFailsAndTheNextOneWaits) {
  WorkerGraphOptions with = dry();
  with.dry_while_away = false;
  WorkerGraph graph = active(row({"exposure"}), with);
  kill(graph.process_id(), SIGSTOP);
  error_of(ErrorKind::context_lost, [&] { process(graph, {picture(0)}); });
  EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::done);
}

TEST_F(WorkerDryPicturesTest, APictureThatIsInTheProcessIsDry) {
  for (const bool is_in_place : {false, true}) {
    WorkerGraph graph = active(row({"exposure"}), dry());
    kill(graph.process_id(), SIGSTOP);  // so that it cannot answer
    Pixels in = picture(3), out(in.size());
    float* const to = is_in_place ? in.data() : out.data();
    EXPECT_EQ(graph.process(in.data(), to, picture_job()), JobOutcome::dry);
    EXPECT_EQ(is_in_place ? in : out, picture(3));
  }
}

// Whichever process ends, the others go on.
TEST_F(WorkerDryPicturesTest, OnlyTheProcessThatIsAwayIsLeftOut) {
  const std::vector<std::string> all{"exposure", "vignette", "blur"};
  WorkerGraphOptions with = dry(WorkerGrouping::each_instance);
  WorkerGraph graph = active(row(all), with);
  const Pixels whole = made_here(row(all), {picture(0)});
  expect(JobOutcome::done, whole, process(graph, {picture(0)}));
  for (std::size_t node = 0; node < all.size(); ++node) {
    std::vector<std::string> others = all;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(node));
    end_process(graph, node);
    expect(JobOutcome::dry, made_here(row(others), {picture(0)}), process(graph, {picture(0)}));
    EXPECT_EQ(until_done(graph, {picture(0)}), whole);
    EXPECT_EQ(graph.exits(node), 1U);
  }
}

// The job begins anew without a plug-in that crashes, or does not end in its time, in the job.
TEST_F(WorkerDryPicturesTest, AProcessThatEndsInTheJobIsLeftOut) {
  WorkerGraphDescription description = row({"exposure", "vignette"});
  const Pixels expected = made_here(description, {picture(0)});
  for (const std::size_t at : {0U, 1U, 2U}) {
    WorkerGraphDescription with_deaths = description;
    with_deaths.nodes.insert(with_deaths.nodes.begin() + static_cast<std::ptrdiff_t>(at),
                             node_of("deaths", "test_plugins/"));
    for (const int way : {1, 8}) {  // a segmentation fault, an endless loop
      WorkerGraphOptions with = dry(WorkerGrouping::each_instance);
      if (way == 8) with.worker.call_timeout = milliseconds(sanitized ? 3000 : 1000);
      with.graph.jobs_in_flight = 2;
      WorkerGraph graph = active(with_deaths, with);
      graph.set_parameter(at, "way", way);
      expect(JobOutcome::dry, expected, process(graph, {picture(0)}));
      graph.set_parameter(at, "way", 0);
      EXPECT_EQ(graph.exits(at), 1U);
      EXPECT_EQ(until_done(graph, {picture(0)}), expected);
      EXPECT_EQ(graph.exits(0) + graph.exits(1) + graph.exits(2), 1U);
    }
  }
}

// A process that ends before its turn in the job is not started by the job.
TEST_F(WorkerDryPicturesTest, AProcessMayEndWhileAnotherOneWorks) {
  WorkerGraphOptions with = dry(WorkerGrouping::each_instance);
  with.worker.heartbeat_timeout = milliseconds(0);  // a slow machine may stop it for long
  WorkerGraph graph = active(row({"exposure", "blur"}), with);
  const Pixels expected = made_here(row({"exposure"}), {picture(0)});
  kill(graph.process_id(0), SIGSTOP);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    end_process(graph, 1);
    kill(graph.process_id(0), SIGCONT);
  });
  expect(JobOutcome::dry, expected, process(graph, {picture(0)}));
  killer.join();
  EXPECT_NE(graph.state(1), WorkerState::ready);
  EXPECT_EQ(graph.exits(0), 0U);
}

TEST_F(WorkerDryPicturesTest, SubmitLeavesOutAProcessThatEndsBeforeTheLast) {
  WorkerGraphDescription description = row({"exposure"});
  description.nodes.insert(description.nodes.begin(), node_of("deaths", "test_plugins/"));
  WorkerGraph graph = active(description, dry(WorkerGrouping::each_instance));
  graph.set_parameter(0, "way", 1);
  const Pixels in = picture(0), expected = made_here(row({"exposure"}), {in});
  Pixels out(in.size());
  const std::uint64_t job = graph.submit({{in.data()}, {out.data()}}, picture_job());
  EXPECT_EQ(graph.finish(job), JobOutcome::dry);
  EXPECT_EQ(graph.finish(job), JobOutcome::dry);  // asked again
  EXPECT_EQ(out, expected);
}

// The host has to hear of jobs that are lost with the last process.
TEST_F(WorkerDryPicturesTest, PicturesInFlightAreLostWithTheLastProcess) {
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    WorkerGraphOptions with = until_pardon(grouping);
    with.graph.jobs_in_flight = 2;
    WorkerGraph graph = active(row({"exposure", "exposure"}), with);
    const Pixels in = picture(0);
    Pixels out(in.size()), other(in.size());
    const auto submit = [&](Pixels& to) {
      return graph.submit({{in.data()}, {to.data()}}, picture_job());
    };
    std::uint64_t job = submit(out);
    end_process(graph, 1);
    EXPECT_TRUE(graph.is_done(job));
    error_of(ErrorKind::context_lost, [&] { graph.finish(job); });
    job = submit(out);
    const std::uint64_t next = submit(other);
    EXPECT_EQ(next, job + 1);
    EXPECT_TRUE(graph.is_done(next));
    EXPECT_EQ(graph.finish(next), JobOutcome::dry);
    EXPECT_EQ(graph.finish(job), JobOutcome::dry);
    EXPECT_EQ(out, in);
    EXPECT_EQ(other, in);
    graph.pardon();
    until_done(graph, {in});
    // The next call says so as well.
    submit(out);
    end_process(graph, 1);
    error_of(ErrorKind::context_lost, [&] { submit(other); });
    EXPECT_EQ(graph.finish(submit(other)), JobOutcome::dry);
  }
}

// The process may have damaged the input.
TEST_F(WorkerDryPicturesTest, AJobWithALentInputIsLost) {
  WorkerGraph graph = active(row({"exposure"}), dry());
  const WorkerBuffer block = graph.lend(samples_of(whole_frame) * sizeof(float));
  auto* const lent = static_cast<float*>(block.data());
  const Pixels in = picture(0);
  std::copy(in.begin(), in.end(), lent);
  kill(graph.process_id(), SIGSTOP);
  error_of(ErrorKind::context_lost, [&] { graph.process(lent, lent, picture_job()); });
  EXPECT_EQ(graph.process(lent, lent, picture_job()), JobOutcome::dry);
  EXPECT_EQ(Pixels(lent, lent + in.size()), in);
}

TEST_F(WorkerDryPicturesTest, StandByTakesOverAfterADryPicture) {
  WorkerGraphOptions with = dry(WorkerGrouping::each_instance);
  with.stand_by = true;
  WorkerGraph graph = active(row({"exposure", "blur"}), with);
  const Pixels whole = made_here(row({"exposure", "blur"}), {picture(0)});
  for (int times = 0; times < 2; ++times) {
    end_process(graph, 1);
    expect(JobOutcome::dry, picture(0), process(graph, {picture(0)}));
    EXPECT_EQ(until_done(graph, {picture(0)}), whole);
  }
}

TEST_F(WorkerDryPicturesTest, QuarantinedProcessStaysAway) {
  WorkerGraph graph = active(row({"exposure"}), until_pardon(WorkerGrouping::together));
  end_process(graph);
  for (unsigned i = 0; i < 20; ++i) {
    expect(JobOutcome::dry, picture(i), process(graph, {picture(i)}));
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(graph.state(), WorkerState::quarantined);
  EXPECT_EQ(graph.output_extents(picture_job())[0].width, width);
  EXPECT_THAT(children(), IsEmpty());
  graph.pardon();
  until_done(graph, {picture(0)});
}

TEST_F(WorkerDryPicturesTest, ProcessStaysAwayAfterAFailedStartUntilPardon) {
  const auto library = folder() / "exposure.so", away = folder() / "away.so";
  std::filesystem::copy_file(built("plugins/exposure.so"), library);
  WorkerGraph graph = active({{{"in"}}, {{"out"}}, {{"exposure", library}}}, dry());
  std::filesystem::rename(library, away);
  end_process(graph);
  for (int i = 0; i < 2000 && graph.state() != WorkerState::failed; ++i) {
    EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::dry);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(graph.state(), WorkerState::failed);
  expect(JobOutcome::dry, picture(1), process(graph, {picture(1)}));
  EXPECT_THAT(children(), IsEmpty());  // it does not try with each picture
  std::filesystem::rename(away, library);
  graph.pardon();
  until_done(graph, {picture(0)});
}

TEST_F(WorkerDryPicturesTest, CallsOtherThanJobsWaitForTheNextProcess) {
  WorkerGraph graph = active(row({"exposure"}), dry());
  end_process(graph);
  EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::dry);
  EXPECT_EQ(graph.node_state(0).lease.state, LeaseState::ready);
  EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::done);
  end_process(graph);
  graph.activate({width, height});
  EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::done);
}

// A plug-in in the host's process cannot be away.
TEST_F(WorkerDryPicturesTest, PluginsInTheHostAreNeverDry) {
  Broker host = Broker::open();
  WorkerGraphDescription description = row({"exposure", "blur"});
  WorkerGraphOptions with = dry(WorkerGrouping::in_host);
  with.broker = &host;
  WorkerGraph whole = active(description, with);
  const Pixels expected = made_here(description, {picture(0)});
  expect(JobOutcome::done, expected, process(whole, {picture(0)}));
  for (const std::size_t away : {0U, 1U}) {
    WorkerGraphDescription mixed = description;
    mixed.nodes[away].grouping = WorkerGrouping::each_instance;
    WorkerGraph graph = active(mixed, with);
    end_process(graph, away);
    expect(JobOutcome::dry, made_here(row({away == 0 ? "blur" : "exposure"}), {picture(0)}),
           process(graph, {picture(0)}));
    EXPECT_EQ(until_done(graph, {picture(0)}), expected);
  }
}

TEST_F(WorkerDryPicturesTest, AGraphMayEndWhileAProcessIsAway) {
  const Left before = settled_left();
  {
    WorkerGraph graph = active(row({"exposure", "blur"}), dry(WorkerGrouping::each_instance));
    end_process(graph);
    EXPECT_EQ(process(graph, {picture(0)}).outcome, JobOutcome::dry);
  }
  EXPECT_EQ(left_after_all(before), before);
}

// A bad job is refused while a process is away, as it is otherwise. A wrong answer of a process is
// refused, too.
TEST_F(WorkerDryPicturesTest, RefusesBadJobs) {
  WorkerGraph graph = active(row({"exposure"}), dry());
  JobInfo large = picture_job(), part = picture_job();
  large.width = 2 * width + 1;
  part.region = {0, 0, 4, 4};
  const auto refusals = [&] {
    std::vector<std::string> texts;
    for (const JobInfo& job : {large, part}) {
      texts.push_back(
          error_of(ErrorKind::invalid_argument, [&] { process(graph, {picture(0)}, job); }));
    }
    return texts;
  };
  const auto texts = refusals();
  EXPECT_THAT(texts, ElementsAre(HasSubstr("does not fit"), HasSubstr("call input_regions")));
  end_process(graph);
  EXPECT_EQ(refusals(), texts);
}

TEST_F(WorkerDryPicturesTest, DryPicturesRefuseRetryLateJobsAndDeviceEnds) {
  const auto refused = [&](const WorkerGraphDescription& graph, const WorkerGraphOptions& with) {
    return error_of(ErrorKind::invalid_argument, [&] { active(graph, with); });
  };
  WorkerGraphOptions with = dry();
  with.retry = true;
  EXPECT_THAT(refused(row({"blur"}), with), HasSubstr("retry and dry_while_away"));
  with = dry();
  with.graph.late = LateJobs::drop;
  EXPECT_THAT(refused(row({"blur"}), with), HasSubstr("GraphOptions::late"));
  WorkerGraphDescription on_device = row({"blur"});
  on_device.inputs[0].on_device = true;
  EXPECT_THAT(refused(on_device, dry()), HasSubstr("dry_while_away is set"));
}

}  // namespace
}  // namespace ctxbroker
