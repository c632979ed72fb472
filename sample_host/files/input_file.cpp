// SPDX-License-Identifier: Apache-2.0
#include "files/input_file.hpp"
#include "files/start.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ctxbroker::sample_host {

Failure input_failure(const std::filesystem::path& path, const std::string& why) {
  return {ExitCode::input, "input file \"" + path.string() + "\": " + why};
}

Failure open_failure(const std::filesystem::path& path, int error) {
  return input_failure(path, "cannot be opened: " + errno_text(error) +
                                 "; name a file that is there and may be read");
}

std::uint64_t check_input_file(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) { return input_failure(path, why); };
  // O_NONBLOCK: a FIFO without a writer must be refused, not waited for.
  const int file = ::open(from_start(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw open_failure(path, errno);
  struct stat status = {};
  const int result = ::fstat(file, &status);
  const int error = errno;
  ::close(file);
  if (result != 0) throw open_failure(path, error);
  if (S_ISDIR(status.st_mode)) throw fail("is a folder; name a file in it");
  if (!S_ISREG(status.st_mode)) throw fail("is not a regular file; copy the data into one first");
  if (status.st_size == 0) throw fail("is empty (0 bytes); copy or save it again");
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace ctxbroker::sample_host
