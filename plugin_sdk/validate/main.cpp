// SPDX-License-Identifier: Apache-2.0
// ctxb-validate: tests a plug-in library against the rules of plugin.h.
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "behaviour.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "guardian.hpp"
#include "ladder.hpp"
#include "observe/standard_output.hpp"
#include "observe/whole_file.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker::validate {
namespace {

constexpr int passed = 0, failed = 1, wrong_usage = 2, no_file = 3, cannot_run = 4;

constexpr const char* exit_codes =
    "Exit codes:\n"
    "  0  every test passed or was skipped\n"
    "  1  a test failed, crashed or hung\n"
    "  2  the command line is wrong\n"
    "  3  the plug-in library cannot be read, or an output file cannot be written\n"
    "  4  the validator cannot run: no such driver, no device, or no such plug-in in the library\n";

struct Arguments {
  Options options;
  std::string reproduce, child, behaviour;
  bool json = false, list = false, verbose = false;
};

// "ID:SEED".
const Test& named_test(const std::string& text, std::uint64_t& seed) {
  const std::size_t colon = text.find(':');
  const Test* const test = find_test(text.substr(0, colon));
  if (test == nullptr) {
    throw CLI::ValidationError(
        "--reproduce", "there is no test \"" + text.substr(0, colon) + "\"; --list shows all");
  }
  if (colon != std::string::npos) {
    try {
      seed = std::stoull(text.substr(colon + 1));
    } catch (const std::exception&) {
      throw CLI::ValidationError("--reproduce", "write it as TEST:SEED, with a number");
    }
  }
  return *test;
}

void check_only(const Options& options) {
  for (const std::string& one : options.only) {
    const auto tests = ladder();
    if (std::none_of(tests.begin(), tests.end(), [&](const Test& test) {
          return std::string_view(test.id).substr(0, one.size()) == one;
        })) {
      throw CLI::ValidationError("--only", "there is no test \"" + one + "\"; --list shows all");
    }
  }
}

Trial trial_of(const Options& options) {
  Trial trial;
  trial.file = options.file;
  trial.seed = options.seed;
  if (!options.plugins.empty()) trial.plugin = options.plugins.front();
  if (!options.driver.empty()) trial.driver = parse_driver_choice(options.driver);
  return trial;
}

void complain(const std::string& text) {
  std::fprintf(stderr, "ctxb-validate: error: %s\n", detail::printable(text).c_str());
}

int run_one(Arguments& arguments, const std::string& which, bool is_child) {
  const Test& test = named_test(which, arguments.options.seed);
  Trial trial = trial_of(arguments.options);
  const Answer answer = run_here(test, trial);
  if (is_child) {
    tell_parent(answer, trial);
  } else {
    std::printf("%s %s%s%s\n", to_string(answer.outcome), test.id, answer.text.empty() ? "" : ": ",
                detail::printable(answer.text).c_str());
  }
  return answer.outcome == Outcome::fail ? failed : passed;
}

// Returns `code`, or the code for an output that cannot be written if that is true of what was
// printed.
int ended(int code) {
  if (detail::all_is_printed()) return code;
  complain(detail::not_printed);
  return no_file;
}

// Writing the manifest must not destroy what is read.
void check_behaviour(const Arguments& arguments) {
  const std::filesystem::path library = arguments.options.file;
  for (const auto& read : {library, manifest_path(library)}) {
    std::error_code none;
    if (arguments.behaviour.empty() ||
        !std::filesystem::equivalent(arguments.behaviour, read, none)) {
      continue;
    }
    throw CLI::ValidationError("--behaviour", "\"" + arguments.behaviour +
                                                  "\" is the library or its manifest; name "
                                                  "another file");
  }
}

int write_behaviour(const Arguments& arguments) {
  const nlohmann::ordered_json manifest = behaviour_of(arguments.options);
  try {
    detail::write_whole_file(arguments.behaviour, [&](const auto& take) {
      take(manifest.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    });
  } catch (const Error& error) {
    complain(error.what());
    return no_file;
  }
  return passed;
}

int run_all(const Arguments& arguments) {
  const Options& options = arguments.options;
  const auto results = run_ladder(options, [&](const Result& result) {
    if (arguments.json) return;
    std::fputs(detail::printable(text_of(options, result, arguments.verbose)).c_str(), stdout);
    std::fflush(stdout);
  });
  if (arguments.json) {
    std::puts(json_of(options, results)
                  .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                  .c_str());
  } else {
    std::fputs(detail::printable(summary_text(options, results)).c_str(), stdout);
  }
  if (!arguments.behaviour.empty()) {
    if (const int code = write_behaviour(arguments); code != passed) return code;
  }
  return ended(all_well(results) ? passed : failed);
}

int run(int argc, char** argv) {
  Arguments arguments;
  Options& options = arguments.options;
  CLI::App app("Tests a ctxbroker plug-in library, each test in a process of its own.");
  app.footer(exit_codes);
  app.add_option("file", options.file, "The plug-in library")->type_name("FILE");
  app.add_option("--strictness", options.strictness,
                 "How much is tested: 1 (it loads and runs) to 10 (everything). Default: 5, what "
                 "every host needs")
      ->check(CLI::Range(1, 10));
  CLI::Option* const seed = app.add_option(
      "--seed", options.seed, "Decides what is random. Default: a new one, which is printed");
  app.add_option("--only", options.only,
                 "Run this test, or all whose ids begin like this, whatever their strictness; may "
                 "be repeated")
      ->type_name("ID")
      ->allow_extra_args(false);
  app.add_option("--plugin", options.plugins,
                 "Test this plug-in of the library, by id or short name; may be repeated. Default: "
                 "all")
      ->type_name("ID")
      ->allow_extra_args(false);
  app.add_option("--driver", options.driver,
                 "CUDA driver to use: auto, nvidia or software; overrides CTXBROKER_DRIVER")
      ->check(CLI::IsMember({"auto", "nvidia", "software"}));
  long deadline = 60;
  app.add_option("--deadline", deadline, "Seconds after which a test counts as hung. Default: 60")
      ->check(CLI::Range(1L, 86400L));
  options.jobs = std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
  app.add_option("-j,--jobs", options.jobs, "How many tests run at once. Default: up to 4")
      ->check(CLI::Range(1, 256));
  app.add_flag("--json", arguments.json, "Print the result as JSON (ctxbroker.validate/1)");
  app.add_flag("-v,--verbose", arguments.verbose, "Print passed and skipped tests, too");
  app.add_flag("--list", arguments.list, "Print the tests as a table in Markdown, and run nothing");
  app.add_option("--reproduce", arguments.reproduce,
                 "Run one test in this process, for a debugger: TEST:SEED")
      ->type_name("ID:SEED");
  app.add_option("--behaviour", arguments.behaviour,
                 "Also write what the plug-ins do to CUDA, as JSON (ctxbroker.behaviour/1)")
      ->type_name("FILE");
  app.add_option("--child", arguments.child)->group("");  // how the program starts itself
  try {
    app.parse(argc, argv);
    options.deadline = std::chrono::seconds(deadline);
    if (arguments.list) {
      std::fputs(ladder_text().c_str(), stdout);
      return ended(passed);
    }
    if (options.file.empty()) throw CLI::RequiredError("FILE");
    check_only(options);
    if (seed->count() == 0) options.seed = std::random_device{}() % 1000000;
    if (::access(options.file.c_str(), R_OK) != 0 ||
        !std::filesystem::is_regular_file(options.file)) {
      complain(options.file.string() + " is not a file that can be read");
      return no_file;
    }
    // A plug-in that hangs does not outlive a validator that was killed.
    if (!arguments.child.empty()) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      go_on_in_child();
    }
    if (arguments.child == "behaviour") {
      Trial trial = trial_of(options);
      observe_behaviour(trial);
      return passed;
    }
    if (!arguments.child.empty()) return run_one(arguments, arguments.child, true);
    if (!arguments.reproduce.empty()) return ended(run_one(arguments, arguments.reproduce, false));
    check_behaviour(arguments);
  } catch (const CLI::ParseError& error) {
    std::ostringstream said;
    const int code = app.exit(error, std::cout, said);
    std::fputs(detail::printable(said.str()).c_str(), stderr);
    return code == 0 ? ended(passed) : wrong_usage;
  }
  return run_all(arguments);
}

}  // namespace
}  // namespace ctxbroker::validate

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit is to fail, so that this can be said
  try {
    return ctxbroker::validate::run(argc, argv);
  } catch (const std::exception& error) {
    ctxbroker::validate::complain(error.what());
    return ctxbroker::validate::cannot_run;
  }
}
