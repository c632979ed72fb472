// SPDX-License-Identifier: Apache-2.0
// Pictures while a process of their graph is away.
#pragma once

#include <csignal>
#include <cstdint>
#include <thread>

#include "groups_fixture.hpp"

namespace ctxbroker {

using Pixels = std::vector<float>;
inline constexpr ImageRegion whole_frame{0, 0, width, height};

inline std::size_t samples_of(const ImageRegion& region) {
  return std::size_t{region.width} * region.height * 4;
}

// What there is of a picture in another part of it; zeros where there is nothing.
inline Pixels seen_in(const ImageRegion& wanted, const Pixels& pixels,
                      const ImageRegion& there = whole_frame) {
  Pixels seen(samples_of(wanted));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const std::int64_t x = wanted.x + static_cast<std::int64_t>(i / 4 % wanted.width) - there.x;
    const std::int64_t y = wanted.y + static_cast<std::int64_t>(i / 4 / wanted.width) - there.y;
    if (x < 0 || y < 0 || x >= there.width || y >= there.height) continue;
    seen[i] = pixels[static_cast<std::size_t>(y * there.width + x) * 4 + i % 4];
  }
  return seen;
}

inline Pixels picture(unsigned number) {
  return noise(samples_of(whole_frame), number + 1);
}

inline WorkerNode image_node(const std::string& plugin) {
  return {plugin, built("test_plugins/images.so"), plugin};
}

// What plug-ins in this process make of pictures.
inline Pixels made_here(const WorkerGraphDescription& graph, const std::vector<Pixels>& inputs,
                        std::int64_t position = 0) {
  InProcess here(graph);
  here.activate({width, height});
  Pixels out(samples_of(whole_frame));
  JobBuffers buffers{{}, {out.data()}};
  for (const Pixels& input : inputs) buffers.inputs.push_back(input.data());
  here.graph->process(buffers, picture_job(position));
  return out;
}

class WorkerDryPicturesTest : public WorkerGroupsTest {
 protected:
  WorkerGraphOptions dry(WorkerGrouping grouping = WorkerGrouping::together) {
    WorkerGraphOptions made = grouped(grouping);
    made.dry_while_away = true;
    made.worker.crash_limit = 0;
    return made;
  }
  // A process that ends stays away.
  WorkerGraphOptions until_pardon(WorkerGrouping grouping) {
    WorkerGraphOptions made = dry(grouping);
    made.worker.crash_limit = 1;
    return made;
  }
  // With room for pictures that are larger than the job's.
  static WorkerGraph active(const WorkerGraphDescription& description,
                            const WorkerGraphOptions& options) {
    WorkerGraph graph(description, options);
    graph.activate({2 * width, 2 * height});
    return graph;
  }
  struct Done {
    JobOutcome outcome;
    Pixels out;
  };
  static Done process(WorkerGraph& graph, const std::vector<Pixels>& inputs,
                      const JobInfo& job = picture_job()) {
    Done done{JobOutcome::forgotten,
              Pixels(samples_of(job.region.width != 0 ? job.region : whole_frame), -1)};
    JobBuffers buffers{{}, {done.out.data()}};
    for (const Pixels& input : inputs) buffers.inputs.push_back(input.data());
    done.outcome = graph.process(buffers, job);
    return done;
  }
  static void expect(JobOutcome outcome, const Pixels& pixels, const Done& done) {
    EXPECT_STREQ(to_string(done.outcome), to_string(outcome));
    EXPECT_EQ(done.out, pixels);
  }
  // Kills the process of a node, and returns when the graph knows it.
  void end_process(WorkerGraph& graph, std::size_t node = 0) {
    const std::size_t ended = ends().size();
    kill(graph.process_id(node), SIGKILL);
    wait_for_end(ended + 1);
  }
  // Until a picture is done again, which it returns.
  static Pixels until_done(WorkerGraph& graph, const std::vector<Pixels>& inputs,
                           const JobInfo& job = picture_job()) {
    for (int i = 0; i < 6000; ++i) {
      if (job.region.width != 0) static_cast<void>(graph.input_regions(job));
      Done done = process(graph, inputs, job);
      if (done.outcome == JobOutcome::done) return done.out;
      EXPECT_EQ(done.outcome, JobOutcome::dry);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "it did not come back: " << graph.reason();
    return {};
  }
};

}  // namespace ctxbroker
