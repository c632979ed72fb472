// SPDX-License-Identifier: Apache-2.0
#include "worker_fixture.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "support/child_process.hpp"

namespace ctxbroker {

std::filesystem::path worker_file(const std::string& name) {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return bin.parent_path() / "test_plugins" / "worker" / name;
}

std::string error_of(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_STREQ(to_string(error.kind()), to_string(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool can_give_up_other_processes() {
  if (sanitized) return false;  // a sanitizer starts a thread before the worker serves
  constexpr int landlock_create_ruleset = 444, ask_for_version = 1;
  return syscall(landlock_create_ruleset, nullptr, 0, ask_for_version) >= 6;
}

std::vector<int> numbers_after(const std::string& words, const std::string& text) {
  std::vector<int> numbers;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    numbers.push_back(std::atoi(text.c_str() + at + words.size()));
  }
  return numbers;
}

bool dies(int process, std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  for (;;) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    if (stat.empty() || stat.find(") Z") != std::string::npos) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void WorkerTest::TearDown() {
  if (!HasFailure()) return;
  for (const WorkerExit& end : ends()) std::cout << end.text << '\n' << end.output << '\n';
}

WorkerOptions WorkerTest::options(const std::string& name,
                                  const std::vector<std::string>& environment) {
  WorkerOptions made;
  made.name = name;
  made.module = worker_file("worker_module.so");
  made.crash_limit = 0;
  for (const auto& [variable, value] : signals_stay_signals) {
    made.environment.push_back(variable + "=" + value);
  }
  made.environment.emplace_back("LSAN_OPTIONS=detect_leaks=0");
  made.environment.insert(made.environment.end(), environment.begin(), environment.end());
  made.records = [this](const Record& record) {
    EXPECT_FALSE(record.tenant_name.empty()) << "whose record is it? " << record.text;
    const std::lock_guard lock(mutex_);
    records_.push_back(std::string(to_string(record.severity)) + " " + record.tenant_name + ": " +
                       record.text);
  };
  made.on_exit = [this](const WorkerExit& end) {
    const std::lock_guard lock(mutex_);
    ends_.push_back(end);
    changed_.notify_all();
  };
  return made;
}

std::string WorkerTest::say(Worker& worker, Act act, const std::string& text) {
  std::string answer(4096, '\0');
  answer.resize(worker.call({act, 0, text.data(), text.size()}, answer.data(), answer.size()));
  return answer;
}

std::vector<std::string> WorkerTest::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

std::vector<WorkerExit> WorkerTest::ends() const {
  const std::lock_guard lock(mutex_);
  return ends_;
}

WorkerExit WorkerTest::wait_for_end(std::size_t number) const {
  std::unique_lock lock(mutex_);
  const bool came =
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ends_.size() >= number; });
  EXPECT_TRUE(came) << "no end number " << number;
  return came ? ends_[number - 1] : WorkerExit{};
}

}  // namespace ctxbroker
