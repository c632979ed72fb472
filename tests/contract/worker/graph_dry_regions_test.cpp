// SPDX-License-Identifier: Apache-2.0
// What a picture is while a process of the graph is away: parts of pictures, other frames, formats.
#include "dry_pictures_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;

// The plug-in makes a picture that is larger on each side by 3 pixels.
TEST_F(WorkerDryPicturesTest, APictureMayBeLargerThanItsInput) {
  constexpr ImageRegion around{-3, -3, width + 6, height + 6};
  JobInfo job = picture_job();
  job.region = around;
  const Pixels expected = seen_in(around, picture(0));
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    for (const bool is_last : {true, false}) {
      WorkerGraphDescription description{{{"in"}}, {{"out"}}, {image_node("pads")}};
      if (!is_last) description.nodes.push_back(node_of("exposure"));
      WorkerGraph graph = active(description, until_pardon(grouping));
      const auto extent = [&] { return graph.output_extents(picture_job())[0].width; };
      EXPECT_EQ(extent(), around.width);
      EXPECT_EQ(graph.input_regions(job)[0].width, width);
      end_process(graph);
      expect(JobOutcome::dry, expected, process(graph, {picture(0)}, job));  // asked before
      EXPECT_EQ(extent(), width);
      EXPECT_EQ(graph.input_regions(job)[0].width, width);
      expect(JobOutcome::dry, expected, process(graph, {picture(0)}, job));
      graph.pardon();
      EXPECT_EQ(until_done(graph, {picture(0)}, job), expected);
      EXPECT_EQ(extent(), around.width);
    }
  }
}

// Nothing is left of such a tile, so nothing is needed for it either.
TEST_F(WorkerDryPicturesTest, TileOutsideOfTheDryPictureIsTransparent) {
  JobInfo job = picture_job();
  job.region = {-3, -3, 2, 2};
  WorkerGraphDescription description{
      {{"in"}}, {{"out"}}, {image_node("pads"), node_of("exposure")}};
  WorkerGraph graph = active(description, until_pardon(WorkerGrouping::each_instance));
  end_process(graph);
  const ImageRegion told = graph.input_regions(job)[0];
  EXPECT_LE(told.width * told.height, 1U);
  expect(JobOutcome::dry, Pixels(std::size_t{2} * 2 * 4), process(graph, {Pixels(4)}, job));
}

// The dry picture has no pixels where the input has none.
TEST_F(WorkerDryPicturesTest, AnInputMayBeSmallerThanTheFrame) {
  JobInfo job = picture_job();
  constexpr ImageRegion there{2, 2, 20, 10};
  job.extents = {there};
  WorkerGraph graph = active(row({"exposure", "exposure"}), until_pardon(WorkerGrouping::together));
  end_process(graph);
  const ImageRegion extent = graph.output_extents(job)[0];
  EXPECT_EQ(extent.x, there.x);
  EXPECT_EQ(extent.width, there.width);
  job.region = whole_frame;
  EXPECT_EQ(graph.input_regions(job)[0].height, there.height);
  const Pixels in = seen_in(there, picture(0));
  expect(JobOutcome::dry, seen_in(whole_frame, in, there), process(graph, {in}, job));
}

// The host was told a region that has room for the blur's reach.
TEST_F(WorkerDryPicturesTest, ProcessThatEndsAfterTellingItsRegionIsLeftOut) {
  JobInfo job = picture_job();
  job.region = {8, 4, 8, 4};
  WorkerGraph graph =
      active(row({"exposure", "blur"}), until_pardon(WorkerGrouping::each_instance));
  const Pixels whole = picture(0);
  const ImageRegion told = graph.input_regions(job)[0];
  ASSERT_GT(told.width, job.region.width);
  end_process(graph, 1);
  expect(JobOutcome::dry, seen_in(job.region, made_here(row({"exposure"}), {whole})),
         process(graph, {seen_in(told, whole)}, job));
  // Asked again, it needs no more than the region.
  const ImageRegion less = graph.input_regions(job)[0];
  EXPECT_EQ(less.width, job.region.width);
  EXPECT_EQ(less.height, job.region.height);
  expect(JobOutcome::dry, seen_in(job.region, made_here(row({"exposure"}), {whole})),
         process(graph, {seen_in(less, whole)}, job));
}

