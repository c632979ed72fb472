// SPDX-License-Identifier: Apache-2.0
// The driver of the tests, as if its devices could not share memory by file descriptor. Needs
// test_plugins/ beside bin/.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/child_process.hpp"

namespace ctxbroker {

// For run_child. `refused` is a function that the driver does not support.
inline Environment no_descriptors(const std::string& driver, const std::string& refused = "") {
  const auto folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "test_plugins";
  const char* const others = std::getenv("LD_LIBRARY_PATH");
  return {
      {"LD_LIBRARY_PATH", (folder / "no_descriptors").string() + (others != nullptr ? ":" : "") +
                              (others != nullptr ? others : "")},
      {"CTXBROKER_DRIVER", "nvidia"},
      {"CTXBROKER_TEST_DRIVER", driver},
      {"CTXBROKER_TEST_REFUSED", refused}};
}

// Whether this is no such child.
inline bool has_descriptors() {
  return std::getenv("CTXBROKER_TEST_DRIVER") == nullptr;
}

}  // namespace ctxbroker
