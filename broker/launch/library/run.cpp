// SPDX-License-Identifier: Apache-2.0
// ctxbroker_run.so: the broker of a process that knows nothing of it.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "process/own_thread.hpp"
#include "report.hpp"
#include "run.h"
#include "settings.hpp"
#include "standard_error.hpp"

namespace ctxbroker::launch {
namespace {

// Warnings and errors of the broker, for the report. Any thread.
class Notes {
 public:
  void add(const Record& record) {
    constexpr std::size_t most = 200;
    const std::lock_guard lock(mutex_);
    ++count_;
    if (notes_.size() < most) {
      notes_.push_back({record.severity, record.topic, record.tenant_name, record.text});
    } else {
      ++left_out_;
    }
  }
  std::uint64_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  void put_into(RunFacts& facts) {
    const std::lock_guard lock(mutex_);
    facts.notes = notes_;
    facts.notes_left_out = left_out_;
  }

 private:
  std::mutex mutex_;
  std::vector<Note> notes_;
  std::uint64_t count_ = 0, left_out_ = 0;
};

// Lives until the process ends, because threads of the program run as long.
class Run {
 public:
  explicit Run(const ctxb_run_start& start)
      : standard_error_(start), settings_(parse_settings(start.settings)) {
    if (pid_ != settings_.pid) standard_error_.name_process(pid_);
  }

  // Opens the broker, unless there is no device. Returns false if it cannot, and prints why.
  bool open();
  bool has_broker() const noexcept { return broker_.has_value(); }
  // The process exits.
  void finish() noexcept;
  const StandardError& standard_error() const noexcept { return standard_error_; }

 private:
  bool names_driver() const;
  BrokerOptions options();
  bool fail(const std::string& why);
  bool without_device(const Error& error);
  void write_failure(const std::string& why);
  void look_after() noexcept;  // the run's own thread
  void poll() noexcept;
  void refresh_report() noexcept;
  void conclude() noexcept;
  RunFacts facts();
  void write_report_of(const RunFacts& facts);
  void write_files(const RunFacts& facts) noexcept;
  template <typename Write>
  void write_file(Write&& write) noexcept;

  StandardError standard_error_;
  const Settings settings_;
  const pid_t pid_ = ::getpid();
  Notes notes_;
  std::optional<Broker> broker_;
  std::optional<GateInfo> gate_;
  std::optional<std::uint64_t> reported_;  // notes; unset: there is no report
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_finishing_ = false, is_concluded_ = false;
};

std::string line_of(const Record& record) {
  const std::string whose = record.tenant == host_tenant ? "" : record.tenant_name + ": ";
  return std::string(to_string(record.severity)) + ": " + whose + record.topic + ": " + record.text;
}

// Returns whether the user has chosen the driver.
bool Run::names_driver() const {
  const char* const variable = ::secure_getenv("CTXBROKER_DRIVER");
  return settings_.driver || (variable != nullptr && *variable != '\0');
}

BrokerOptions Run::options() {
  BrokerOptions options;
  if (!settings_.command.empty()) options.host_name = settings_.command.front();
  options.driver = settings_.driver;
  // A program that does not ask for the software device does not expect one.
  if (!names_driver()) options.driver = DriverChoice::nvidia;
  options.shield_host = true;
  options.host.memory = MemorySource::driver;  // the program may share its memory with others
  options.records = [this](const Record& record) {
    if (record.severity >= Severity::warning) notes_.add(record);
    if (settings_.log && record.severity >= *settings_.log) standard_error_.print(line_of(record));
  };
  return options;
}

void Run::write_failure(const std::string& why) {
  RunFacts facts;
  facts.pid = pid_;
  facts.is_first = pid_ == settings_.pid;
  facts.driver_called = true;
  facts.error = why;
  if (!settings_.report.empty()) {
    write_file([&] { write_report_of(facts); });
  }
}

bool Run::fail(const std::string& why) {
  standard_error_.print("error: the process was ended before its first call of the CUDA driver: " +
                        why);
  write_failure(why);
  return false;
}

// Returns whether the machine has no device for the program. Every driver call then answers so, and
// there is nothing to protect.
bool Run::without_device(const Error& error) {
  const bool is_not_there = error.kind() == ErrorKind::no_driver && error.origin().call == "dlopen";
  const bool has_none = error.kind() == ErrorKind::no_device || is_not_there;
  if (names_driver() || !has_none) return false;
  if (settings_.verbose) standard_error_.print("the program finds no device: " + error.message());
  write_failure(error.message());
  return true;
}

bool Run::open() {
  try {
    broker_.emplace(Broker::open(options()));
    gate_ = broker_->gate();
    if (gate_->mode != GateMode::before_driver) {
      return fail("the gate is not in force: " + gate_->reason);
    }
    if (!settings_.trace.empty()) broker_->start_timeline();
  } catch (const Error& error) {
    return without_device(error) || fail(error.message());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
  refresh_report();  // the process may be killed at once
  detail::start_own_thread([this] { look_after(); }).detach();
  return true;
}

void Run::poll() noexcept {
  try {
    broker_->poll();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next one tries again
  }
}

// The process may be killed, and what happened until then is told all the same.
void Run::refresh_report() noexcept {
  const std::uint64_t count = notes_.count();
  if (settings_.report.empty() || reported_ == count) return;
  reported_ = count;
  try {
    write_report_of(facts());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the last report tells it
  }
}

void Run::look_after() noexcept {
  constexpr std::chrono::milliseconds period{200};
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return is_finishing_; })) {
    lock.unlock();
    poll();
    refresh_report();
    lock.lock();
  }
  lock.unlock();
  poll();  // for what happened last
  conclude();
  lock.lock();
  is_concluded_ = true;
  changed_.notify_all();
}

