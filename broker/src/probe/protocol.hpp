// SPDX-License-Identifier: Apache-2.0
// How the broker talks to a probing process: the question goes as command-line words, and the
// answers come back as marked lines on standard output, among anything else that the process
// prints.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/probe.hpp"
#include "process/process.hpp"

namespace ctxbroker::detail {

struct ProbeWords {
  std::string probe;
  DriverChoice driver = DriverChoice::automatic;
  int device = 0;
  std::filesystem::path software_device;  // empty means the one beside the broker's library
};

std::vector<std::string> write_words(const ProbeWords& words);
ProbeWords read_words(const std::vector<std::string>& words);  // throws Error (invalid_argument)

// Called in the probing process. `name` is the name of a question.
void tell_value(std::string_view name, double value);
void tell_missing(std::string_view name, std::string_view reason);
void tell_failure(std::string_view reason);  // the whole probe failed

// Copies the answers of the process `probe` into `answers`. A question that the process left open
// gets a reason from how the process ended.
void take_answers(std::string_view probe, const ProcessExit& end,
                  std::vector<ProbeAnswer>& answers);

}  // namespace ctxbroker::detail
