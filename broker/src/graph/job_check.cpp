// SPDX-License-Identifier: Apache-2.0
#include "graph/job_check.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "ctxbroker/error.hpp"
#include "observe/number_text.hpp"

namespace ctxbroker::detail {

void refuse_job(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

namespace {

std::string size_text(std::uint32_t width, std::uint32_t height) {
  return std::to_string(width) + " x " + std::to_string(height);
}

void check_buffers(const auto& given, std::size_t wanted, const char* kind, const char* which) {
  if (given.size() != wanted) {
    refuse_job("the job has " + std::to_string(given.size()) + " " + kind + "s; the graph has " +
               std::to_string(wanted) + which);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] != nullptr) continue;
    refuse_job("an " + std::string(kind) + " of the job is null: number " + std::to_string(i));
  }
}

// The values that the host gives come first.
std::size_t given_count(const Wiring& wiring) {
  const auto end = std::find_if(wiring.values.begin(), wiring.values.end(),
                                [](const Value& value) { return value.node.has_value(); });
  return static_cast<std::size_t>(end - wiring.values.begin());
}

}  // namespace

void check_info(const Wiring& wiring, const JobInfo& job) {
  if (job.width == 0 || job.height == 0) refuse_job("the job's width or height is 0");
  const std::size_t given = given_count(wiring);
  const std::size_t inputs =
      given == 0 ? 0 : wiring.values[given - 1].port + 1;  // all are connected, in their order
  if (!job.extents.empty() && job.extents.size() != inputs) {
    refuse_job("the job has " + std::to_string(job.extents.size()) + " extents; the graph has " +
               std::to_string(inputs) + " inputs");
  }
  if (wiring.media == Media::audio && (job.region.width != 0 || !job.extents.empty())) {
    refuse_job("the job has a region or extents, and audio has none");
  }
}

void check_job(const Wiring& wiring, const ActivationSizes& sizes, const JobBuffers& buffers,
               const JobInfo& job) {
  const std::size_t given = given_count(wiring);
  const bool has_neighbours =
      std::any_of(wiring.values.begin(), wiring.values.begin() + static_cast<std::ptrdiff_t>(given),
                  [](const Value& value) { return value.frame != 0; });
  check_buffers(buffers.inputs, given, "input",
                has_neighbours ? ", with the frames around the job's own one: see job_inputs" : "");
  check_buffers(buffers.outputs, wiring.outputs.size(), "output", "");
  check_info(wiring, job);
  // The host's part of the pictures is checked here. The size that the nodes work on is known only
  // when their plug-ins have been asked.
  const bool has_region = job.region.width != 0;
  const std::uint32_t width = has_region ? job.region.width : job.width;
  const std::uint32_t height = has_region ? job.region.height : job.height;
  if (width > sizes.max_width || height > sizes.max_height) {
    refuse_job("a job of " + size_text(width, height) + " does not fit into " +
               size_text(sizes.max_width, sizes.max_height) +
               ", the max_width and max_height of the graph");
  }
  const bool takes_channels =
      wiring.job_channels == UINT32_MAX ||
      (job.height <= 32 && (wiring.job_channels >> (job.height - 1) & 1) != 0);
  if (wiring.media == Media::audio && !takes_channels) {
    refuse_job("a job of " + std::to_string(job.height) +
               " channels does not suit all of its plug-ins' ports");
  }
  if (!std::isfinite(job.sample_rate) || job.sample_rate < 0) {
    refuse_job("the sample rate is negative or not finite");
  }
  if (wiring.media == Media::audio) {
    check_rate("the job", job.sample_rate, wiring.nodes[0].name, sizes.sample_rate);
  }
}

void check_rate(const char* what, double rate, const std::string& plugin, double active) {
  if (rate == active) return;
  refuse_job(std::string(what) + " has a sample rate of " + general_text(rate, 9) + " Hz, but " +
             plugin + " is active for " + general_text(active, 9) +
             " Hz; deactivate and activate the plug-in to change its rate");
}

}  // namespace ctxbroker::detail
