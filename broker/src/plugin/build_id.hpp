// SPDX-License-Identifier: Apache-2.0
// Tells one build of a library from another. The operating system's part of manifests.
#pragma once

#include <filesystem>
#include <string>

namespace ctxbroker::detail {

// Returns the build-id that the linker wrote into the library, in hexadecimal. It stays the same
// when the file is copied, stripped or given another run path. Empty: the file has none, or is no
// 64-bit ELF file. Nothing is loaded, and at most some kilobytes are read.
std::string build_id(const std::filesystem::path& library);

}  // namespace ctxbroker::detail
