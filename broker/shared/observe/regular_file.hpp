// SPDX-License-Identifier: Apache-2.0
// Reads files whose names come from somebody else: a plug-in, a policy, the user.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace ctxbroker::detail {

struct FileReading {
  std::string bytes;
  std::string trouble;  // why they could not be read: "is a folder, not a file". Empty: all is well
  int error = 0;        // errno of a system call that failed
  bool is_too_large = false;
};

// Reads a whole file of at most `most` bytes. Reads nothing but regular files, and does not wait:
// opening a pipe could take for ever, and a device may have no end. Throws std::bad_alloc.
inline FileReading read_regular_file(const std::filesystem::path& path, std::size_t most) {
  FileReading reading;
  const auto fail = [&](const std::string& why) {
    reading.bytes.clear();
    reading.trouble = why;
    return reading;
  };
  const auto fail_with = [&](int error) {
    reading.error = error;
    return fail(error == ENOENT ? "there is no such file"
                                : "cannot be read: " + std::generic_category().message(error));
  };
  struct Opened {
    int file;
    ~Opened() {
      if (file >= 0) ::close(file);
    }
  };
  const Opened opened{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat status {};
  if (opened.file < 0 || ::fstat(opened.file, &status) != 0) return fail_with(errno);
  if (S_ISDIR(status.st_mode)) return fail("is a folder, not a file");
  if (!S_ISREG(status.st_mode)) {
    return fail("is not a regular file; copy its content into one");
  }
  const auto too_large = [&] {
    reading.is_too_large = true;
    return fail("is larger than " + std::to_string(most) + " bytes");
  };
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > most) return too_large();
  // The file may grow or shrink meanwhile, and those of /proc have no size.
  constexpr std::size_t least_piece = std::size_t{1} << 16;
  std::size_t done = 0;
  for (std::size_t wanted = static_cast<std::size_t>(size) + 1;; wanted = least_piece) {
    reading.bytes.resize(done + std::min(wanted, most + 1 - done));
    const ssize_t got =
        ::read(opened.file, reading.bytes.data() + done, reading.bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_with(errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    if (done > most) return too_large();
  }
  reading.bytes.resize(done);
  return reading;
}

}  // namespace ctxbroker::detail