RunFacts Run::facts() {
  RunFacts facts;
  facts.pid = pid_;
  facts.is_first = pid_ == settings_.pid;
  facts.driver_called = true;
  facts.driver = broker_->driver();
  facts.gate = gate_;
  facts.devices = broker_->devices();
  for (const DeviceInfo& device : facts.devices) {
    facts.shields.push_back(broker_->shield(device.ordinal));
  }
  facts.leases = broker_->leases();
  facts.metrics = broker_->metrics();
  notes_.put_into(facts);
  return facts;
}

template <typename Write>
void Run::write_file(Write&& write) noexcept {
  try {
    write();
  } catch (const std::exception& error) {
    standard_error_.print(std::string("error: ") + error.what());
  }
}

void Run::write_report_of(const RunFacts& facts) {
  write_report(path_for(settings_.report, settings_, pid_), report_text(settings_, facts));
}

void Run::write_files(const RunFacts& facts) noexcept {
  if (!settings_.report.empty()) {
    write_file([&] { write_report_of(facts); });
  }
  if (!settings_.trace.empty()) {
    write_file([&] { broker_->write_timeline(path_for(settings_.trace, settings_, pid_)); });
  }
}

void Run::conclude() noexcept {
  try {
    RunFacts known = facts();
    known.finished = true;
    write_files(known);
    if (!has_news(known) && !settings_.verbose) return;
    const std::string text = summary_text(known, settings_.verbose);
    if (!text.empty()) standard_error_.print(text);
  } catch (const std::exception& error) {
    standard_error_.print(std::string("error: the report could not be made: ") + error.what());
  }
}

// The other threads of the program run on meanwhile, and one of them may hold what the broker's
// figures need.
void Run::finish() noexcept {
  constexpr std::chrono::seconds patience{5};
  if (::getpid() != pid_) return;  // a forked process has no part in the run
  std::unique_lock lock(mutex_);
  is_finishing_ = true;
  changed_.notify_all();
  if (changed_.wait_for(lock, patience, [this] { return is_concluded_; })) return;
  standard_error_.print(
      "error: the broker did not respond within 5 s, so the last report and the summary are "
      "missing");
}

Run* run = nullptr;  // set once, before anything reads it

}  // namespace
}  // namespace ctxbroker::launch

ctxb_run_result ctxb_run_open(const ctxb_run_start* start) {
  using ctxbroker::launch::run;
  using ctxbroker::launch::Run;
  try {
    auto made = std::make_unique<Run>(*start);
    if (!made->open()) return ctxb_run_failed;
    if (!made->has_broker()) return ctxb_run_opened;
    run = made.release();
    const auto finish = [] { run->finish(); };
    if (std::atexit(finish) != 0 || std::at_quick_exit(finish) != 0) {
      run->standard_error().print(
          "warning: the process accepts no more exit functions, so the last "
          "report and the summary will be missing");
    }
    return ctxb_run_opened;
  } catch (const std::exception& error) {
    ctxbroker::launch::StandardError(*start).print(
        std::string("error: the process was ended before its first call of the CUDA driver: ") +
        error.what());
    return ctxb_run_failed;
  }
}
