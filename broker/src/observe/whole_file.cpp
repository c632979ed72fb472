// SPDX-License-Identifier: Apache-2.0
#include "observe/whole_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "ctxbroker/error.hpp"
#include "observe/behind_links.hpp"
#include "observe/new_file.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorKind::output_file, "file \"" + path.string() + "\" cannot be written: " + why);
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  const std::string why = std::generic_category().message(error);
  rlimit limits{};
  if (error != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limits) != 0 ||
      limits.rlim_cur == RLIM_INFINITY) {
    fail(path, why);
  }
  fail(path,
       why + ": this process may write " + std::to_string(limits.rlim_cur) + " bytes (ulimit -f)");
}

bool is_device_or_pipe(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::status(path, none);
  return std::filesystem::exists(there) && !std::filesystem::is_regular_file(there);
}

// Opens what is no regular file. A pipe is waited for only shortly: it may have no reader, and a
// reader that is started at the same time may come a little later.
int open_device_or_pipe(const std::filesystem::path& path) {
  constexpr std::chrono::milliseconds patience{1000}, step{10};
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file >= 0) {
      const int flags = ::fcntl(file, F_GETFL);
      if (flags < 0 || ::fcntl(file, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        const int error = errno;
        ::close(file);
        fail(path, error);
      }
      return file;
    }
    const int error = errno;
    std::error_code none;
    if (error != ENXIO || !std::filesystem::is_fifo(path, none)) fail(path, error);
    if (std::chrono::steady_clock::now() >= end) {
      fail(path, "it is a pipe that nobody reads; start its reader first");
    }
    std::this_thread::sleep_for(step);
  }
}

// The temporary file. Its destructor removes the file unless put_in_place has renamed it.
class PartFile {
 public:
  PartFile(const std::filesystem::path& path, bool regular_only) : path_(path) {
    if (path_.empty()) fail(path_, "its name is empty");
    if (is_device_or_pipe(path_)) {
      if (regular_only) fail(path_, "it is not a regular file; remove it");
      file_ = open_device_or_pipe(path_);
      return;
    }
    // Absolute, because another thread may change the working folder before it is in place.
    std::error_code error;
    const std::filesystem::path target = behind_links(path_, error);
    if (error) fail(path_, error.value());
    path_ = std::filesystem::absolute(target);
    name_ = path_.string() + ".XXXXXX";
    // The file that it replaces may be for its owner alone.
    struct stat replaced {};
    const bool is_new = ::stat(path_.c_str(), &replaced) != 0;
    const mode_t mode = is_new ? 0666 : replaced.st_mode & 0777;
    file_ = create_new_file(name_.data(), name_.size(), 0, mode);
    if (file_ < 0) fail(path_, errno);
    if (!is_new) ::fchmod(file_, mode);
  }
  ~PartFile() {
    if (file_ >= 0) ::close(file_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(file_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail(path_, done < 0 ? errno : EIO);
      text.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  void put_in_place() {
    const int closed = ::close(file_);
    file_ = -1;
    if (closed != 0) fail(path_, errno);
    if (name_.empty()) return;
    if (::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, errno);
    name_.clear();
  }

 private:
  std::filesystem::path path_;
  std::string name_;  // empty: there is none, or it is in place
  int file_ = -1;
};

void write(PartFile&& part,
           const std::function<void(const std::function<void(std::string_view)>&)>& produce) {
  produce([&](std::string_view text) { part.write(text); });
  part.put_in_place();
}

}  // namespace

void write_whole_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce) {
  write(PartFile(path, false), produce);
}

void write_own_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce) {
  write(PartFile(path, true), produce);
}

}  // namespace ctxbroker::detail
