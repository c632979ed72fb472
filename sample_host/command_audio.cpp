// SPDX-License-Identifier: Apache-2.0
// sample_host audio: recordings through a graph, block by block.
//
// Chunks of some blocks are read ahead and written behind on threads of their own, while this
// thread keeps the graph busy.
#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <memory>

#include "commands.hpp"
#include "files/audio_file.hpp"
#include "files/input_file.hpp"
#include "files/output_file.hpp"
#include "files/planar.hpp"
#include "logging.hpp"
#include "pace.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "results_file.hpp"
#include "run_files.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

// A recording, and silence behind it.
class Source {
 public:
  explicit Source(const std::filesystem::path& path) : path_(path), reader_(path) {}

  const AudioReader& reader() const noexcept { return reader_; }
  std::size_t channels() const { return static_cast<std::size_t>(reader_.format().channels); }
  std::uint64_t frames_read() const noexcept { return frames_read_; }
  // Makes the recording so long: it is cut off, or begins again. Before the first read.
  void set_length(std::uint64_t frames) { length_ = frames; }

  // Fills `interleaved`, with silence behind the end. How many of its frames are the recording's.
  std::size_t read(float* interleaved, std::size_t frames) {
    const std::size_t wanted =
        length_ ? static_cast<std::size_t>(std::min<std::uint64_t>(frames, *length_ - frames_read_))
                : frames;
    std::size_t got = 0;
    while (got < wanted && !ended_) {
      got += reader_.read(interleaved + got * channels(), wanted - got);
      if (got == wanted) break;
      if (length_) {
        reader_ = AudioReader(path_);
      } else {
        ended_ = true;
      }
    }
    frames_read_ += got;
    std::fill_n(interleaved + got * channels(), (frames - got) * channels(), 0.0F);
    return got;
  }

 private:
  std::filesystem::path path_;
  AudioReader reader_;
  std::optional<std::uint64_t> length_;
  std::uint64_t frames_read_ = 0;
  bool ended_ = false;
};

// Some blocks, one behind the other, each channel by channel. The last one may be shorter.
struct Chunk {
  std::uint64_t first = 0;  // frame
  std::size_t frames = 0;
  std::vector<std::vector<float>> inputs, outputs;  // of each port; results as their bytes
};

// An output file. The first frames that the graph gives are its delay, not sound, and are dropped.
class Sink {
 public:
  // `like` is null in a graph without inputs.
  Sink(const PlannedPort& port, const Source* like, const AudioFormat& format, std::uint64_t frames,
       int depth)
      : file_(port.file), format_(choose_output_format(format, port.file, frames, depth)) {
    AudioMetadata metadata;
    if (like != nullptr) metadata = like->reader().metadata();
    if (like != nullptr && format_.channels != like->reader().format().channels) {
      metadata.channel_map.clear();
    }
    writer_ = std::make_unique<AudioWriter>(file_, format_, metadata);
  }

  std::size_t channels() const { return static_cast<std::size_t>(format_.channels); }
  const AudioFormat& format() const noexcept { return format_; }
  const AudioWriter& writer() const noexcept { return *writer_; }
  void drop(std::uint64_t frames) { to_drop_ = frames; }

  void write(const float* interleaved, std::size_t frames) {
    const auto dropped = static_cast<std::size_t>(std::min<std::uint64_t>(frames, to_drop_));
    to_drop_ -= dropped;
    if (dropped < frames) {
      writer_->write(interleaved + dropped * channels(), frames - dropped);
    }
  }

  void finish() { writer_->finish(); }
  void commit() { file_.commit(); }

 private:
  OutputFile file_;
  AudioFormat format_;
  std::unique_ptr<AudioWriter> writer_;
  std::uint64_t to_drop_ = 0;
};

void check_inputs(const GraphPlan& plan, const std::vector<Source>& sources) {
  if (sources.empty()) return;
  const AudioFormat& first = sources.front().reader().format();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const AudioFormat& format = sources[i].reader().format();
    const PlannedPort& port = plan.inputs[i];
    if (format.sample_rate != first.sample_rate) {
      throw input_failure(port.file,
                          "has " + std::to_string(format.sample_rate) + " Hz, and \"" +
                              plan.inputs[0].file.string() + "\" has " +
                              std::to_string(first.sample_rate) +
                              " Hz; the inputs of a graph have one sample rate, so convert "
                              "one of them first");
    }
    if (port.channels != 0 && static_cast<int>(port.channels) != format.channels) {
      throw input_failure(port.file, "has " + std::to_string(format.channels) +
                                         " channels, and the graph's input \"" + port.name +
                                         "\" has " + std::to_string(port.channels) +
                                         "; change one of them");
    }
  }
}

