// SPDX-License-Identifier: Apache-2.0
// The command line, read and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/placement.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "frames.hpp"

namespace ctxbroker::sample_host {

enum class Command { image, audio, list, doctor, kernels };

struct Size {
  std::uint32_t width = 0, height = 0;  // pixels
};

// "640x480", each from 1 to 1,000,000. Nothing if it is something else.
std::optional<Size> parse_size(std::string_view text);

// Members that a command has no option for stay at their defaults.
struct Options {
  Command command = Command::doctor;
  int verbosity = 0;  // -1 quiet, 0, 1 or 2: how often -v was given
  std::vector<std::filesystem::path> plugin_path;
  bool safe = false;                    // run no code to find plug-ins
  bool rescan = false;                  // look at all libraries anew
  std::uint32_t scan_timeout = 10'000;  // ms, for loading one library
  std::optional<DriverChoice> driver;   // unset: CTXBROKER_DRIVER decides

  // image and audio
  std::vector<std::string> inputs, outputs;    // FILE or NAME=FILE; without a graph, one each
  std::vector<std::string> plugins;            // as written behind --plugin; none with a graph
  std::filesystem::path graph;                 // the graph file; empty: plug-ins in a row
  std::filesystem::path automation;            // empty: none, or the graph file names it
  int jobs = 1;                                // in flight at once, 1 to 64
  std::uint32_t job_timeout = 0;               // ms; 0: no limit
  std::vector<std::filesystem::path> presets;  // each for the plug-ins whose id it names
  std::filesystem::path save_preset;           // of the one plug-in; empty: none
  LeaseChoice lease;
  std::filesystem::path policy;           // empty: none
  std::optional<WorkerGrouping> isolate;  // plug-ins in worker processes; unset: in this one
  bool move_on_fault = false;             // if CUDA ends here, go on in a worker process
  bool graphs = false;                    // each job of a plug-in as one graph
  std::optional<Placement> device;        // unset: as the policy says, else device 0
  std::string report;                     // file name, "-" for standard output, empty for none
  std::filesystem::path trace;            // file name for the timeline, empty for none
  int depth = 0;                          // bits per sample of the output; 0: as the input
  int png_compression = 1;                // image: 0 to 9
  std::optional<FrameRange> frames;       // image: input and output are names of a sequence
  bool skip_existing = false;             // image: with frames, those whose output is there
  std::uint32_t block = 0;                // audio: frames
  double tail = 0;                        // audio: seconds
  bool pace = false;                      // audio: begin the blocks by the clock
  std::optional<Size> size;               // image: of what a graph without inputs makes
  std::optional<Size> tile;               // image: render by parts of this size
  double seconds = 0;      // audio: of sound; 0: as long as the inputs, or the graph file says it
  std::uint32_t rate = 0;  // audio: of what a graph without inputs makes, Hz; 0: not given

  std::vector<std::string> kernel_images;  // kernels

  std::vector<std::string> enable, disable;  // list: libraries or plug-ins

  bool json = false;   // list, doctor and kernels
  bool probe = false;  // doctor
  bool again = false;  // doctor: measure though a result is kept
};

// Nothing when help or the version was asked for and has been printed. Throws Failure (usage).
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace ctxbroker::sample_host
