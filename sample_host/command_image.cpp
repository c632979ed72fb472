// sample_host image: a picture, or a sequence of pictures, through a graph.
#include <algorithm>
#include <optional>

#include "commands.hpp"
#include "files/image_file.hpp"
#include "files/input_file.hpp"
#include "files/output_file.hpp"
#include "frames.hpp"
#include "logging.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

struct Frame {
  std::filesystem::path input, output;
  std::string name;  // "frame 12: ", or empty if there is only this picture
};

// What the frames share. The session begins with the first of them, whose size it needs.
struct Work {
  const Options& options;
  const std::vector<PluginArgument> arguments;
  std::optional<Session> session;
  std::optional<ActivationSizes> sizes;      // of the last activation
  SampleType samples = SampleType::float32;  // likewise
  Report report;
};

// Runs `step`, whose errors say which frame they are about.
template <typename Step>
auto in_frame(const Frame& frame, const Step& step) {
  if (frame.name.empty()) return step();
  try {
    return step();
  } catch (const Failure& failure) {
    throw Failure(failure.code(), frame.name + failure.what());
  } catch (const Error& error) {
    throw Failure(exit_code_of(error.kind()), frame.name + error.what());
  }
}

FileFacts facts(const std::filesystem::path& path, const Image& image, const ImageFormat& format) {
  FileFacts file;
  file.path = path.string();
  file.format = to_string(format);
  file.width = image.width;
  file.height = image.height;
  return file;
}

Image read_frame(const Frame& frame, bool show_progress) {
  const Progress progress(frame.name + "reading", show_progress);
  const auto notice = [&](Severity severity, const std::string& text) {
    log(severity, "image", frame.name + "input file \"" + frame.input.string() + "\": " + text);
  };
  return read_image_file(frame.input, notice, true);
}

// Frames may differ in size and in samples: a larger one than before, or one of other samples,
// activates the plug-ins anew.
void prepare(Work& work, Image& image, const ImageFormat& output) {
  if (!work.session) work.session.emplace(work.options, work.arguments, Media::image);
  const bool halves =
      output.type == ImageType::exr && output.depth == 16 && work.session->takes_halves();
  if (!halves) make_floats(image);
  const SampleType samples = image.halves.empty() ? SampleType::float32 : SampleType::float16;
  ActivationSizes sizes = work.sizes.value_or(ActivationSizes());
  if (work.sizes && work.samples == samples && sizes.max_width >= image.width &&
      sizes.max_height >= image.height) {
    return;
  }
  sizes.max_width = std::max(sizes.max_width, image.width);
  sizes.max_height = std::max(sizes.max_height, image.height);
  work.session->activate(sizes, samples);
  work.sizes = sizes;
  work.samples = samples;
}

void process(Work& work, const Frame& frame, Image& image, bool show_progress) {
  const Progress progress(frame.name + "processing", show_progress);
  const Stopwatch stopwatch;
  JobInfo job;
  job.width = image.width;
  job.height = image.height;
  void* const samples = image.halves.empty() ? static_cast<void*>(image.pixels.data())
                                             : static_cast<void*>(image.halves.data());
  work.session->graph().process({{samples}, {samples}}, job);
  work.report.process_seconds += stopwatch.seconds();
}

// One picture, from its file to the other one, which is complete or not there.
void do_frame(Work& work, const Frame& frame) {
  const Options& options = work.options;
  const bool show_progress = options.verbosity >= 0;
  Image image = in_frame(frame, [&] { return read_frame(frame, show_progress); });
  const ImageFormat format = choose_image_format(image.format, frame.output, options.depth);
  std::optional<OutputFile> output;
  in_frame(frame, [&] { output.emplace(frame.output); });
  prepare(work, image, format);
  in_frame(frame, [&] {
    process(work, frame, image, show_progress);
    const Progress progress(frame.name + "writing", show_progress);
    write_image_file(*output, image, format, options.png_compression);
    output->commit();
  });
  work.report.input = facts(frame.input, image, image.format);
  work.report.output = facts(frame.output, image, format);
}

// Those that are to be done. If one's input is missing, nothing is begun.
std::vector<Frame> list_frames(const Options& options) {
  if (!options.frames) return {{options.input, options.output, ""}};
  const FrameName input(options.input);
  const FrameName output(options.output);
  std::vector<Frame> frames;
  for (std::uint32_t number = options.frames->first; number <= options.frames->last; ++number) {
    const Frame frame{input.of(number), output.of(number),
                      "frame " + std::to_string(number) + ": "};
    std::error_code error;
    if (options.skip_existing && std::filesystem::exists(frame.output, error)) continue;
    in_frame(frame, [&] { check_input_file(frame.input); });
    frames.push_back(frame);
  }
  return frames;
}

}  // namespace

ExitCode run_image(const Options& options) {
  const Stopwatch stopwatch;
  Work work{options, parse_plugin_arguments(options), {}, {}, SampleType::float32, {}};
  const std::vector<Frame> frames = list_frames(options);
  if (frames.empty()) {
    log(Severity::warning, "image",
        "all frames exist already; nothing was done, and there is no report");
    return ExitCode::ok;
  }
  ReportOutput report_output(options);
  TraceOutput trace_output(options);
  work.report.command = "image";
  for (const Frame& frame : frames) {
    do_frame(work, frame);
    work.session->broker().poll();
  }
  Report& report = work.report;
  if (options.frames) {
    const std::size_t all = options.frames->last - options.frames->first + 1;
    report.frames = FrameFacts{*options.frames, frames.size(), all - frames.size()};
  }
  describe_session(*work.session, report);
  report.wall_seconds = stopwatch.seconds();
  trace_output.write(work.session->broker());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
