// SPDX-License-Identifier: Apache-2.0
// The loads as a library with threads of its own, for a program that does not know it: LD_PRELOAD
// brings the library into the process, and a pattern of the policy makes it a tenant.
// paced_audio.py uses it. The environment says what it does:
//
//   CTXB_LOADS        names of loads, separated by commas. Without it, the library does nothing
//   CTXB_LOADS_BEGIN  a file. The loads begin when it is there
//   CTXB_LOADS_DONE   the file to be written at the end of the process, with a line for each load:
//                     its name, how often it did what it does, the seconds that it lasted, and the
//                     error that ended it. (A closed broker refuses all calls, which ends it too.)
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "qos/loads.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text != nullptr ? text : "";
}

const Load& load_called(const std::string& name) {
  for (const Load& load : loads()) {
    if (load.run != nullptr && load.name == name) return load;
  }
  throw std::runtime_error("there is no load \"" + name + "\"");
}

// A load on a thread of its own.
struct Work {
  const Load* load = nullptr;
  std::atomic<bool> begun{false};
  std::atomic<std::uint64_t> done{0}, refused{0};
  double seconds = 0;
  std::string failure;
  std::thread thread;
};

// Smaller than those of bench_qos: a hog's launch of 1 ms, 64 KiB of pinned memory.
constexpr LoadSettings neighbours_settings{1, 64ULL << 20, 64ULL << 10};

// The whole library, from the beginning of the loads to the end of the process.
class Neighbour {
 public:
  explicit Neighbour(std::FILE* report)
      : report_(report), driver_("libcuda.so.1"), multiprocessors_(use_device()) {}

  void begin(const std::string& names) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      works_.push_back(std::make_unique<Work>());
      works_.back()->load = &load_called(name);
      if (works_.back()->load->needs_pace && !pace_) measure();
    }
    for (const auto& work : works_) {
      work->thread = std::thread([this, &its = *work] { run(its); });
    }
  }
  void end() {
    stop_.store(true);
    for (const auto& work : works_) {
      work->thread.join();
      std::fprintf(report_, "%s %llu %.3f %s\n", work->load->name,
                   static_cast<unsigned long long>(work->done.load()), work->seconds,
                   work->failure.c_str());
    }
    std::fclose(report_);
  }

 private:
  // Makes the library's context current on this thread: for a tenant, that of its lease.
  unsigned use_device() const {
    CUcontext primary = nullptr;
    int multiprocessors = 0;
    CTXB_CALL(driver_, cuDevicePrimaryCtxRetain, &primary, 0);
    CTXB_CALL(driver_, cuCtxSetCurrent, primary);
    CTXB_CALL(driver_, cuDeviceGetAttribute, &multiprocessors,
              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    return static_cast<unsigned>(multiprocessors);
  }
  // The loads count on all multiprocessors of the device too, so it is right in a partition as
  // well.
  void measure() {
    const Module module(driver_, kernel_image());
    pace_.emplace(driver_, module.function("work"), static_cast<int>(multiprocessors_));
  }
  void run(Work& work) {
    const auto start = Clock::now();
    try {
      use_device();
      LoadContext context{driver_,      neighbours_settings, pace_ ? &*pace_ : nullptr,
                          stop_,        work.begun,          work.done,
                          work.refused, multiprocessors_};
      work.load->run(context);
    } catch (const std::exception& error) {
      work.failure = error.what();
    }
    work.seconds = nanoseconds_since(start) / 1e9;
  }

  std::FILE* report_;
  const CheckedDriver driver_;
  unsigned multiprocessors_;
  std::optional<Pace> pace_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Work>> works_;
};

Neighbour* the_neighbour = nullptr;

// The programs that the process starts have the library too. The one that finds the file and can
// make the report is the neighbour.
void wait_and_begin(const std::string& names, const std::string& file, const std::string& report) {
  while (access(file.c_str(), F_OK) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::FILE* const lines = std::fopen(report.c_str(), "wx");
  if (lines == nullptr) return;
  try {
    auto neighbour = std::make_unique<Neighbour>(lines);
    neighbour->begin(names);
    the_neighbour = neighbour.release();
    // Late enough to come before what the driver has given to atexit.
    std::atexit([] { the_neighbour->end(); });
  } catch (const std::exception& error) {
    std::fprintf(lines, "start 0 0 %s\n", error.what());
    std::fclose(lines);
  }
}

__attribute__((constructor)) void come_into_the_process() {
  const std::string names = variable("CTXB_LOADS"), file = variable("CTXB_LOADS_BEGIN"),
                    report = variable("CTXB_LOADS_DONE");
  if (names.empty()) return;
  std::thread([=] { wait_and_begin(names, file, report); }).detach();
}

}  // namespace
}  // namespace ctxbroker::bench
