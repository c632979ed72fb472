// SPDX-License-Identifier: Apache-2.0
// A library that the test opens itself, as a program does that knows nothing of tenants.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>

#include "attacks/attacks.h"
#include "support/test_library.hpp"

namespace ctxbroker {

// Another file each time, so that it is another library.
class Copy {
 public:
  // `below` is the folder of the copy in a folder of its own.
  explicit Copy(const char* library, const std::filesystem::path& below = {})
      : root_(folder()), path_(root_ / below / (std::string(library) + ".so")) {
    std::filesystem::create_directories(path_.parent_path());
    std::filesystem::copy_file(test_library(library), path_);
    path_ = std::filesystem::canonical(path_);
  }
  ~Copy() { std::filesystem::remove_all(root_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  static std::filesystem::path folder() {
    static std::atomic<int> number{0};
    return std::filesystem::temp_directory_path() /
           ("ctxb_before_" + std::to_string(getpid()) + "_" + std::to_string(++number));
  }
  std::filesystem::path root_, path_;
};

class HostsLibrary {
 public:
  explicit HostsLibrary(const std::filesystem::path& path)
      : library_(dlopen(path.c_str(), RTLD_NOW)) {
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~HostsLibrary() { dlclose(library_); }
  HostsLibrary(const HostsLibrary&) = delete;
  HostsLibrary& operator=(const HostsLibrary&) = delete;
  // These run on a new thread of the test's, where nothing is current.
  unsigned long long allocate(std::size_t bytes) const {
    unsigned long long address = 0;
    std::thread([&] { address = function<allocate_function>(ALLOCATE)(bytes); }).join();
    return address;
  }
  int attack(const char* name, const AttackTarget& target) const {
    int status = 0;
    std::thread([&] { status = function<attack_function>(ATTACK)(name, &target); }).join();
    return status;
  }
  unsigned long long allocate_on_own_thread(std::size_t bytes) const {
    return function<allocate_function>(ALLOCATE_ON_OWN_THREAD)(bytes);
  }

 private:
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace ctxbroker
