// SPDX-License-Identifier: Apache-2.0
// Eight plug-ins, each in a worker of its own. By seed, one after another is guilty of a fault,
// while the seven others' frames go on. No innocent frame may be wrong or missing, the guilty one
// is named each time and comes back as its policy says, and nothing is left of all that.
//
//   campaign --seed 1 --each 200
//
// Status 0: so it was; 1: it was not; 2: wrong arguments; 3: a thread did not go on.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <random>

#include "control.hpp"
#include "course.hpp"
#include "frames.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "support/test_library.hpp"
#include "watch.hpp"

namespace ctxbroker::campaign {
namespace {

struct Options {
  unsigned seed = 1;
  int each = 1;
  int first = 1, last = 1'000'000;
  int timeout_ms = 4000;
  std::vector<std::string> faults;
  bool without_control = false;
  bool verbose = false;
  // For children.
  std::string in_process;
  int guilty = 0;
  bool device_memory = false;
  std::vector<std::string> libraries;
};

std::vector<const Fault*> chosen(const Options& options) {
  std::vector<const Fault*> all;
  for (const Fault& fault : all_faults()) {
    const auto& wanted = options.faults;
    if (wanted.empty() || std::count(wanted.begin(), wanted.end(), fault.name) > 0) {
      all.push_back(&fault);
    }
  }
  return all;
}

std::string repeat(const Options& options) {
  std::string text = "campaign --seed " + std::to_string(options.seed) + " --each " +
                     std::to_string(options.each) + " --timeout " +
                     std::to_string(options.timeout_ms);
  std::string list;
  for (const auto& fault : options.faults) list += (list.empty() ? " --faults " : ",") + fault;
  return text + list;
}

void try_controls(const Options& options, const std::vector<const Fault*>& faults,
                  const Copies& copies, Report& report) {
  std::mt19937 random(options.seed);
  for (const Fault* fault : faults) {
    const int guilty = static_cast<int>(random() % plugin_count);
    const ControlResult result = run_control(*fault, copies.files(), guilty);
    report.row(*fault).control = result.text;
    if (!is_expected(*fault, result)) {
      report.complain(0, std::string(fault->name) +
                             ": in one process it does other harm than expected: " + result.text);
    }
  }
}

// What a run may add to this process, however long it is.
constexpr std::uint64_t memory_slack = 2ULL << 20;
// On a GPU, somebody else may use a little of its memory too.
constexpr std::uint64_t device_slack = 64ULL << 20;

void run_steps(const Options& options, const std::vector<const Fault*>& faults,
               const Copies& copies, Report& report) {
  using std::chrono::seconds;
  soak::Watch watch(plugin_count + 1, seconds(120), std::chrono::hours(48), STDOUT_FILENO);
  const Left nothing = left();
  const std::size_t files = count_shared_files();
  const DeviceMemory device = device_memory();
  const auto same = [&](const char* what, std::uint64_t before, std::uint64_t after) {
    report.add({what, before, after, before != after});
  };
  const auto no_less = [&](const char* what, std::uint64_t before, std::uint64_t after) {
    report.add({what, before, after, after + device_slack < before,
                device.is_shared ? "" : " (each process of the software device has its own)"});
  };
  int steps = 0;
  {
    CourseOptions with;
    with.call_timeout = std::chrono::milliseconds(options.timeout_ms);
    with.is_verbose = options.verbose;
    with.limits_memory = std::any_of(faults.begin(), faults.end(), [](const Fault* fault) {
      return std::string(fault->name) == "out-of-memory";
    });
    Course course(copies, with, report, watch);
    const std::uint64_t resident = resident_bytes();
    const std::uint64_t all_up = device_memory().free_bytes;
    for (const Step& step : plan(faults, options.each, options.seed)) {
      if (step.number < options.first || step.number > options.last) continue;
      course.run(step);
      ++steps;
    }
    no_less("free bytes of the device beside all workers", all_up, device_memory().free_bytes);
    const std::uint64_t resident_now = resident_bytes();
    report.add({"resident bytes of the host", resident, resident_now,
                !sanitized && resident_now > resident + memory_slack,
                sanitized ? " (not judged: a sanitizer keeps what was freed)" : ""});
  }
  watch.leaves(plugin_count);
  const Left now = left();
  same("child processes", nothing.children, now.children);
  same("mappings of shared memory", nothing.mappings, now.mappings);
  same("descriptors", nothing.descriptors, now.descriptors);
  same("threads", nothing.threads, now.threads);
  same("files in /dev/shm", files, count_shared_files());
  no_less("free bytes of the device", device.free_bytes, device_memory().free_bytes);
  if (steps == 0) report.complain(0, "there is no such step");
  // By then, each of the plug-ins has been guilty once.
  if (steps >= plugin_count && (report.back_at_once == 0 || report.quarantined == 0)) {
    report.complain(0, "one of the two policies was not tried");
  }
}

int run_program(int argc, char** argv) {
  Options options;
  CLI::App app("Faults by seed among eight plug-ins in workers");
  app.add_option("--seed", options.seed);
  app.add_option("--each", options.each, "how often each fault happens")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--faults", options.faults, "some of them: trap,segfault,... (all)")
      ->delimiter(',')
      ->check([](const std::string& name) {
        return find_fault(name) != nullptr ? "" : "there is no fault \"" + name + "\"";
      });
  app.add_option("--first", options.first, "the first step to run");
  app.add_option("--last", options.last, "the last one");
  app.add_option("--timeout", options.timeout_ms, "ms that a job may take")
      ->check(CLI::Range(100, 600'000));
  app.add_flag("--without-control", options.without_control,
               "does not try the faults in one process");
  app.add_flag("--verbose", options.verbose, "prints what the host was told in each step");
  app.add_option("--in-process", options.in_process)->group("");
  app.add_option("--guilty", options.guilty)->group("");
  app.add_flag("--device-memory", options.device_memory)->group("");
  app.add_option("--libraries", options.libraries)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (options.device_memory) return print_device_memory();
  if (!options.in_process.empty()) {
    return be_control(*find_fault(options.in_process),
                      {options.libraries.begin(), options.libraries.end()}, options.guilty);
  }
  // Otherwise the C library keeps pools of memory for threads that have ended.
  mallopt(M_ARENA_MAX, 1);
  const auto begin = Clock::now();
  const Copies copies;
  Report report(repeat(options));
  const std::vector<const Fault*> all = chosen(options);
  std::vector<const Fault*> possible;
  for (const Fault* fault : all) {
    report.row(*fault).left_out = why_left_out(*fault);
    if (report.row(*fault).left_out.empty()) possible.push_back(fault);
  }
  std::printf("%s\n", repeat(options).c_str());
  run_steps(options, possible, copies, report);
  if (!options.without_control) try_controls(options, possible, copies, report);
  report.print(all, std::chrono::duration<double>(Clock::now() - begin).count());
  return report.complaints() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ctxbroker::campaign

int main(int argc, char** argv) {
  try {
    return ctxbroker::campaign::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "campaign: %s\n", error.what());
    return 1;
  }
}
