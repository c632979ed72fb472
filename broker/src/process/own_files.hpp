// SPDX-License-Identifier: Apache-2.0
// Finds the files that come with this library.
#pragma once

#include <filesystem>

namespace ctxbroker::detail {

// Looks for a file of this project beside the library that holds this code, then in ../lib, ../bin
// and ../../bin. Returns the first that exists, or the first path when none does.
std::filesystem::path beside_this_library(const char* name);

}  // namespace ctxbroker::detail
