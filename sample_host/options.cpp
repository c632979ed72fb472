// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "ctxbroker/version.hpp"
#include "exit_code.hpp"
#include "suggestion.hpp"

namespace ctxbroker::sample_host {

namespace {

// What CLI11 fills and Options holds in another type.
struct Raw {
  Options options;
  std::vector<std::string> plugin_path, named_inputs, presets;
  std::string graph, automation, save_preset, trace, driver, device, policy, frames, size, tile,
      lease = "auto", on_fault = "stop", isolate;
  int verbose = 0;
  bool quiet = false;
};

// Of an option that takes WxH.
CLI::Validator is_size() {
  return CLI::Validator(
      [](const std::string& text) {
        if (parse_size(text)) return std::string();
        return "\"" + text +
               "\" is not a size; write the width and the height in pixels, such as 640x480";
      },
      "");
}

std::string exit_code_help() {
  std::string text = "Exit codes:\n";
  for (const ExitCodeRow& row : exit_codes()) {
    text += "  " + std::to_string(static_cast<int>(row.code)) + "  " + row.meaning + "\n";
  }
  return text;
}

void add_common(CLI::App& command, Raw& raw) {
  command
      .add_option(
          "--plugin-path", raw.plugin_path,
          "Folder with plug-in libraries, searched first; may be repeated. The folders of "
          "CTXBROKER_PLUGIN_PATH follow, then ../plugins and ../lib/ctxbroker/plugins relative to "
          "this program's folder, then ~/.local/lib/ctxbroker/plugins and the same in /usr/local "
          "and /usr")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  command.add_flag("--safe", raw.options.safe,
                   "Run no library to find plug-ins: only those with a manifest, and those that "
                   "were found before, can be named");
  command.add_flag("--rescan", raw.options.rescan,
                   "Look at all libraries anew, also at those that have crashed or hung");
  command
      .add_option("--scan-timeout", raw.options.scan_timeout,
                  "Milliseconds that loading one library may take when plug-ins are looked for")
      ->type_name("MS")
      ->capture_default_str()
      ->check(CLI::Range(1U, 86'400'000U));
  // The commands share the number, and CLI11 2.4 would set it to 0 for each that is not given.
  command.add_flag_function(
      "-v,--verbose", [&raw](std::int64_t times) { raw.verbose = static_cast<int>(times); },
      "Print more on standard error; -vv prints most");
  command.add_flag("-q,--quiet", raw.quiet, "Print errors only");
}

void add_driver(CLI::App& command, Raw& raw) {
  command
      .add_option("--driver", raw.driver,
                  "CUDA driver to use: auto, nvidia or software; overrides CTXBROKER_DRIVER")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "nvidia", "software"}));
}

