// SPDX-License-Identifier: Apache-2.0
// A host for one plug-in: a broker, the library with the layer in front of it, instances, and a
// graph around one instance that is fed with numbers from a seed.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "layer.hpp"
#include "trial.hpp"

namespace ctxbroker::validate {

using Bytes = std::vector<std::byte>;

class Rig {
 public:
  // Opens a broker and loads the library. Throws Error.
  explicit Rig(const Trial& trial);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  Broker& broker() noexcept { return *broker_; }
  const PluginLibrary& library() const noexcept { return *library_; }
  // The trial's plug-in. A trial of the library has none.
  const PluginDescription& plugin() const;
  bool on_software_device() const { return broker_->driver().kind == DriverChoice::software; }

  PluginInstance create(int device = 0);
  // Created, and active for these sizes.
  PluginInstance active(const ActivationSizes& sizes);

  // Ends the library, and the layer's hold on it. load_again loads it anew.
  void end_library();
  void load_again();

  // "FUNCTION: what" of each strike so far.
  std::vector<std::string> strikes() const;
  // Returns what the library's tenant has done and holds.
  TenantMetrics metrics() const;

 private:
  struct Records {
    std::mutex mutex;
    std::vector<Record> all;
  };
  const Trial& trial_;
  std::shared_ptr<Records> records_;
  std::unique_ptr<Broker> broker_;
  std::unique_ptr<PluginLibrary> library_;
};

// The settings with which a bench feeds its instance.
struct Setup {
  ActivationSizes sizes;
  std::uint32_t channels = 0;  // of each port that takes so many; 0: 4 for images, 2 for audio
  SampleType samples = SampleType::float32;  // of each port that takes it
  bool connects_optional = true;
  std::uint64_t seed = 1;       // of the inputs
  bool has_odd_values = false;  // NaN, infinities and huge numbers among the inputs
  GraphOptions options{};
};

// Sizes for a plug-in, and a setup with them: a small picture, or a block of audio.
ActivationSizes usual_sizes(const PluginDescription& plugin);
Setup usual_setup(const Rig& rig, std::uint64_t seed);

// An active instance in a graph of its own.
class Bench {
 public:
  Bench(Rig& rig, PluginInstance& instance, const Setup& setup);

  // Runs one job and returns what each output holds.
  std::vector<Bytes> run(const JobInfo& job, const JobEvents& events = {});
  // The same for JobInfo::region of pictures: gives just the parts of the inputs that are needed.
  std::vector<Bytes> run_tile(const JobInfo& job);
  // A job of the setup's size. Its position follows from its number.
  JobInfo job(std::int64_t number = 0, bool discontinuity = false) const;
  // Runs so many jobs, of which the first is a discontinuity, and returns all outputs in a row.
  std::vector<Bytes> run_several(int count, std::int64_t first = 0);
  Graph& graph() noexcept { return graph_; }
  // The first channel of a connected input of audio, from job 0 on.
  std::vector<float> sound_of(std::size_t input, std::uint32_t frames) const;
  // The bytes of one sample of an output; 1 for results.
  std::size_t sample_bytes(std::size_t output) const;

 private:
  struct Format {
    std::uint32_t channels = 0;
    SampleType samples = SampleType::float32;
    std::uint32_t result_bytes = 0;
  };
  GraphDescription describe();
  Format format_of(const PortDescription& port) const;
  std::size_t bytes_of(const Format& format, std::uint32_t width, std::uint32_t height) const;
  void fill(Bytes& bytes, const Format& format, std::uint64_t input, std::int64_t position,
            std::uint32_t width) const;

  const PluginDescription& plugin_;
  PluginInstance& instance_;
  Setup setup_;
  std::vector<Format> inputs_, outputs_;  // of the graph's ports
  Graph graph_;
};

// A number from 0 to 1 that depends on all arguments.
double number_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept;

// Returns where two runs differ: "output 0, float 17: 0.5 instead of 0.25"; empty: they do not.
std::string difference(const std::vector<Bytes>& is, const std::vector<Bytes>& should,
                       double tolerance = 0);

// Job infos for one picture or block.
JobInfo job_of(const PluginDescription& plugin, std::uint32_t width, std::uint32_t height,
               std::int64_t position, double rate);

}  // namespace ctxbroker::validate
