// sample_host image: one picture through a chain.
#include "commands.hpp"
#include "files/image_file.hpp"
#include "files/output_file.hpp"
#include "logging.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "report_output.hpp"
#include "session.hpp"
#include "stopwatch.hpp"
#include "trace_output.hpp"

namespace ctxbroker::sample_host {

namespace {

FileFacts facts(const std::filesystem::path& path, const Image& image, const ImageFormat& format) {
  FileFacts file;
  file.path = path.string();
  file.format = to_string(format);
  file.width = image.width;
  file.height = image.height;
  return file;
}

}  // namespace

ExitCode run_image(const Options& options) {
  const Stopwatch stopwatch;
  const bool show_progress = options.verbosity >= 0;
  const std::vector<PluginArgument> arguments = parse_plugin_arguments(options);
  Image image;
  {
    const Progress progress("reading", show_progress);
    image = read_image_file(options.input, [&](Severity severity, const std::string& text) {
      log(severity, "image", "input file \"" + options.input.string() + "\": " + text);
    });
  }
  const ImageFormat format = choose_image_format(image.format, options.output, options.depth);
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

  {
    const Progress progress("writing", show_progress);
    write_image_file(output, image, format, options.png_compression);
    output.commit();
  }
  report.output = facts(options.output, image, format);
  report.wall_seconds = stopwatch.seconds();
  trace_output.write(session.broker());
  report_output.write(report);
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
