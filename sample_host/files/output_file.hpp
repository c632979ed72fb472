// SPDX-License-Identifier: Apache-2.0
// An output that is there completely or not at all: it is written beside its place and renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "exit_code.hpp"

namespace ctxbroker::sample_host {

// What to throw when the output `path` cannot be written.
Failure output_failure(const std::filesystem::path& path, const std::string& why);

// Writes NAME.XXXXXX.part in the folder of NAME. The destructor removes it unless commit has
// succeeded; a signal that ends the process removes it too (see remove_on_signals). An existing
// file at the destination stays as it is until commit, so it may be the run's own input.
// One thread at a time.
class OutputFile {
 public:
  // Throws Failure (output): the folder is missing or not writable, the destination is a folder or
  // a device.
  explicit OutputFile(const std::filesystem::path& destination);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // The path as it was given.
  const std::filesystem::path& path() const noexcept { return path_; }

  // Writes at the current position. False: it failed and error() says why; everything later fails
  // as well, so the caller may ask only at the end.
  bool write(const void* data, std::size_t bytes) noexcept;
  // Reads back at the current position (formats that complete their header at the end do). Bytes
  // read, 0 at the end or on an error.
  std::size_t read(void* data, std::size_t bytes) noexcept;
  // Moves the position as lseek does; the new position or -1.
  std::int64_t seek(std::int64_t offset, int whence) noexcept;
  std::int64_t size() const noexcept;  // bytes, or -1

  int error() const noexcept { return error_; }  // the first errno, or 0
  // Throws Failure (output) when a write has failed.
  void check() const;

  // Makes the file durable and puts it in its place. Throws Failure (output); the destination is
  // then what it was.
  void commit();

 private:
  void remove_part() noexcept;

  std::filesystem::path path_;         // as given
  std::filesystem::path destination_;  // with a symbolic link followed
  std::string part_;
  int file_ = -1;
  int slot_ = -1;
  int error_ = 0;
};

// Lets the signals that end a process remove unfinished outputs first, and turns "file too large"
// into an error of write. Call once, before the first OutputFile.
void remove_on_signals();

}  // namespace ctxbroker::sample_host
