// SPDX-License-Identifier: Apache-2.0
// Checks that the driver answers at all. A driver whose kernel module is in a bad state may never
// return from its first call.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ctxbroker::sample_host {

// The first word of the command line of the process that check_driver starts.
inline constexpr const char* driver_check_command = "check-driver";

// Starts the program, which opens the driver and ends. Returns why this process had better not open
// the driver: it did not return within the deadline, or a signal ended the program. Empty: it
// answers, be it with an error. Throws std::system_error when the program cannot be started.
std::string check_driver(const std::filesystem::path& program,
                         const std::vector<std::string>& arguments,
                         std::chrono::milliseconds deadline);

// Does the work of that process. `words`: what follows driver_check_command.
int run_driver_check(const std::vector<std::string>& words) noexcept;

}  // namespace ctxbroker::sample_host
