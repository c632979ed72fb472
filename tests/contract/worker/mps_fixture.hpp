// SPDX-License-Identifier: Apache-2.0
// A control program that behaves on the command line as nvidia-cuda-mps-control does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/mps_server.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker {

// How a fake can differ, in lines of its shell script. $p is the folder for sockets, $l the one for
// logs, and $f that of the program.
struct FakeMpsWays {
  std::string at_start{":"};                 // before the daemon takes commands
  std::string at_question{"echo 100.0"};     // when it is asked something
  std::string at_quit{"touch \"$p/quit\""};  // when it is told to end
};

// A folder with the control program. Its daemon starts a server in a session of its own, as the
// worst case of what could be left.
class FakeMps {
 public:
  explicit FakeMps(const FakeMpsWays& ways = {});
  FakeMps(const FakeMps&) = delete;
  FakeMps& operator=(const FakeMps&) = delete;
  ~FakeMps();

  const std::filesystem::path& folder() const { return temporary_.path(); }
  std::filesystem::path program() const { return temporary_ / "nvidia-cuda-mps-control"; }
  MpsServerOptions options() const;
  // The daemons and servers that have started, those that live, and the folders that are there.
  std::vector<int> started() const;
  std::vector<int> alive() const;
  std::size_t folders() const;
  // What the last daemon got: NAME=VALUE lines.
  std::string environment() const;

 private:
  std::filesystem::path servers() const { return temporary_ / "s"; }
  TempFolder temporary_;
};

}  // namespace ctxbroker
