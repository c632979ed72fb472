// What the documentation of CUDA does not promise, measured on this machine: whether the shield
// holds, how far a fault reaches, which calls wait for whom. Every measurement runs in a process of
// its own, because it may end CUDA for its process; the result is kept between runs.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/export.hpp"

namespace ctxbroker {

enum class ProbeOutcome {
  measured,
  not_measured,  // this machine lacks what it needs; `reason` says what
  failed,        // a call failed that should not; `reason` says which
  crashed,       // a signal ended the process that measured: a result too
  timed_out,     // the process was ended at its deadline
};

CTXB_API const char* to_string(ProbeOutcome outcome) noexcept;  // "measured", "not-measured", ...

enum class ProbeUnit {
  yes_no,  // 1 or 0
  count,
  milliseconds,
};

struct ProbeAnswer {
  std::string name;   // "shield.reset_refused"; never changes its meaning
  std::string title;  // in words
  ProbeUnit unit = ProbeUnit::yes_no;
  ProbeOutcome outcome = ProbeOutcome::not_measured;
  double value = 0;       // when measured
  std::string reason;     // when not
  std::string reference;  // what an H200 with driver 580.159.04 (CUDA 13.0) answered
};

struct ProbeReport {
  std::string gpu;  // the device's name
  // Of the device that was measured, 32 hexadecimal digits; empty when the driver tells none. The
  // answers hold for all devices of its model.
  std::string gpu_uuid;
  DriverInfo driver;     // of the process that asked
  std::string measured;  // when: "2026-11-21T23:15:00Z"
  bool from_cache = false;
  std::filesystem::path cache_file;  // empty when there is no place for one
  std::vector<std::string> notes;    // what went wrong with the cache, in words
  std::vector<ProbeAnswer> answers;

  // Null when there is none of that name.
  CTXB_API const ProbeAnswer* find(std::string_view name) const noexcept;
};

// A program of the host's that calls run_probe: itself with a command that people do not see, say.
struct ProbeOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;  // before the words for run_probe
  std::optional<DriverChoice> driver;  // unset: CTXBROKER_DRIVER, and without it automatic
  std::filesystem::path software_device;
  int device = 0;                              // CUDA ordinal
  std::chrono::milliseconds deadline{30'000};  // for each process; then it is killed
  bool again = false;                          // measure, whatever the cache says
  std::filesystem::path cache_folder;  // empty: $XDG_CACHE_HOME/ctxbroker or ~/.cache/ctxbroker
};

// Measures, or reads what was measured on a GPU of this model with this driver before. Takes some
// seconds when it measures. [main] thread. Nothing wrong with the cache is an error: see `notes`.
// Throws Error: driver_choice, no_driver, no_device, driver_call, invalid_argument (the program
// does not start).
CTXB_API ProbeReport probe(const ProbeOptions& options);

// What was measured before, or nothing; starts no process and no driver's context. Throws as probe.
CTXB_API std::optional<ProbeReport> cached_probe(const ProbeOptions& options);

// For the program that ProbeOptions names: measures what `words` (the arguments behind
// ProbeOptions::arguments) ask for, writes the answers to standard output and returns the exit
// status. Call it before any use of CUDA; it may crash the process.
CTXB_API int run_probe(const std::vector<std::string>& words) noexcept;

// {"schema": "ctxbroker.probe/1", ...}, ends with a line break.
CTXB_API std::string to_json(const ProbeReport& report);

}  // namespace ctxbroker
