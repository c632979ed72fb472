// SPDX-License-Identifier: Apache-2.0
// The working folder and the umask that the program was started with. Plug-ins may change both,
// for the whole process. The user's paths and permissions are meant as they were at the start.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace ctxbroker::sample_host {

// Call it before plug-ins are loaded, and before there are other threads.
void remember_start();

// The path in the folder of the start. An absolute path stays as it is.
std::filesystem::path from_start(const std::filesystem::path& path);

// Gives a file that has just been created the permissions that the first umask would have left of
// 0666, unless the umask is still the same. Returns false, with errno, if that fails.
bool give_start_permissions(int file) noexcept;

}  // namespace ctxbroker::sample_host
