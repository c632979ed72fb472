// SPDX-License-Identifier: Apache-2.0
// How files are written.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace ctxbroker::detail {

// Writes a file completely or not at all. Calls `produce` with a function that takes the content
// piece by piece. The content goes to a temporary file beside `path`, which is renamed at the end.
// Throws Error (output_file) with the path and the system's message, and what `produce` throws;
// then `path` is unchanged and the temporary file is gone. A new file gets the mode that the umask
// leaves; one that is replaced keeps its mode. A link keeps pointing to the file that
// is written, which need not be there yet. Links that lead in a circle are an error. What is there
// and is no regular file (a device, a pipe) is written to directly. A pipe that nobody opens for
// reading within a second is an error.
void write_whole_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce);

// The same for a file of the broker's own. Refuses a path that leads to anything but a regular
// file.
void write_own_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce);

}  // namespace ctxbroker::detail
