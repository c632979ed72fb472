// SPDX-License-Identifier: Apache-2.0
// One test of the validator on one plug-in: what it is given, and how it ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker::validate {

// One run of a test, with what the test is given.
struct Trial {
  std::filesystem::path file;  // the plug-in library
  std::string plugin{};        // its id; empty for a test of the file or of the library
  std::uint64_t seed = 1;
  std::optional<DriverChoice> driver{};             // unset: CTXBROKER_DRIVER decides
  nlohmann::json notes = nlohmann::json::object();  // for its parent, beside the outcome
};

// The plug-in breaks the test's rule. The text says how, for its author.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The rule has nothing to say about this plug-in or this machine. The text says why.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check_that(bool holds, const std::string& otherwise) {
  if (!holds) throw Failed(otherwise);
}

enum class Outcome { pass, fail, skip, crash, hang };
const char* to_string(Outcome outcome) noexcept;

// The subject of a test. A test of a file loads nothing.
enum class Scope { file, library, plugin };

// The step that has to work before a test can say anything. The tests that find out are its
// milestones.
enum class Needs { nothing, load, create, activate, process };

// The plug-ins for which a rule holds.
struct Applies {
  const char* text;                      // "image plug-ins"
  bool (*to)(const PluginDescription&);  // null: to all
};

struct Test {
  const char* id;  // "process.output_written"
  int strictness;  // 1 to 10
  Scope scope;
  Needs needs;
  Applies applies;
  const char* rule;  // one sentence
  void (*run)(Trial&);
};

}  // namespace ctxbroker::validate