// A process that comes back after input_regions has not said what it needs, so it is left out of
// that job.
TEST_F(WorkerDryPicturesTest, AProcessMayBeBackAfterTheOthersWereAsked) {
  JobInfo job = picture_job();
  job.region = {8, 4, 8, 4};
  WorkerGraph graph = active(row({"blur"}), dry());
  const Pixels whole = picture(0);
  end_process(graph);
  const ImageRegion told = graph.input_regions(job)[0];
  EXPECT_EQ(told.width, job.region.width);
  std::this_thread::sleep_for(milliseconds(sanitized ? 6000 : 1500));  // it is ready
  expect(JobOutcome::dry, seen_in(job.region, whole), process(graph, {seen_in(told, whole)}, job));
  EXPECT_EQ(graph.state(), WorkerState::ready);
  const ImageRegion more = graph.input_regions(job)[0];
  EXPECT_GT(more.width, job.region.width);
  expect(JobOutcome::done, seen_in(job.region, made_here(row({"blur"}), {whole})),
         process(graph, {seen_in(more, whole)}, job));
}

// The plug-in in the middle makes its picture smaller. Without it, the next one needs more than the
// host was asked for, and gets transparent pixels there.
TEST_F(WorkerDryPicturesTest, MissingPixelsOfADryPictureAreTransparent) {
  JobInfo job = picture_job();
  job.region = {3, 3, width - 6, height - 6};
  for (const bool is_first : {true, false}) {
    WorkerGraphDescription description{{{"in"}}, {{"out"}}, {image_node("pads"), node_of("blur")}};
    if (!is_first) description.nodes.insert(description.nodes.begin(), node_of("exposure"));
    WorkerGraph graph = active(description, until_pardon(WorkerGrouping::each_instance));
    const std::size_t pads = is_first ? 0 : 1;
    graph.set_parameter(pads, "by", -3);
    const Pixels whole = picture(0), inner = seen_in(job.region, whole);
    const ImageRegion told = graph.input_regions(job)[0];
    EXPECT_EQ(told.width, job.region.width);
    end_process(graph, pads);
    std::vector<std::string> others{"blur"};
    if (!is_first) others.insert(others.begin(), "exposure");
    expect(JobOutcome::dry,
           seen_in(job.region, made_here(row(others), {seen_in(whole_frame, inner, told)})),
           process(graph, {inner}, job));
    EXPECT_GT(graph.input_regions(job)[0].width, told.width);
    expect(JobOutcome::dry, seen_in(job.region, made_here(row(others), {whole})),
           process(graph, {whole}, job));
  }
}

// A need that cannot be is refused, even while another process is away.
TEST_F(WorkerDryPicturesTest, ImpossibleRegionIsRefusedWhileAProcessIsAway) {
  WorkerGraphOptions with = until_pardon(WorkerGrouping::each_instance);
  with.worker.environment.emplace_back("TEST_GRAPH_LIE=region_larger");
  with.worker.program = worker_file("worker_graph_liar");
  const WorkerNode liar{"liar", built("test_plugins/deaths.so"), "liar"};
  WorkerGraphDescription description{{{"in"}}, {{"out"}}, {liar, liar}};
  description.nodes[1].name = "second";
  const std::pair<std::size_t, const char*> cases[] = {
      {0, "16 x 16 pixels at (0, 0) of 1 liar.out, which is larger"},
      {1, "16 x 16 pixels at (0, 0) of in, and there are 8 x 8"}};
  for (const auto& [away, text] : cases) {
    WorkerGraph graph(description, with);
    graph.activate({8, 8});
    end_process(graph, away);
    std::vector<float> pixels(8 * 8 * 4), output(8 * 8 * 4);
    try {
      graph.process(pixels.data(), output.data(), JobInfo{8, 8});
      ADD_FAILURE() << "it was believed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
    }
  }
}

