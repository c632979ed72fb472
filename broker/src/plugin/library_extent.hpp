// Is a shared library's file complete? The loader maps what the headers promise without asking, and
// the process ends with a bus error when a truncated file does not hold it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ctxbroker::detail {

// What is missing, in words, or nothing. Files that are no 64-bit ELF are left to the loader, which
// refuses them itself.
std::optional<std::string> find_truncation(const std::filesystem::path& library);

}  // namespace ctxbroker::detail
