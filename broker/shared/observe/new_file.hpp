// SPDX-License-Identifier: Apache-2.0
// Makes temporary files beside the file that they are to replace.
#pragma once

#include <fcntl.h>
#include <sys/random.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ctxbroker::detail {

// Creates a file and opens it for reading and writing, as mkostemps does: `name` ends with XXXXXX
// and `suffix` more characters, and the six get other letters. Its mode is what the umask leaves of
// `mode`. The kernel applies the umask: reading it would change it for all threads meanwhile.
// Returns the descriptor, or -1 with errno. Any thread; async-signal-safe.
inline int create_new_file(char* name, std::size_t length, std::size_t suffix,
                           mode_t mode) noexcept {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr std::size_t changed = 6;
  constexpr int most_tries = 100;
  if (length < suffix + changed) return errno = EINVAL, -1;
  char* const first = name + length - suffix - changed;
  for (int attempt = 0; attempt < most_tries; ++attempt) {
    std::uint64_t number = 0;
    if (::getrandom(&number, sizeof number, 0) != sizeof number) return -1;
    for (std::size_t i = 0; i < changed; ++i, number /= letters.size()) {
      first[i] = letters[number % letters.size()];
    }
    const int file = ::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

}  // namespace ctxbroker::detail
