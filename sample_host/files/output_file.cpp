// SPDX-License-Identifier: Apache-2.0
#include "files/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "files/cleanup.hpp"
#include "files/start.hpp"
#include "observe/behind_links.hpp"

namespace ctxbroker::sample_host {

namespace {

// Permissions of the file that is being replaced, if there is one.
std::optional<mode_t> permissions_of(const std::filesystem::path& destination) {
  struct stat status = {};
  if (::stat(destination.c_str(), &status) != 0) return std::nullopt;
  return status.st_mode & 07777;
}

Failure write_failure(const std::filesystem::path& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return output_failure(path, "cannot be written: " + errno_text(error) +
                                  (is_full ? "; make room there, or name another file"
                                           : "; name a file in a folder that may be written"));
}

// Returns the folder as the user has written it, unless the file is a link to another folder.
std::string shown(const std::filesystem::path& given, const std::filesystem::path& folder) {
  if (from_start(given).parent_path() != folder) return folder.string();
  return given.has_parent_path() ? given.parent_path().string() : ".";
}

// Follows symbolic links, so that the link stays and its target is replaced.
std::filesystem::path follow(const std::filesystem::path& given) {
  std::error_code error;
  std::filesystem::path target = detail::behind_links(from_start(given), error);
  if (!error) return target;
  throw output_failure(given, "is a link that leads to no file: " + error.message() +
                                  "; remove it, or name another file");
}

void check_destination(const std::filesystem::path& given,
                       const std::filesystem::path& destination) {
  if (!destination.has_filename() || given.filename() == "." || given.filename() == "..") {
    throw output_failure(given, "names a folder; write the name of a file in it");
  }
  const std::filesystem::path folder = destination.parent_path();
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) {
    throw output_failure(given, "its folder \"" + shown(given, folder) + "\" cannot be used: " +
                                    errno_text(errno) + "; create it or name another");
  }
  if (!S_ISDIR(status.st_mode)) {
    throw output_failure(given, "\"" + shown(given, folder) + "\" is not a folder; name another");
  }
  if (::stat(destination.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode))
    throw output_failure(given, "is a folder; write the name of a file in it");
  if (!S_ISREG(status.st_mode)) throw output_failure(given, "is not a regular file; name another");
}

}  // namespace

Failure output_failure(const std::filesystem::path& path, const std::string& why) {
  return {ExitCode::output, "output file \"" + path.string() + "\": " + why};
}

OutputFile::OutputFile(const std::filesystem::path& destination)
    : path_(destination), destination_(follow(destination)) {
  check_destination(path_, destination_);
  part_ = destination_.string() + ".XXXXXX.part";
  // The slot is filled before the file is there: no signal can fall between the two.
  slot_ = cleanup::reserve();
  if (slot_ < 0) throw output_failure(path_, "too many outputs at once; use fewer --jobs");
  const std::optional<mode_t> mode = permissions_of(destination_);
  file_ = cleanup::create(slot_, part_, 5, mode.value_or(0666));
  if (file_ < 0) {
    const int error = errno;
    cleanup::release(slot_);
    throw write_failure(path_, error);
  }
  const bool is_set = mode ? ::fchmod(file_, *mode) == 0 : give_start_permissions(file_);
  if (!is_set) error_ = errno;
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
  remove_part();
}

void OutputFile::remove_part() noexcept {
  if (slot_ < 0) return;
  ::unlink(part_.c_str());
  cleanup::release(slot_);
  slot_ = -1;
}

bool OutputFile::write(const void* data, std::size_t bytes) noexcept {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0 && error_ == 0) {
    const ssize_t done = ::write(file_, from, bytes);
    if (done > 0) {
      from += done;
      bytes -= static_cast<std::size_t>(done);
    } else if (done == 0) {
      error_ = EIO;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  return error_ == 0;
}

std::size_t OutputFile::read(void* data, std::size_t bytes) noexcept {
  char* to = static_cast<char*>(data);
  std::size_t total = 0;
  while (total < bytes) {
    const ssize_t done = ::read(file_, to + total, bytes - total);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;
    total += static_cast<std::size_t>(done);
  }
  return total;
}

std::int64_t OutputFile::seek(std::int64_t offset, int whence) noexcept {
  const off_t position = ::lseek(file_, offset, whence);
  if (position < 0 && error_ == 0) error_ = errno;
  return position;
}

std::int64_t OutputFile::size() const noexcept {
  struct stat status = {};
  return ::fstat(file_, &status) == 0 ? status.st_size : -1;
}

void OutputFile::check() const {
  if (error_ != 0) throw write_failure(path_, error_);
}

void OutputFile::commit() {
  if (error_ == 0 && ::fsync(file_) != 0) error_ = errno;
  const int closed = ::close(file_);
  file_ = -1;
  if (error_ == 0 && closed != 0) error_ = errno;
  check();
  if (::rename(part_.c_str(), destination_.c_str()) != 0) {
    const int error = errno;
    cleanup::wait_if_ending();
    throw output_failure(
        path_, "cannot be moved to its place: " + errno_text(error) + "; name another file");
  }
  cleanup::release(slot_);
  slot_ = -1;
}

void remove_on_signals() {
  cleanup::install();
}

}  // namespace ctxbroker::sample_host
