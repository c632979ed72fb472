// SPDX-License-Identifier: Apache-2.0
#include "support/held_process.hpp"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace ctxbroker {

HeldProcess::HeldProcess(int process) : process_(process) {
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    const pid_t thread = std::stoi(task.path().filename());
    if (thread != process) thread_ = thread;
  }
  EXPECT_NE(thread_, 0);
  EXPECT_EQ(ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr), 0) << std::strerror(errno);
}

// The seized thread must not get the signal, because its tracer would have to pass it on.
void HeldProcess::stop() const {
  syscall(SYS_tgkill, process_, process_, SIGSTOP);
  std::string text;
  for (int i = 0; i < 20'000 && text.find(") T ") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ifstream file("/proc/" + std::to_string(process_) + "/stat");
    std::getline(file, text);
  }
  EXPECT_NE(text.find(") T "), std::string::npos) << text;
}

void HeldProcess::release() {
  if (thread_ == 0) return;
  int status = 0;
  while (waitpid(thread_, &status, __WALL) == thread_ && WIFSTOPPED(status)) {
    ptrace(PTRACE_CONT, thread_, nullptr, nullptr);
  }
  thread_ = 0;
}

bool exists(int process) {
  return kill(process, 0) == 0;
}

bool goes(int process) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (exists(process) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return !exists(process);
}

}  // namespace ctxbroker
