// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures how this machine's driver behaves where NVIDIA's documentation makes no promise:
/// whether the shield holds, how far a fault reaches, and which calls wait for whom.
///
/// Each measurement can end CUDA for its process, so it runs in a process of its own. The results
/// are kept in a cache between runs.
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

/// How a measurement ended.
enum class ProbeOutcome {
  measured,      ///< It has a value.
  not_measured,  ///< This machine lacks something that it needs. The reason says what.
  failed,        ///< A call failed that should not. The reason says which.
  crashed,       ///< A signal ended the process, which is a result too.
  timed_out,     ///< The process was ended at its deadline.
};

/// Returns "measured", "not-measured", ... Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(ProbeOutcome outcome) noexcept;

/// What a value counts.
enum class ProbeUnit {
  yes_no,        ///< 1 for yes, 0 for no.
  count,         ///< A number of things.
  milliseconds,  ///< A time.
};

/// One measurement.
struct ProbeAnswer {
  std::string name;   ///< "shield.reset_refused". A name never changes its meaning.
  std::string title;  ///< The question in words.
  ProbeUnit unit = ProbeUnit::yes_no;
  ProbeOutcome outcome = ProbeOutcome::not_measured;
  double value = 0;       ///< The value. It is 0 unless `outcome` is measured.
  std::string reason;     ///< Why there is no value. Empty if there is one.
  std::string reference;  ///< What an H200 with driver 580.159.04 (CUDA 13.0) answered.
};

/// All measurements of one GPU model.
struct ProbeReport {
  std::string gpu;       ///< The device's name.
  std::string gpu_uuid;  ///< The measured device's UUID in 32 hexadecimal digits, or empty.
  DriverInfo driver;     ///< The driver of the process that asked.
  std::string measured;  ///< When, in UTC: "2026-11-21T23:15:00Z".
  bool from_cache = false;
  std::filesystem::path cache_file;  ///< Empty when there is no place for one.
  std::vector<std::string> notes;    ///< What went wrong with the cache, one sentence each.
  std::vector<ProbeAnswer> answers;

  /// Returns the answer of that name, or null. It lives as long as `answers` does not change.
  [[nodiscard]] CTXB_API const ProbeAnswer* find(std::string_view name) const& noexcept;
  const ProbeAnswer* find(std::string_view name) const&& = delete;
};

/// How to measure.
struct ProbeOptions {
  /// A host program that calls run_probe, for example itself with a hidden command.
  std::filesystem::path program;
  std::vector<std::string> arguments;  ///< `program` gets these before the words for run_probe.
  /// The driver. Unset: what the environment variable CTXBROKER_DRIVER names, else automatic.
  std::optional<DriverChoice> driver;
  std::filesystem::path software_device;       ///< As BrokerOptions::software_device.
  int device = 0;                              ///< CUDA device ordinal.
  std::chrono::milliseconds deadline{30'000};  ///< A process that takes longer is killed.
  bool again = false;                          ///< Ignores cached results and measures again.
  /// Empty: $XDG_CACHE_HOME/ctxbroker, or ~/.cache/ctxbroker. While a broker is open, the variables
  /// count as they were when the first one was opened.
  std::filesystem::path cache_folder;
};

/// Returns the cached results for this GPU model and driver. If there are none, it measures.
///
/// Measuring starts processes and takes some seconds. Problems with the cache are not errors; see
/// ProbeReport::notes. Call it on the main thread.
///
/// @return the report, a copy.
/// @throws Error  `driver_choice`, `no_driver`, `no_device`, `driver_call`; `invalid_argument` when
///                the program does not start.
[[nodiscard]] CTXB_API ProbeReport probe(const ProbeOptions& options);

/// Reads the cache only. It starts no process and creates no context. Call it on the main thread.
///
/// @return the report, or nothing when the cache has none.
/// @throws Error  as probe.
[[nodiscard]] CTXB_API std::optional<ProbeReport> cached_probe(const ProbeOptions& options);

/// Measures in this process and writes the answers to standard output. The program that
/// ProbeOptions names calls it, before any other use of CUDA. It may crash the process.
///
/// @param words  the program's arguments that follow ProbeOptions::arguments.
/// @return the exit status that the program should end with.
[[nodiscard]] CTXB_API int run_probe(const std::vector<std::string>& words) noexcept;

/// Writes a report as JSON text with a line break at the end. The schema is "ctxbroker.probe/1".
/// Thread-safe.
[[nodiscard]] CTXB_API std::string to_json(const ProbeReport& report);

}  // namespace ctxbroker