void add_run(CLI::App& command, Raw& raw, const char* input_help, const char* output_help) {
  // CLI11 2.4 does not take "input" beside --input.
  command.add_option("inputs", raw.options.inputs, input_help)->type_name("FILE");
  command
      .add_option("-i,--input", raw.named_inputs,
                  "NAME=FILE: the file of one of the graph's inputs; repeat it for several")
      ->type_name("NAME=FILE")
      ->allow_extra_args(false);
  command
      .add_option("-o,--output", raw.options.outputs,
                  std::string(output_help) + ". With --graph, NAME=FILE for each of its outputs")
      ->type_name("FILE")
      ->allow_extra_args(false);
  CLI::Option* plugins =
      command
          .add_option(
              "-p,--plugin", raw.options.plugins,
              "NAME[:parameter=value,...]. NAME is a plug-in's id, its short name, or a library's "
              "path (path.so#name if the library holds several); repeat it for a row")
          ->type_name("PLUGIN")
          ->allow_extra_args(false);
  command
      .add_option("-g,--graph", raw.graph,
                  "JSON file that connects plug-ins, with several inputs and outputs, instead of a "
                  "row of --plugin")
      ->type_name("FILE")
      ->excludes(plugins);
  command
      .add_option(
          "--automation", raw.automation,
          "File of changes over time, with lines TIME,NODE.PARAMETER,VALUE[,RAMP]. Times are "
          "seconds for recordings and frame numbers for images")
      ->type_name("FILE");
  command
      .add_option("--jobs", raw.options.jobs,
                  "How many images or blocks are in the graph at once, 1 to 64. More keep the "
                  "device and the cores busier, and each takes memory")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      .add_option("--job-timeout", raw.options.job_timeout,
                  "Milliseconds that the work of one image or block may take on the device before "
                  "it counts as hung and the command ends with an error; 0: no limit")
      ->type_name("MS")
      ->capture_default_str()
      ->check(CLI::Range(0U, 86'400'000U));
  command
      .add_option("--preset", raw.presets,
                  "JSON file with the parameters of one of the plug-ins, which it names; may be "
                  "repeated. Parameters behind --plugin override it")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      .add_option("--save-preset", raw.save_preset,
                  "Write the parameters of the one plug-in to this file, for --preset")
      ->type_name("FILE");
  command
      .add_option("--lease", raw.lease,
                  "Lease of the plug-ins: shared, private, green, green:N (at least N "
                  "multiprocessors of each library's own), or auto (the policy's choice, else the "
                  "plug-in's wish, else green where the driver offers it, else shared)")
      ->type_name("KIND")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& text) {
            if (parse_lease_choice(text)) return std::string();
            return "\"" + text +
                   "\" is not a lease; use auto, shared, private, green, or green:N with N above 0";
          },
          ""));
  command
      .add_option("--policy", raw.policy,
                  "JSON file that sets leases, devices and budgets by plug-in id; --lease and "
                  "--device override it")
      ->type_name("FILE");
  command
      .add_option("--device", raw.device,
                  "CUDA device's number, or the rule that chooses each plug-in library's device: "
                  "round-robin or most-free-memory. Default: the policy's choice, else 0")
      ->type_name("DEVICE")
      ->check(CLI::Validator(
          [](const std::string& text) {
            if (parse_placement(text)) return std::string();
            return "\"" + text +
                   "\" is not a device; use a number from 0 to 1023, round-robin or "
                   "most-free-memory";
          },
          ""));
  CLI::Option* isolate =
      command
          .add_flag("--isolate{together}", raw.isolate,
                    "Run the plug-ins in a process of their own: together, or in several processes "
                    "with by-vendor, by-plug-in or each-instance, or in this one with in-host. A "
                    "policy can choose otherwise for a plug-in. If one of them crashes or hangs "
                    "elsewhere, the command ends with an error that names it, and with exit code 5")
          ->type_name("[=GROUPING]")
          ->check(CLI::Validator(
              [](const std::string& text) {
                if (parse_worker_grouping(text)) return std::string();
                return "\"" + text +
                       "\" is no grouping; use together, by-vendor, by-plug-in, each-instance or "
                       "in-host";
              },
              ""));
  command
      .add_option("--on-fault", raw.on_fault,
                  "What to do when a kernel faults, which ends CUDA in this process: stop with an "
                  "error, or "
                  "move the plug-ins to a process of their own, run the unfinished jobs again "
                  "there, and go "
                  "on")
      ->type_name("stop|move")
      ->capture_default_str()
      ->check(CLI::IsMember({"stop", "move"}))
      ->excludes(isolate);
  command.add_flag("--graphs", raw.options.graphs,
                   "Launch what a plug-in enqueues for a job as one CUDA graph, if the work can be "
                   "captured");
  command
      .add_option("--json", raw.options.report,
                  "Write a report to this file, or with - to standard output instead of the table")
      ->type_name("REPORT");
  command
      .add_option("--trace", raw.trace,
                  "Write a timeline of the threads and the device to this file; open it with "
                  "ui.perfetto.dev")
      ->type_name("TRACE");
  add_driver(command, raw);
  add_common(command, raw);
}

// Of the image command.
void add_sizes(CLI::App& command, Raw& raw) {
  command
      .add_option("--size", raw.size, "With a graph that has no inputs: how large its images are")
      ->type_name("WxH")
      ->check(is_size());
  command
      .add_option("--tile", raw.tile,
                  "Render each image by parts of this size, which takes less device memory. The "
                  "result is the same")
      ->type_name("WxH")
      ->check(is_size());
}

void add_image(CLI::App& app, Raw& raw) {
  CLI::App& command = *app.add_subcommand("image", "Run a picture through image plug-ins");
  add_run(command, raw, "PNG to read, whose samples are read as sRGB, or OpenEXR",
          "PNG or OpenEXR to write, by its extension");
  command
      .add_option(
          "--depth", raw.options.depth,
          "Bits per sample of the output: 8 or 16 for PNG, 16 (half) or 32 (float) for OpenEXR. "
          "Default: those of the input, or those that lose least in another type")
      ->type_name("BITS")
      ->check(CLI::IsMember({8, 16, 32}));
  command
      .add_option(
          "--png-compression", raw.options.png_compression,
          "How hard a PNG is compressed, from 0 (stored) over 1 (fast) to 9 (smallest file)")
      ->type_name("LEVEL")
      ->capture_default_str()
      ->check(CLI::Range(0, 9));
  CLI::Option* frames =
      command
          .add_option(
              "--frames", raw.frames,
              "Run frames A to B of a sequence, one after the other. The names of input and "
              "output have a place for the number, such as shot.%04d.png")
          ->type_name("A-B")
          ->check(CLI::Validator(
              [](const std::string& text) {
                if (parse_frame_range(text)) return std::string();
                return "\"" + text +
                       "\" is not a range of frames; write the first and the last, such as 1-100";
              },
              ""));
  command
      .add_flag("--skip-existing", raw.options.skip_existing,
                "With --frames: leave out frames whose output is there already")
      ->needs(frames);
  add_sizes(command, raw);
}

