// SPDX-License-Identifier: Apache-2.0
// A program that runs beside this one and answers line by line.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "process/maker.hpp"

namespace ctxbroker::detail {

// A status of waitpid in words: "signal 9 (Killed)", "status 1".
std::string in_words(int status);

// The program's standard output and error are one socket, from which it also reads. So a write to a
// program that has ended is an error and no signal.
class ChildProgram {
 public:
  // Throws std::system_error when the program cannot be started.
  ChildProgram(const std::filesystem::path& program, const std::vector<std::string>& arguments);
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;
  // Kills it and its process group. Gives up after a second when even that does not end it.
  ~ChildProgram();

  int socket() const noexcept { return socket_; }  // for poll

  // Sends a line without waiting. False: the program has ended, or does not read.
  bool send(std::string_view line) noexcept;

  // Takes what has arrived, without waiting. False: the program has closed its end, or what it
  // wrote since its last whole line is longer than `most` bytes.
  bool receive(std::size_t most);
  // The next whole line that has arrived.
  std::optional<std::string> take_line();
  // What has arrived behind the last whole line.
  const std::string& rest() const noexcept { return received_; }

  // Kills it if it has not ended by itself in 100 ms, and returns how it ended, in words.
  std::string end() noexcept;

 private:
  const Maker maker_;  // who may end the program
  int socket_ = -1;
  pid_t child_ = -1;
  std::string received_;
};

}  // namespace ctxbroker::detail