// With the option and no crash, a graph does what it does without.
TEST_F(WorkerDryPicturesTest, DryOptionChangesNothingWhileNoProcessIsAway) {
  WorkerGraph graph = active(sharp_and_blurred(), dry());
  InProcess here(sharp_and_blurred());
  here.activate({2 * width, 2 * height});
  EXPECT_EQ(graph.processes(), 1U);
  EXPECT_EQ(graph.latency_frames(), 0U);
  EXPECT_EQ(graph.latency_before(2), 0U);
  JobInfo job = picture_job();
  for (const ImageRegion& region : {ImageRegion{}, ImageRegion{8, 4, 8, 4}}) {
    job.region = region;
    const ImageRegion needed = graph.input_regions(job)[0],
                      known = here.graph->input_regions(job)[0];
    EXPECT_EQ(needed.x, known.x);
    EXPECT_EQ(needed.height, known.height);
    const Pixels in = seen_in(needed, picture(0));
    const std::size_t samples = samples_of(region.width != 0 ? region : whole_frame);
    Pixels blurred(samples), sharp(samples), its_blurred(samples), its_sharp(samples);
    here.graph->process({{in.data()}, {blurred.data(), sharp.data()}}, job);
    EXPECT_EQ(graph.process({{in.data()}, {its_blurred.data(), its_sharp.data()}}, job),
              JobOutcome::done);
    EXPECT_EQ(its_blurred, blurred);
    EXPECT_EQ(its_sharp, sharp);
  }
}

// The picture of the job, not one before or after.
TEST_F(WorkerDryPicturesTest, DryPictureIsTheFrameOfItsJob) {
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    WorkerGraph graph = active(row({"exposure", "time_blur"}), dry(grouping));
    const std::vector<Pixels> frames{picture(0), picture(1), picture(2)};
    const auto& inputs = graph.job_inputs();
    ASSERT_EQ(inputs.size(), 3U);
    ASSERT_EQ(inputs[1].frame, 0);
    const Pixels whole = made_here(row({"exposure", "time_blur"}), frames, 5);
    expect(JobOutcome::done, whole, process(graph, frames, picture_job(5)));
    end_process(graph, 1);
    expect(JobOutcome::dry, frames[1], process(graph, frames, picture_job(5)));
    EXPECT_EQ(until_done(graph, frames, picture_job(5)), whole);
    if (grouping == WorkerGrouping::together) continue;
    end_process(graph, 0);  // which each of the three frames goes through
    expect(JobOutcome::dry, made_here(row({"time_blur"}), frames, 5),
           process(graph, frames, picture_job(5)));
  }
}

// The first input that has the format of the output. There is none for the analyser.
TEST_F(WorkerDryPicturesTest, InputsOfOtherFormatsDoNotCount) {
  const WorkerGraphDescription description{
      {{"mask", 1}, {"back"}, {"front"}},
      {{"out"}, {"colours"}, {"again"}},
      {node_of("merge"), {"largest", built("test_plugins/pictures.so"), "largest"}},
      {{"mask", "merge.mask"},
       {"back", "merge.b"},
       {"front", "merge.a"},
       {"merge", "out"},
       {"merge", "largest"},
       {"largest", "colours"},
       {"merge", "again"}}};
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    WorkerGraph graph = active(description, dry(grouping));
    const Pixels mask = noise(width * height, 9), back = picture(1), front = picture(2);
    Pixels out(back.size()), again(back.size()), colours(4, -1);
    const auto process_all = [&] {
      return graph.process(
          {{mask.data(), back.data(), front.data()}, {out.data(), colours.data(), again.data()}},
          picture_job());
    };
    EXPECT_EQ(process_all(), JobOutcome::done);
    EXPECT_NE(out, back);
    EXPECT_EQ(again, out);
    const Pixels known = colours;
    EXPECT_THAT(known, Each(::testing::Gt(0.5F)));
    end_process(graph, 1);
    EXPECT_EQ(process_all(), JobOutcome::dry);
    EXPECT_THAT(colours, Each(0));
    if (grouping == WorkerGrouping::together) {
      EXPECT_EQ(out, back);  // the first one of the process
      EXPECT_EQ(again, back);
      // Nothing is written before all has been read.
      Pixels both = back;
      graph.process(
          {{mask.data(), both.data(), front.data()}, {out.data(), both.data(), again.data()}},
          picture_job());
      EXPECT_EQ(again, back);
    }
  }
}

