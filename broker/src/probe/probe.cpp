// SPDX-License-Identifier: Apache-2.0
// Starts the probing processes, caches their answers, and does the work of such a process.
#include "ctxbroker/probe.hpp"

#include <cstdio>
#include <ctime>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "driver/driver.hpp"
#include "driver/driver_error.hpp"
#include "gate/gate.hpp"
#include "probe/probe_cache.hpp"
#include "probe/protocol.hpp"
#include "probe/questions.hpp"
#include "probe/subject.hpp"
#include "process/environment.hpp"
#include "process/process.hpp"

namespace ctxbroker {
namespace detail {
namespace {

std::string uuid_of(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  if (driver.table.device_get_uuid(&uuid, device) != CUDA_SUCCESS) return {};
  std::string text;
  for (const char byte : uuid.bytes) {
    char two[3] = {};
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

// Identifies the driver by its library's file, because many drivers report the same CUDA version.
std::string identity_of(const std::filesystem::path& library) {
  std::error_code error;
  auto file = std::filesystem::canonical(library, error);
  if (error) file = library;
  const auto bytes = std::filesystem::file_size(file, error);
  const auto date = std::filesystem::last_write_time(file, error).time_since_epoch().count();
  return file.filename().string() + " " + std::to_string(bytes) + " " + std::to_string(date);
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  char text[32] = {};
  ::gmtime_r(&seconds, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// The facts about this machine that both entries need.
struct Machine {
  Driver driver;
  std::string uuid;  // of the device that would be measured
  ProbeKey key;
  std::filesystem::path file;  // empty: no place for a cache
};

Machine look_at(const ProbeOptions& options) {
  Machine machine{
      open_driver({options.driver, options.software_device, load_driver_past_gate}), {}, {}, {}};
  if (options.device < 0 ||
      static_cast<std::size_t>(options.device) >= machine.driver.devices.size()) {
    throw Error(ErrorKind::no_device, "there is no device " + std::to_string(options.device) +
                                          "; the driver has " +
                                          std::to_string(machine.driver.devices.size()));
  }
  const auto index = static_cast<std::size_t>(options.device);
  const DeviceInfo& device = machine.driver.devices[index];
  machine.uuid = uuid_of(machine.driver, machine.driver.handles[index]);
  machine.key = {device.name, device.multiprocessors,
                 identity_of(machine.driver.info.path) +
                     ", devices: " + std::to_string(machine.driver.devices.size())};
  const auto folder =
      options.cache_folder.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : options.cache_folder;
  if (!folder.empty()) machine.file = cache_file(folder, machine.key);
  return machine;
}

ProbeReport describe(const Machine& machine, ProbeReport report) {
  report.gpu = machine.key.gpu;
  report.driver = machine.driver.info;
  report.cache_file = machine.file;
  return report;
}

std::optional<ProbeReport> from_cache(const Machine& machine, std::vector<std::string>& notes) {
  if (machine.file.empty()) return std::nullopt;
  ReadProbe read = read_cache(machine.file, machine.key);
  if (!read.trouble.empty()) {
    notes.push_back("what was measured before cannot be used: " + machine.file.string() + ": " +
                    read.trouble);
  }
  if (!read.report) return std::nullopt;
  read.report->from_cache = true;
  return describe(machine, std::move(*read.report));
}

// Returns whether to keep the report. A probe that failed this time may succeed the next.
bool worth_keeping(const ProbeReport& report) {
  for (const ProbeAnswer& answer : report.answers) {
    if (answer.outcome == ProbeOutcome::failed || answer.outcome == ProbeOutcome::timed_out) {
      return false;
    }
  }
  return true;
}

void keep(const Machine& machine, ProbeReport& report) {
  if (!worth_keeping(report)) {
    report.notes.emplace_back(
        "not kept, because some of it failed: it is measured again next time");
    return;
  }
  if (machine.file.empty()) {
    report.notes.emplace_back("not kept: neither XDG_CACHE_HOME nor HOME names a folder");
    return;
  }
  const std::string trouble = write_cache(machine.file, report, machine.key);
  if (!trouble.empty()) {
    report.notes.push_back("not kept: " + trouble);
  }
}

struct Probe {
  std::string_view name;
  void (*run)(const Subject& subject);
};

constexpr Probe probes[] = {
    {"shield", probe_shield},
    {"fault", probe_fault},
    {"memory", probe_memory},
    {"stream", probe_stream},
    {"partition", probe_partition},
    {"waits_shared", probe_waits_shared},
    {"waits_private", probe_waits_private},
    {"waits_green", probe_waits_green},
};

ProcessExit run_probing_process(const ProbeOptions& options,
                                const std::vector<std::string>& arguments) {
  try {
    return run_process(options.program, arguments, options.deadline);
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::invalid_argument,
                std::string("the probing process cannot be started: ") + error.what() +
                    "; name a program of the host, which calls run_probe");
  }
}

ProbeReport measure(const ProbeOptions& options, const Machine& machine) {
  ProbeReport report;
  report.answers = open_answers();
  report.measured = now();
  report.gpu_uuid = machine.uuid;
  for (const Probe& probe : probes) {
    std::vector<std::string> arguments = options.arguments;
    const auto words = write_words({std::string(probe.name), machine.driver.info.kind,
                                    options.device, options.software_device});
    arguments.insert(arguments.end(), words.begin(), words.end());
    take_answers(probe.name, run_probing_process(options, arguments), report.answers);
  }
  return describe(machine, std::move(report));
}

void run(const ProbeWords& words) {
  for (const Probe& probe : probes) {
    if (probe.name != words.probe) continue;
    const Driver driver = open_driver({words.driver, words.software_device, load_driver_past_gate});
    probe.run(Subject(driver, words.device));
    return;
  }
  throw Error(ErrorKind::invalid_argument, "there is no probe \"" + words.probe + "\"");
}

}  // namespace
}  // namespace detail

ProbeReport probe(const ProbeOptions& options) {
  const detail::Machine machine = detail::look_at(options);
  std::vector<std::string> notes;
  if (!options.again) {
    if (auto before = detail::from_cache(machine, notes)) return std::move(*before);
  }
  ProbeReport report = detail::measure(options, machine);
  report.notes = std::move(notes);
  detail::keep(machine, report);
  return report;
}

std::optional<ProbeReport> cached_probe(const ProbeOptions& options) {
  std::vector<std::string> notes;
  return detail::from_cache(detail::look_at(options), notes);
}

int run_probe(const std::vector<std::string>& words) noexcept {
  try {
    detail::run(detail::read_words(words));
    return 0;
  } catch (const std::exception& error) {
    detail::tell_failure(error.what());
    return 1;
  }
}

}  // namespace ctxbroker
