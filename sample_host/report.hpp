// SPDX-License-Identifier: Apache-2.0
// The report of a run: a few lines and one table for people, the same and more as JSON for
// programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/plugin_description.hpp"
#include "files/audio_file.hpp"
#include "frames.hpp"
#include "lease_rows.hpp"
#include "pace.hpp"
#include "session.hpp"

namespace ctxbroker::sample_host {

// NOLINTNEXTLINE(bugprone-exception-escape): moving JSON throws nothing
struct PluginRow {
  std::string node;  // its name in a graph file; empty in a row
  std::string id, short_name, version, library;
  int device = 0;
  LeaseChoice asked, granted;
  std::string lease_reason;
  Metrics metrics;
  nlohmann::ordered_json parameters;  // by their ids
};

struct FileFacts {
  std::string name;  // of the graph's port; empty in a row
  std::string path;
  std::string format;        // in words
  std::uint64_t width = 0;   // pixels; 0 for recordings
  std::uint64_t height = 0;  // pixels
  std::uint64_t frames = 0;  // recordings
};

// The facts about a sequence.
struct FrameFacts {
  FrameRange range;
  std::size_t written = 0;
  std::size_t skipped = 0;  // were there already
};

struct AudioFacts {
  int channels = 0;
  int sample_rate = 0;  // Hz
  std::uint32_t block_frames = 0;
  std::uint64_t latency_frames = 0;
  ClipCount clips;
  std::optional<PaceFacts> pace;  // with --pace
};

struct Report {
  std::string command;  // "image" or "audio"
  DriverInfo driver;
  std::vector<DeviceInfo> devices;  // that plug-ins worked on; never empty
  // In the order of the graph's ports; of a sequence, those of its last frame. There is an output.
  std::vector<FileFacts> inputs, outputs;
  int jobs_in_flight = 1;  // the most
  std::optional<FrameFacts> frames;
  std::optional<AudioFacts> audio;
  std::string moved;           // why the plug-ins have gone on in a worker process; or empty
  double wall_seconds = 0;     // the whole command, until the output was complete
  double process_seconds = 0;  // of these in the graph
  std::vector<PluginRow> plugins;
  BrokerMetrics metrics;
  std::vector<LeaseRow> leases;
};

// Driver, devices, one row per plug-in and one per lease. While the instances are active.
void describe_session(Session& session, Report& report);

// Seconds of sound per second in the graph; 0 for images.
double realtime_factor(const Report& report);

// `reasons`: also why each lease is of its kind.
std::string format_report(const Report& report, bool reasons);
nlohmann::ordered_json report_to_json(const Report& report);

// JSON as text, with a line break at the end; bytes that are no UTF-8 become U+FFFD.
std::string dump(const nlohmann::ordered_json& json);

std::string version_text(int version);           // "13.0" for 13000
std::string describe(const DriverInfo& driver);  // "software device, CUDA 13.0"
std::string describe(const DeviceInfo& device);  // "NAME, compute capability 9.0, ..."
nlohmann::ordered_json to_json(const DriverInfo& driver);
nlohmann::ordered_json to_json(const DeviceInfo& device);

}  // namespace ctxbroker::sample_host
