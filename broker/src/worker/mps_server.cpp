// SPDX-License-Identifier: Apache-2.0
// The host's side of an MPS server. The program ctxbroker-mps keeps the server's processes.
#include "ctxbroker/mps_server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "ctxbroker/error.hpp"
#include "plugin/foreign_text.hpp"
#include "process/child_program.hpp"
#include "process/environment.hpp"
#include "process/maker.hpp"
#include "process/own_files.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {
namespace detail {
namespace {

using std::chrono::milliseconds;

// A socket's path has at most 107 bytes, and the server's names in this folder are shorter than 24.
constexpr std::size_t longest_pipe_folder = 107 - 24;
constexpr std::string_view pipe_variable = "CUDA_MPS_PIPE_DIRECTORY=";
// ctxbroker-mps answers after the start's timeout, and ends in less than that after it was asked
// to.
constexpr milliseconds keeper_patience{10'000};

bool is_program(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

std::filesystem::path find_mps_program(const std::filesystem::path& program) {
  if (program.has_parent_path()) {
    if (is_program(program)) return std::filesystem::absolute(program);
  } else if (const auto path = kept_variable("PATH")) {
    std::istringstream folders(*path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const auto file = std::filesystem::path(folder) / program;
      if (is_program(file)) return std::filesystem::absolute(file);
    }
  }
  throw Error(ErrorKind::plugin_not_found,
              "an MPS server cannot be started: there is no program \"" + program.string() +
                  (program.has_parent_path() ? "\"" : "\" in PATH") +
                  "; NVIDIA's driver has it, or name it in MpsServerOptions::program");
}

// The last lines of what the server has written, for an error's text.
std::string end_of_mps_logs(const std::filesystem::path& folder) {
  constexpr std::size_t most = 1000;
  std::string all;
  for (const char* const name : {"output", "control.log", "server.log"}) {
    std::ifstream file(folder / name, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (text.size() > most) {
      const std::size_t line = text.find('\n', text.size() - most);
      text.erase(0, line == std::string::npos ? text.size() - most : line + 1);
    }
    all += text;
  }
  while (!all.empty() && all.back() == '\n') all.pop_back();
  return all.empty() ? "it has written nothing"
                     : "its log ends with:\n" + take_message(all.c_str());
}

}  // namespace

// A folder that only the user can open, until it ends.
class MpsFolder {
 public:
  explicit MpsFolder(const std::filesystem::path& parent) try
      : path_((std::filesystem::absolute(parent.empty() ? temporary_folder() : parent) /
               "ctxbroker-mps-XXXXXX")
                  .string()) {
    if (pipes().string().size() > longest_pipe_folder) {
      throw Error(ErrorKind::invalid_argument,
                  "an MPS server cannot be started in \"" + path_ +
                      "\": the path is too long for sockets; name a shorter one in "
                      "MpsServerOptions::folder, or set TMPDIR to one");
    }
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), path_);
    }
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::output_file,
                "an MPS server cannot be started: it cannot have a folder: " +
                    std::string(error.what()) + "; name another one in MpsServerOptions::folder");
  }
  MpsFolder(const MpsFolder&) = delete;
  MpsFolder& operator=(const MpsFolder&) = delete;
  ~MpsFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }
  std::filesystem::path pipes() const { return std::filesystem::path(path_) / "pipe"; }
  std::filesystem::path logs() const { return std::filesystem::path(path_) / "log"; }

 private:
  std::string path_;
};

// The program ctxbroker-mps, which runs the server.
class MpsKeeper {
 public:
  MpsKeeper(const std::filesystem::path& program, const MpsServerOptions& options)
      : folder_(options.folder),
        program_(beside_this_library("ctxbroker/ctxbroker-mps"),
                 {program.string(), folder_.path(), std::to_string(options.start_timeout.count())},
                 environment()) {
    const std::string answer = first_line(Clock::now() + options.start_timeout + keeper_patience);
    if (answer == "ready") return;
    const std::string logs = end_of_mps_logs(folder_.logs());
    end();
    throw Error(ErrorKind::plugin_load, "the MPS server \"" + program.string() +
                                            "\" did not start: " + take_message(answer.c_str()) +
                                            "; " + logs);
  }
  ~MpsKeeper() { end(); }

  // False: a forked process has this copy, and leaves the server alone.
  bool is_in_its_process() const noexcept { return maker_.is_this_process(); }
  std::string variable() const { return std::string(pipe_variable) + folder_.pipes().string(); }

 private:
  // The devices keep their numbers: the clients choose, as they do without a server.
  std::vector<std::string> environment() const {
    std::vector<std::string> all =
        worker_environment({variable(), "CUDA_MPS_LOG_DIRECTORY=" + folder_.logs().string()});
    std::erase_if(
        all, [](const std::string& one) { return one.rfind("CUDA_VISIBLE_DEVICES=", 0) == 0; });
    return all;
  }

  std::string first_line(Clock::time_point deadline) {
    constexpr std::size_t most = 4096;
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return "ctxbroker-mps does not answer";
      pollfd waiting{program_.socket(), POLLIN, 0};
      if (::poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
      const bool open = program_.receive(most);
      if (const auto line = program_.take_line()) return *line;
      if (!open) return "ctxbroker-mps has ended: " + program_.rest();
    }
  }

  // The daemon is in its process group, which ends with it even if it was killed.
  void end() noexcept {
    ::shutdown(program_.socket(), SHUT_WR);
    program_.end(keeper_patience);
  }

  const Maker maker_;
  MpsFolder folder_;
  ChildProgram program_;
};

}  // namespace detail

MpsServer::MpsServer(const MpsServerOptions& options) {
  if (options.start_timeout.count() <= 0 || options.start_timeout > std::chrono::hours(24)) {
    throw Error(ErrorKind::invalid_argument,
                "MpsServerOptions::start_timeout must be positive and at most a day");
  }
  const auto program = detail::find_mps_program(options.program);
  try {
    keeper_ = std::make_unique<detail::MpsKeeper>(program, options);
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::plugin_load,
                "an MPS server cannot be started: " + std::string(error.what()) +
                    "; is ctxbroker installed completely?");
  }
}

MpsServer::MpsServer(MpsServer&&) noexcept = default;
MpsServer& MpsServer::operator=(MpsServer&& other) noexcept {
  const MpsServer old(std::move(*this));
  keeper_ = std::move(other.keeper_);
  return *this;
}
MpsServer::~MpsServer() {
  if (keeper_ != nullptr && !keeper_->is_in_its_process()) detail::keep_for_ever(keeper_.release());
}

std::string MpsServer::variable() const {
  return keeper_->variable();
}

}  // namespace ctxbroker