// A plug-in without inputs is transparent, and so is one without an input of the format.
TEST_F(WorkerDryPicturesTest, WithoutAnInputThePictureIsTransparent) {
  const WorkerGraphDescription description{
      {{"in"}},
      {{"out"}},
      {{"slope", built("test_plugins/pictures.so"), "slope"}, node_of("merge")},
      {{"slope", "merge.a"}, {"in", "merge.b"}, {"merge", "out"}}};
  WorkerGraph graph = active(description, dry(WorkerGrouping::each_instance));
  const Done with_slope = process(graph, {picture(0)});
  EXPECT_EQ(with_slope.outcome, JobOutcome::done);
  end_process(graph, graph.process_of(0) == 0 ? 0 : 1);
  const WorkerGraphDescription merge{{{"a"}, {"b"}},
                                     {{"out"}},
                                     {node_of("merge")},
                                     {{"a", "merge.a"}, {"b", "merge.b"}, {"merge", "out"}}};
  const Pixels expected = made_here(merge, {Pixels(samples_of(whole_frame)), picture(0)});
  expect(JobOutcome::dry, expected, process(graph, {picture(0)}));
  EXPECT_NE(with_slope.out, expected);

  // An input of another sample type does not fit, so the picture is transparent.
  WorkerGraph half(row({"exposure"}), dry());
  half.activate({width, height}, {{"in", 0, SampleType::float16}}, {{"out"}});
  end_process(half);
  const std::vector<std::uint16_t> halves(samples_of(whole_frame), 0x3c00);
  Pixels out(samples_of(whole_frame), -1);
  EXPECT_EQ(half.process({{halves.data()}, {out.data()}}, picture_job()), JobOutcome::dry);
  EXPECT_THAT(out, Each(0));
}

TEST_F(WorkerDryPicturesTest, ResultsOfADryJobAreZeros) {
  const WorkerGraphDescription description{
      {{"in"}},
      {{"colours"}, {"out"}},
      {{"largest", built("test_plugins/pictures.so"), "largest"}, node_of("exposure")},
      {{"in", "largest"}, {"in", "exposure"}, {"largest", "colours"}, {"exposure", "out"}}};
  WorkerGraph graph = active(description, dry(WorkerGrouping::each_instance));
  const Pixels in = picture(0);
  Pixels colours(4), out(in.size());
  const JobBuffers buffers{{in.data()}, {colours.data(), out.data()}};
  EXPECT_EQ(graph.process(buffers, picture_job()), JobOutcome::done);
  EXPECT_NE(colours, Pixels(4));
  end_process(graph, 0);
  EXPECT_EQ(graph.process(buffers, picture_job()), JobOutcome::dry);
  EXPECT_EQ(colours, Pixels(4));
  EXPECT_EQ(out, in);
}

TEST_F(WorkerDryPicturesTest, HalfSamplesOfADryPictureAreCopied) {
  WorkerGraph graph(row({"exposure"}), dry());
  graph.activate({width, height}, {{"in", 0, SampleType::float16}},
                 {{"out", 0, SampleType::float16}});
  std::vector<std::uint16_t> in(samples_of(whole_frame)), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(0x3000 + i);
  EXPECT_EQ(graph.process({{in.data()}, {out.data()}}, picture_job()), JobOutcome::done);
  EXPECT_EQ(out, in);  // exposure of 0 stops
  out.assign(out.size(), 1);
  end_process(graph);
  EXPECT_EQ(graph.process({{in.data()}, {out.data()}}, picture_job()), JobOutcome::dry);
  EXPECT_EQ(out, in);
}

}  // namespace
}  // namespace ctxbroker