void add_audio(CLI::App& app, Raw& raw) {
  CLI::App& command = *app.add_subcommand("audio", "Run a recording through audio plug-ins");
  add_run(command, raw, "WAV, FLAC, AIFF or Ogg to read", "WAV, FLAC or AIFF to write");
  command
      .add_option("--depth", raw.options.depth,
                  "Bits per sample of the output: 16, 24 or 32 (float) for WAV and AIFF, 16 or 24 "
                  "for FLAC. Default: the encoding of the input, or the nearest of another type")
      ->type_name("BITS")
      ->check(CLI::IsMember({16, 24, 32}));
  raw.options.block = 256;
  command.add_option("--block", raw.options.block, "Frames per block, 1 to 65536")
      ->type_name("FRAMES")
      ->capture_default_str()
      ->check(CLI::Range(1U, 65536U));
  command
      .add_flag("--pace", raw.options.pace,
                "Begin each block by the clock, at the sample rate, as a sound card does. The "
                "report tells how many results came after the next block was due")
      ->excludes(command.get_option("--jobs"));
  command
      .add_option("--tail", raw.options.tail,
                  "Seconds of output after the input's end, so that delays can ring out; at most "
                  "3600")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  command
      .add_option("--seconds", raw.options.seconds,
                  "How long the sound is, at most 86400. A recording is cut off, or begins again "
                  "where it ends. A graph without inputs makes so much sound")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0));
  command
      .add_option("--rate", raw.options.rate,
                  "With a graph that has no inputs: its sample rate in Hz, 1 to 1000000")
      ->type_name("HZ")
      ->check(CLI::Range(1U, 1'000'000U));
}

void add_list(CLI::App& app, Raw& raw) {
  CLI::App& command =
      *app.add_subcommand("list", "List plug-ins and their parameters; needs no driver");
  command.add_flag("--json", raw.options.json, "Print JSON");
  command
      .add_option("--disable", raw.options.disable,
                  "Do not use this library any more: its path, its file's name, or one of its "
                  "plug-ins; may be repeated")
      ->type_name("LIBRARY")
      ->allow_extra_args(false);
  command.add_option("--enable", raw.options.enable, "Use this library again; may be repeated")
      ->type_name("LIBRARY")
      ->allow_extra_args(false);
  add_common(command, raw);
}

void add_doctor(CLI::App& app, Raw& raw) {
  CLI::App& command = *app.add_subcommand(
      "doctor",
      "Show the driver, the devices, what protects the process, what is missing and how to get it");
  command.add_flag("--json", raw.options.json, "Print JSON");
  CLI::Option* probe = command.add_flag(
      "--probe", raw.options.probe,
      "Measure what the driver does here: whether the shield holds, how far a fault reaches, which "
      "calls wait. This takes some seconds the first time; later runs use the kept results");
  command.add_flag("--again", raw.options.again, "Measure again instead of using the kept results")
      ->needs(probe);
  add_driver(command, raw);
  add_common(command, raw);
}

void add_kernels(CLI::App& app, Raw& raw) {
  CLI::App& command = *app.add_subcommand(
      "kernels", "Show what kernel images (PTX, cubin, fatbin) hold; needs no driver");
  command.add_option("file", raw.options.kernel_images, "Image to read; several may be named")
      ->required()
      ->type_name("FILE");
  command.add_flag("--json", raw.options.json, "Print JSON");
}

struct CommandRow {
  const char* name;
  Command command;
};
constexpr std::array commands{
    CommandRow{"image", Command::image}, CommandRow{"audio", Command::audio},
    CommandRow{"list", Command::list}, CommandRow{"doctor", Command::doctor},
    CommandRow{"kernels", Command::kernels}};

// A row of plug-ins has one file at each end. What a graph needs is known when it is read.
void check_run(const CLI::App& app, const Raw& raw) {
  if (!app.got_subcommand("image") && !app.got_subcommand("audio")) return;
  const Options& options = raw.options;
  if (!raw.graph.empty()) return;
  if (options.plugins.empty()) throw CLI::RequiredError("--plugin or --graph");
  if (options.inputs.empty()) throw CLI::RequiredError("the input file");
  if (options.outputs.empty()) throw CLI::RequiredError("--output");
  for (const std::vector<std::string>& files : {options.inputs, options.outputs}) {
    if (files.size() == 1) continue;
    throw CLI::ValidationError("\"" + files[1] +
                               "\": a row of plug-ins has one input and one output; connect "
                               "several with a graph file (--graph)");
  }
}