// Returns the numbers as GraphPort has them: 0 for all ports if they have the same number, which is
// then the jobs', however large.
std::vector<std::uint32_t> channels_for_graph(const std::vector<std::size_t>& channels,
                                              bool all_alike) {
  if (all_alike) return std::vector<std::uint32_t>(channels.size(), 0);
  return {channels.begin(), channels.end()};
}

class Mix {
 public:
  Mix(const Options& options, const GraphPlan& plan) : options_(options), plan_(plan) {
    for (const PlannedPort& port : plan.inputs) sources_.emplace_back(port.file);
    check_inputs(plan, sources_);
    if (sources_.empty()) {
      to_make_ = static_cast<std::uint64_t>(std::llround(plan.generated.seconds * rate()));
      length_ = to_make_;
    }
    for (Source& source : sources_) {
      auto frames = source.reader().frames();
      if (options.seconds > 0) {
        frames = static_cast<std::uint64_t>(std::llround(options.seconds * rate()));
        source.set_length(*frames);
      }
      length_ = length_ && frames ? std::optional(std::max(*length_, *frames)) : std::nullopt;
    }
    tail_ = static_cast<std::uint64_t>(std::llround(options.tail * rate()));
    for (const PlannedPort& port : plan.outputs) {
      if (port.is_results()) {
        results_.push_back(std::make_unique<ResultsFile>(port));
        sinks_.push_back(nullptr);
        continue;
      }
      const Source* const like = sources_.empty() ? nullptr : &sources_[port.like];
      AudioFormat format = like != nullptr ? like->reader().format() : usual_audio_format(rate());
      if (port.channels != 0) format.channels = static_cast<int>(port.channels);
      results_.push_back(nullptr);
      sinks_.push_back(std::make_unique<Sink>(port, like, format, length_.value_or(0) + tail_,
                                              port.depth != 0 ? port.depth : options.depth));
    }
    chunk_frames_ = options.block * std::max<std::size_t>(1, 16384 / options.block);
    if (options.pace) pace_.emplace(rate());
  }

  int rate() const {
    return sources_.empty() ? static_cast<int>(plan_.generated.sample_rate)
                            : sources_.front().reader().format().sample_rate;
  }
  std::uint64_t latency() const noexcept { return latency_; }
  // Without the time between blocks that the clock has put apart.
  double process_seconds() const noexcept {
    return process_seconds_ - (pace_ ? pace_->seconds_slept() : 0);
  }

