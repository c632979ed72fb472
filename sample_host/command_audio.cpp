// sample_host audio: one recording through a graph, block by block.
#include <algorithm>
#include <cmath>
#include <functional>

#include "commands.hpp"
#include "files/audio_file.hpp"
#include "files/output_file.hpp"
#include "files/planar.hpp"
#include "logging.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

// The recording's frames, then silence.
class Source {
 public:
  Source(AudioReader& reader, std::uint64_t silence) : reader_(reader), silence_(silence) {}

  // Fewer than `frames` only at the very end.
  std::size_t read(float* interleaved, std::size_t frames) {
    const std::size_t got = ended_ ? 0 : reader_.read(interleaved, frames);
    ended_ = got < frames;
    input_frames_ += got;
    const auto pad = static_cast<std::size_t>(std::min<std::uint64_t>(frames - got, silence_));
    const auto channels = static_cast<std::size_t>(reader_.format().channels);
    std::fill_n(interleaved + got * channels, pad * channels, 0.0F);
    silence_ -= pad;
    return got + pad;
  }

  std::uint64_t input_frames() const noexcept { return input_frames_; }

 private:
  AudioReader& reader_;
  std::uint64_t silence_;
  std::uint64_t input_frames_ = 0;
  bool ended_ = false;
};

// Reads, processes and writes until the source ends. The first `latency` frames that the graph
// gives are its delay, not sound, and are dropped. Returns the seconds spent in the graph.
double process_all(Session& session, Source& source, AudioWriter& writer, const AudioFormat& format,
                   std::size_t block, std::uint64_t latency,
                   const std::function<void(std::uint64_t)>& done) {
  const auto channels = static_cast<std::size_t>(format.channels);
  std::vector<float> interleaved(block * channels);
  std::vector<float> planar(block * channels);
  JobInfo job;
  job.height = static_cast<std::uint32_t>(channels);
  job.sample_rate = format.sample_rate;
  std::uint64_t to_drop = latency;
  double seconds = 0;
  for (std::size_t frames = block; frames == block;) {
    frames = source.read(interleaved.data(), block);
    if (frames == 0) break;
    deinterleave(interleaved.data(), frames, channels, planar.data());
    job.width = static_cast<std::uint32_t>(frames);
    const Stopwatch stopwatch;
    session.graph().process(planar.data(), planar.data(), job);
    seconds += stopwatch.seconds();
    session.broker().poll();
    interleave(planar.data(), frames, channels, interleaved.data());
    const auto dropped = static_cast<std::size_t>(std::min<std::uint64_t>(frames, to_drop));
    to_drop -= dropped;
    if (dropped < frames) {
      writer.write(interleaved.data() + dropped * channels, frames - dropped);
    }
    job.position += static_cast<std::int64_t>(frames);
    done(static_cast<std::uint64_t>(job.position));
  }
  return seconds;
}

FileFacts facts(const std::filesystem::path& path, const AudioFormat& format,
                std::uint64_t frames) {
  FileFacts file;
  file.path = path.string();
  file.format = to_string(format);
  file.frames = frames;
  return file;
}

void warn_of_clips(const ClipCount& clips) {
  if (clips.clipped > 0) {
    log(Severity::warning, "audio",
        std::to_string(clips.clipped) +
            " samples were beyond full scale and were clipped; lower the level");
  }
  if (clips.not_a_number > 0) {
    log(Severity::warning, "audio",
        std::to_string(clips.not_a_number) + " samples were not numbers and became silence");
  }
}

}  // namespace

ExitCode run_audio(const Options& options) {
  const Stopwatch stopwatch;
  const std::vector<PluginArgument> arguments = parse_plugin_arguments(options);
  AudioReader reader(options.input);
  const AudioFormat format = reader.format();
  const auto tail = static_cast<std::uint64_t>(std::llround(options.tail * format.sample_rate));
  const AudioFormat output_format =
      choose_output_format(format, options.output, reader.frames().value_or(0) + tail);
  OutputFile output(options.output);
  ReportOutput report_output(options);
  TraceOutput trace_output(options);

  Session session(options, arguments, Media::audio);
  ActivationSizes sizes;
  sizes.max_width = options.block;
  sizes.max_height = static_cast<std::uint32_t>(format.channels);
  sizes.sample_rate = format.sample_rate;
  session.activate(sizes);
  const std::uint64_t latency = session.latency_frames();

  Report report;
  report.command = "audio";
  Source source(reader, tail + latency);
  AudioWriter writer(output, output_format, reader.metadata());
  {
    Progress progress("processing", options.verbosity >= 0);
    const double total = static_cast<double>(reader.frames().value_or(0) + tail + latency);
    report.process_seconds = process_all(session, source, writer, format, options.block, latency,
                                         [&](std::uint64_t done) {
                                           if (reader.frames())
                                             progress.set(static_cast<double>(done) / total);
                                         });
  }
  describe_session(session, report);
  writer.finish();
  output.commit();

  report.input = facts(options.input, format, source.input_frames());
  report.output = facts(options.output, output_format, writer.frames());
  report.audio =
      AudioFacts{format.channels, format.sample_rate, options.block, latency, writer.clips()};
  report.wall_seconds = stopwatch.seconds();
  warn_of_clips(writer.clips());
  trace_output.write(session.broker());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