Options finish(const CLI::App& app, Raw raw) {
  Options options = std::move(raw.options);
  for (const CommandRow& row : commands) {
    if (app.got_subcommand(row.name)) options.command = row.command;
  }
  options.size = parse_size(raw.size);
  options.tile = parse_size(raw.tile);
  if (!std::isfinite(options.seconds)) {
    throw Failure(ExitCode::usage, "--seconds: not a finite number; write seconds, such as 2");
  }
  if (!std::isfinite(options.tail)) {
    throw Failure(ExitCode::usage, "--tail: not a finite number; write seconds, such as 2");
  }
  if (raw.quiet && raw.verbose > 0) {
    throw Failure(ExitCode::usage, "--quiet and --verbose cannot be used together; leave one out");
  }
  options.verbosity = raw.quiet ? -1 : std::min(raw.verbose, 2);
  options.plugin_path.assign(raw.plugin_path.begin(), raw.plugin_path.end());
  options.graph = raw.graph;
  options.automation = raw.automation;
  options.presets.assign(raw.presets.begin(), raw.presets.end());
  options.save_preset = raw.save_preset;
  if (!raw.save_preset.empty() && options.plugins.size() != 1) {
    throw Failure(ExitCode::usage, "--save-preset writes the parameters of one plug-in, and " +
                                       std::to_string(options.plugins.size()) +
                                       " are named; name one");
  }
  options.trace = raw.trace;
  if (!raw.driver.empty()) options.driver = parse_driver_choice(raw.driver);
  options.policy = raw.policy;
  options.isolate = parse_worker_grouping(raw.isolate);
  options.move_on_fault = raw.on_fault == "move";
  if (!raw.frames.empty()) options.frames = parse_frame_range(raw.frames);
  options.device = parse_placement(raw.device);
  options.lease = parse_lease_choice(raw.lease).value_or(LeaseChoice());
  return options;
}

// CLI11 would only say that a command is missing.
void check_command(int argc, const char* const* argv) {
  if (argc > 1 && argv[1][0] == '-') return;
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const CommandRow& row : commands) names.emplace_back(row.name);
  if (argc < 2) {
    throw Failure(ExitCode::usage,
                  "a command is missing; use one of: " + join(names) + "; see sample_host --help");
  }
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  const std::string guess = nearest(argv[1], names);
  throw Failure(ExitCode::usage, "there is no command \"" + std::string(argv[1]) + "\"" +
                                     (guess.empty() ? "" : " (did you mean \"" + guess + "\"?)") +
                                     "; the commands are: " + join(names));
}

// "see sample_host image --help" for the subcommand that was being read.
std::string help_hint(const CLI::App& app) {
  std::string name;
  for (const CLI::App* command : app.get_subcommands()) name = " " + command->get_name();
  return "; see sample_host" + name + " --help";
}

}  // namespace

std::optional<Size> parse_size(std::string_view text) {
  constexpr std::uint32_t most = 1'000'000;
  Size size;
  const char* const end = text.data() + text.size();
  const auto [cross, bad_width] = std::from_chars(text.data(), end, size.width);
  if (bad_width != std::errc() || cross == end || *cross != 'x') return std::nullopt;
  const auto [stopped, bad_height] = std::from_chars(cross + 1, end, size.height);
  if (bad_height != std::errc() || stopped != end) return std::nullopt;
  const auto is_good = [](std::uint32_t side) { return side > 0 && side <= most; };
  return is_good(size.width) && is_good(size.height) ? std::optional(size) : std::nullopt;
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Raw raw;
  CLI::App app("Runs images and recordings through CUDA plug-ins, with or without a GPU.",
               "sample_host");
  app.set_version_flag("--version", std::string("sample_host ") + version());
  app.require_subcommand(1);
  app.footer(exit_code_help());
  add_image(app, raw);
  add_audio(app, raw);
  add_list(app, raw);
  add_doctor(app, raw);
  add_kernels(app, raw);
  check_command(argc, argv);
  try {
    app.parse(argc, argv);
    raw.options.inputs.insert(raw.options.inputs.end(), raw.named_inputs.begin(),
                              raw.named_inputs.end());
    check_run(app, raw);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version: CLI11 prints it
      app.exit(error);
      return std::nullopt;
    }
    throw Failure(ExitCode::usage, error.what() + help_hint(app));
  }
  return finish(app, std::move(raw));
}

}  // namespace ctxbroker::sample_host
