// SPDX-License-Identifier: Apache-2.0
// The checks that every input file passes before a format library sees it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "exit_code.hpp"

namespace ctxbroker::sample_host {

// What to throw when the input `path` is not as it should be.
Failure input_failure(const std::filesystem::path& path, const std::string& why);

// The same when it cannot be opened; `error` is an errno.
Failure open_failure(const std::filesystem::path& path, int error);

// Size in bytes of a file that exists, is a regular file, can be read and is not empty. Throws
// Failure (input) otherwise, saying which of these it is not.
std::uint64_t check_input_file(const std::filesystem::path& path);

}  // namespace ctxbroker::sample_host
