// A file that is there completely or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace ctxbroker::detail {

// Calls `produce` with a function that takes the content piece by piece, writes it beside `path`
// and renames it. Throws Error (output_file) with the path and the system's words, and what
// `produce` throws; `path` is then as it was and nothing lies beside it.
void write_whole_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce);

}  // namespace ctxbroker::detail
