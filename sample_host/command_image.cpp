// sample_host image: one PNG through a chain.
#include "commands.hpp"
#include "files/output_file.hpp"
#include "files/png_file.hpp"
#include "logging.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

void check_extension(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".png" || extension == ".PNG") return;
  throw Failure(ExitCode::output, "output file \"" + path.string() +
                                      "\": images are written as PNG only; end its name with .png");
}

FileFacts facts(const std::filesystem::path& path, const PngImage& image, const PngFormat& format) {
  FileFacts file;
  file.path = path.string();
  file.format = "PNG, " + to_string(format);
  file.width = image.width;
  file.height = image.height;
  return file;
}

}  // namespace

ExitCode run_image(const Options& options) {
  const Stopwatch stopwatch;
  const bool show_progress = options.verbosity >= 0;
  const std::vector<PluginArgument> arguments = parse_plugin_arguments(options);
  PngImage image;
  {
    const Progress progress("reading", show_progress);
    image = read_png(options.input, [](const std::string& text) {
      log(Severity::info, "png", "input file: " + text);
    });
  }
  check_extension(options.output);
  OutputFile output(options.output);
  ReportOutput report_output(options);
  TraceOutput trace_output(options);

  Session session(options, arguments, Media::image);
  ActivationSizes sizes;
  sizes.max_width = image.width;
  sizes.max_height = image.height;
  session.activate(sizes);

  Report report;
  report.command = "image";
  report.input = facts(options.input, image, image.format);
  {
    const Progress progress("processing", show_progress);
    const Stopwatch process_stopwatch;
    JobInfo job;
    job.width = image.width;
    job.height = image.height;
    session.chain().process(image.pixels.data(), image.pixels.data(), job);
    report.process_seconds = process_stopwatch.seconds();
  }
  describe_session(session, report);

  PngFormat format = image.format;
  if (options.depth != 0) format.depth = options.depth;
  {
    const Progress progress("writing", show_progress);
    write_png(output, image, format, options.png_compression);
    output.commit();
  }
  report.output = facts(options.output, image, format);
  report.wall_seconds = stopwatch.seconds();
  trace_output.write(session.broker());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
