// SPDX-License-Identifier: Apache-2.0
// Workers with the test's module, and everything that they told.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker.hpp"
#include "module/acts.hpp"
#include "support/left.hpp"

namespace ctxbroker {

using test::Act;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

std::filesystem::path worker_file(const std::string& name);  // "worker_module.so"

// Runs `work`, which must throw an Error of this kind; returns its text.
std::string error_of(ErrorKind kind, const std::function<void()>& work);

// Returns whether workers can start without WorkerOptions::other_processes on this system and in
// this build.
bool can_give_up_other_processes();

// The numbers that follow these words.
std::vector<int> numbers_after(const std::string& words, const std::string& text);
// Returns whether the process has ended, or ends within this time. A process that was not waited
// for counts as ended.
bool dies(int process, std::chrono::milliseconds time = {});

class WorkerTest : public ::testing::Test {
 protected:
  // After a failure, prints how the processes ended, and what they wrote.
  void TearDown() override;
  // With these variables besides.
  WorkerOptions options(const std::string& name = "hostile",
                        const std::vector<std::string>& environment = {});

  // Sends the text and returns the answer.
  static std::string say(Worker& worker, Act act, const std::string& text = {});
  template <typename Answer = std::uint64_t, typename... Numbers>
  static Answer ask(Worker& worker, Act act, Numbers... numbers) {
    const std::vector<std::uint64_t> data{static_cast<std::uint64_t>(numbers)...};
    Answer answer{};
    worker.call({act, 0, data.data(), data.size() * sizeof(std::uint64_t)}, &answer, sizeof answer);
    return answer;
  }

  std::vector<std::string> records() const;
  std::vector<WorkerExit> ends() const;
  // Waits for the end with this number, at most 20 s.
  WorkerExit wait_for_end(std::size_t number = 1) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> records_;
  std::vector<WorkerExit> ends_;
};

}  // namespace ctxbroker