  void activate(Session& session) {
    std::vector<std::size_t> inputs, outputs;
    for (const Source& source : sources_) inputs.push_back(source.channels());
    for (const auto& sink : sinks_) outputs.push_back(sink != nullptr ? sink->channels() : 0);
    most_channels_ = 1;
    for (const std::size_t channels : inputs) most_channels_ = std::max(most_channels_, channels);
    for (const std::size_t channels : outputs) most_channels_ = std::max(most_channels_, channels);
    const auto is_most = [&](std::size_t channels) {
      return channels == most_channels_ || channels == 0;
    };
    const bool all_alike = std::all_of(inputs.begin(), inputs.end(), is_most) &&
                           std::all_of(outputs.begin(), outputs.end(), is_most);
    ActivationSizes sizes;
    sizes.max_width = options_.block;
    sizes.max_height = static_cast<std::uint32_t>(most_channels_);
    sizes.sample_rate = rate();
    session.activate(
        sizes, {channels_for_graph(inputs, all_alike), channels_for_graph(outputs, all_alike)});
    latency_ = session.engine().latency_frames();
    automation_ = Automation(session.automation(rate()));
    session.check_blocks(automation_, options_.block);
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (sinks_[i] != nullptr) sinks_[i]->drop(latency_);
      result_bytes_.push_back(session.result_bytes(i));
    }
  }

  // Until all recordings, and the tail, have gone through the graph.
  void run(Session& session) {
    const double total = static_cast<double>(length_.value_or(0) + tail_ + latency_);
    Progress progress("processing", options_.verbosity >= 0,
                      Amount{total / rate(), "times real time"});
    std::future<void> written;
    std::future<Chunk> ahead = read_ahead();
    JobInfo job;
    job.height = static_cast<std::uint32_t>(most_channels_);
    job.sample_rate = rate();
    // The blocks go through the graph in a real-time session, as in a real-time host. If the
    // plug-ins move to a worker process, the session ends together with the broker that they leave.
    session.engine().begin_realtime();
    while (true) {
      Chunk chunk = ahead.get();
      if (chunk.frames == 0) break;
      ahead = read_ahead();
      process(session, chunk, job);
      if (written.valid()) written.get();
      written = std::async(std::launch::async, [this, chunk = std::move(chunk)] { write(chunk); });
      if (length_) progress.set(static_cast<double>(job.position) / total);
    }
    if (session.moved_because().empty()) session.engine().end_realtime();
    if (written.valid()) written.get();
    for_each_file([](auto& file) { file.finish(); });
  }

  // All outputs are complete before the first one is put in its place.
  void commit() {
    for_each_file([](auto& file) { file.commit(); });
  }

  void describe(Report& report) const {
    report.audio =
        AudioFacts{static_cast<int>(most_channels_), rate(), options_.block, latency_, {}, {}};
    if (pace_) report.audio->pace = pace_->facts();
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      report.inputs.push_back(
          facts(plan_.inputs[i], sources_[i].reader().format(), sources_[i].frames_read()));
    }
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (results_[i] != nullptr) {
        report.outputs.push_back({plan_.outputs[i].name, plan_.outputs[i].file.string(),
                                  "results of " + std::to_string(results_[i]->rows()) + " blocks",
                                  0, 0, frames_made_});
        continue;
      }
      report.outputs.push_back(
          facts(plan_.outputs[i], sinks_[i]->format(), sinks_[i]->writer().frames()));
      report.audio->clips.clipped += sinks_[i]->writer().clips().clipped;
      report.audio->clips.not_a_number += sinks_[i]->writer().clips().not_a_number;
    }
  }

 private:
  template <typename Each>
  void for_each_file(const Each& each) {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (sinks_[i] != nullptr) {
        each(*sinks_[i]);
      } else {
        each(*results_[i]);
      }
    }
  }

  // Returns where a chunk has the output of the block that begins at the chunk's frame `at`.
  std::size_t place(std::size_t output, std::size_t at) const {
    return sinks_[output] != nullptr ? at * sinks_[output]->channels()
                                     : at / options_.block * words_of(result_bytes_[output]);
  }

  FileFacts facts(const PlannedPort& port, const AudioFormat& format, std::uint64_t frames) const {
    FileFacts file;
    if (!plan_.is_row()) file.name = port.name;
    file.path = port.file.string();
    file.format = to_string(format);
    file.frames = frames;
    return file;
  }

  std::future<Chunk> read_ahead() {
    return std::async(std::launch::async, [this] { return read(); });
  }

  // No frames: it is the end.
  Chunk read() {
    Chunk chunk;
    std::vector<std::vector<float>> interleaved;
    std::size_t sound = 0;
    for (Source& source : sources_) {
      interleaved.emplace_back(chunk_frames_ * source.channels());
      sound = std::max(sound, source.read(interleaved.back().data(), chunk_frames_));
    }
    if (sources_.empty()) {
      sound = static_cast<std::size_t>(std::min<std::uint64_t>(chunk_frames_, to_make_));
      to_make_ -= sound;
    }
    // The tail, and what comes late, begin where the longest recording ends.
    const std::uint64_t silence = tail_ + latency_ - silence_;
    const auto pad =
        static_cast<std::size_t>(std::min<std::uint64_t>(chunk_frames_ - sound, silence));
    silence_ += pad;
    chunk.frames = sound + pad;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      chunk.inputs.push_back(by_block(interleaved[i], chunk.frames, sources_[i].channels()));
    }
    chunk.first = frames_made_;
    frames_made_ += chunk.frames;
    const std::size_t whole_blocks = (chunk.frames + options_.block - 1) / options_.block;
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      chunk.outputs.emplace_back(
          place(i, sinks_[i] != nullptr ? chunk.frames : whole_blocks * options_.block));
    }
    return chunk;
  }

  std::vector<float> by_block(const std::vector<float>& interleaved, std::size_t frames,
                              std::size_t channels) const {
    std::vector<float> blocks(frames * channels);
    for (std::size_t at = 0; at < frames; at += options_.block) {
      deinterleave(interleaved.data() + at * channels,
                   std::min<std::size_t>(options_.block, frames - at), channels,
                   blocks.data() + at * channels);
    }
    return blocks;
  }

  void process(Session& session, Chunk& chunk, JobInfo& job) {
    const Stopwatch stopwatch;
    std::uint64_t last = 0;
    for (std::size_t at = 0; at < chunk.frames; at += options_.block) {
      job.width =
          static_cast<std::uint32_t>(std::min<std::size_t>(options_.block, chunk.frames - at));
      buffers_.inputs.clear();
      buffers_.outputs.clear();
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        buffers_.inputs.push_back(chunk.inputs[i].data() + at * sources_[i].channels());
      }
      for (std::size_t i = 0; i < sinks_.size(); ++i) {
        buffers_.outputs.push_back(chunk.outputs[i].data() + place(i, at));
      }
      automation_.fill(job.position, job.width, events_.changes);
      if (pace_) pace_->begin(job.position);
      last = session.submit(buffers_, job, events_);
      if (options_.jobs == 1) session.finish(last);
      job.position += job.width;
      if (pace_) pace_->end(job.position);
      session.engine().poll();
    }
    session.finish(last);
    process_seconds_ += stopwatch.seconds();
  }

  void write(const Chunk& chunk) {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (sinks_[i] == nullptr) {
        write_results(chunk, i);
        continue;
      }
      const std::size_t channels = sinks_[i]->channels();
      std::vector<float> interleaved(chunk.frames * channels);
      for (std::size_t at = 0; at < chunk.frames; at += options_.block) {
        interleave(chunk.outputs[i].data() + at * channels,
                   std::min<std::size_t>(options_.block, chunk.frames - at), channels,
                   interleaved.data() + at * channels);
      }
      sinks_[i]->write(interleaved.data(), chunk.frames);
    }
  }

  void write_results(const Chunk& chunk, std::size_t output) {
    for (std::size_t at = 0; at < chunk.frames; at += options_.block) {
      const std::size_t frames = std::min<std::size_t>(options_.block, chunk.frames - at);
      results_[output]->add(
          static_cast<std::int64_t>(chunk.first + at), static_cast<std::uint32_t>(frames),
          chunk.outputs[output].data() + place(output, at), result_bytes_[output]);
    }
  }

  const Options& options_;
  const GraphPlan& plan_;
  std::vector<Source> sources_;
  // Each output has one of these two.
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::unique_ptr<ResultsFile>> results_;
  std::vector<std::uint32_t> result_bytes_;
  std::uint64_t to_make_ = 0;      // frames of sound that a graph without inputs has still to make
  std::uint64_t frames_made_ = 0;  // of all chunks
  std::optional<std::uint64_t> length_{0};  // frames of the longest recording, if all say theirs
  std::uint64_t tail_ = 0, latency_ = 0;    // frames
  std::uint64_t silence_ = 0;               // frames read behind all recordings
  std::size_t chunk_frames_ = 0;
  std::size_t most_channels_ = 0;
  double process_seconds_ = 0;
  std::optional<Pace> pace_;  // with --pace
  Automation automation_;
  JobBuffers buffers_;
  WorkerJobEvents events_;
};

void warn_of_clips(const ClipCount& clips) {
  if (clips.clipped > 0) {
    log(Severity::warning, "audio",
        std::to_string(clips.clipped) +
            " samples were beyond full scale and were clipped; lower the level");
  }
  if (clips.not_a_number > 0) {
    log(Severity::warning, "audio",
        std::to_string(clips.not_a_number) +
            " samples were not numbers (NaN); a recording of whole numbers has silence for them, "
            "one of floats has them as they are. Find the plug-in that makes them");
  }
}

}  // namespace

ExitCode run_audio(const Options& options) {
  const Stopwatch stopwatch;
  const GraphPlan plan = make_plan(options);
  for (const PlannedPort& port : plan.inputs) check_input_file(port.file);
  RunFiles files(options, plan);
  files.check_ports(files_of(plan.inputs), files_of(plan.outputs));
  // Before the inputs are read: plug-ins for images are the better reason than files of images.
  Session session(options, plan, Media::audio);
  files.check_plugins(session);
  Mix mix(options, plan);
  ReportOutput report_output(options);
  TraceOutput trace_output(options);
  session.save_preset(options);
  mix.activate(session);
  mix.run(session);
  session.tell_of_restarts();

  Report report;
  report.command = "audio";
  report.jobs_in_flight = options.jobs;
  describe_session(session, report);
  mix.commit();
  mix.describe(report);
  report.process_seconds = mix.process_seconds();
  report.wall_seconds = stopwatch.seconds();
  warn_of_clips(report.audio->clips);
  trace_output.write(session.engine());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
