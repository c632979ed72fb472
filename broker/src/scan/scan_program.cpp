// SPDX-License-Identifier: Apache-2.0
// The scanning program: it examines libraries for a host, writes manifests, and shows people what
// is in a library.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "ctxbroker/scan.hpp"
#include "ctxbroker/version.hpp"
#include "observe/standard_output.hpp"
#include "observe/whole_file.hpp"
#include "plugin/build_id.hpp"
#include "plugin/description_json.hpp"
#include "scan/examine.hpp"
#include "scan/protocol.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker {
namespace detail {
namespace {

constexpr const char* usage =
    "Loads plug-in libraries in processes of their own and says what is in them.\n"
    "\n"
    "  ctxb-scan [--deadline MS] FILE...             prints the plug-ins as JSON\n"
    "  ctxb-scan [--deadline MS] --manifest FILE...  writes the manifest beside each library\n"
    "  ctxb-scan --version\n"
    "\n"
    "Loading a library may take MS milliseconds, by default 10000. The exit status is 0 when all\n"
    "libraries could be loaded, 1 when one could not or a result could not be written, and 2 for\n"
    "a wrong command line.\n";

// ---- For a host ----------------------------------------------------------------------------

void send_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::send(STDOUT_FILENO, text.data(), text.size(), MSG_NOSIGNAL);
    if (done <= 0) ::_exit(1);  // nobody listens any more
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

int serve() {
  become_examiner();
  send_all(ready_line());
  std::string received;
  std::array<char, 4096> piece{};
  for (;;) {
    const std::size_t end = received.find('\n');
    if (end == std::string::npos) {
      const ssize_t got = ::read(STDOUT_FILENO, piece.data(), piece.size());
      if (got <= 0) return 0;
      received.append(piece.data(), static_cast<std::size_t>(got));
      continue;
    }
    const std::optional<ScanRequest> request = parse_request(received.substr(0, end));
    received.erase(0, end + 1);
    if (!request) return 2;
    send_all(reply_line(request->file, examine(request->file, request->deadline, STDOUT_FILENO)));
  }
}

// ---- For people and for builds -------------------------------------------------------------

struct Task {
  bool manifest = false;
  std::chrono::milliseconds deadline{10000};
  std::vector<std::filesystem::path> files;
};

std::optional<Task> read_arguments(const std::vector<std::string>& arguments) {
  Task task;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    const std::string& word = arguments[index];
    if (word == "--manifest") {
      task.manifest = true;
    } else if (word == "--deadline" && index + 1 < arguments.size()) {
      const std::string& number = arguments[++index];
      if (number.empty() || number.size() > 8 ||
          number.find_first_not_of("0123456789") != std::string::npos || std::stol(number) == 0) {
        return std::nullopt;
      }
      task.deadline = std::chrono::milliseconds(std::stol(number));
    } else if (word.empty() || word[0] == '-') {
      return std::nullopt;
    } else {
      task.files.emplace_back(word);
    }
  }
  return task.files.empty() ? std::nullopt : std::optional(task);
}

void complain(const std::string& text) {
  std::fprintf(stderr, "ctxb-scan: %s\n", printable(text).c_str());
}

// Removes a manifest of another build, which no host believes. One of this build stays: it says
// what is in this very library, whatever kept this scan from saying it again.
void remove_stale_manifest(const std::filesystem::path& library) {
  const bool is_stale = read_manifest(library).stale && !build_id(library).empty();
  std::error_code none;
  if (is_stale) std::filesystem::remove(manifest_path(library), none);
}

// A link can lead from the manifest's name to a library.
void check_manifest(const Task& task, const std::filesystem::path& library) {
  const std::filesystem::path manifest = manifest_path(library);
  for (const std::filesystem::path& read : task.files) {
    std::error_code none;
    if (!std::filesystem::equivalent(manifest, read, none)) continue;
    throw Error(ErrorKind::output_file, "manifest \"" + manifest.string() +
                                            "\" would replace the library \"" + read.string() +
                                            "\"; remove the link");
  }
}

bool work_on(const Task& task, const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::path library = std::filesystem::absolute(file, error);
  const Examination found = examine(library, task.deadline, -1);
  if (found.outcome != Outcome::described) {
    if (task.manifest) remove_stale_manifest(library);
    complain(found.outcome == Outcome::could_not_load
                 ? found.text
                 : "\"" + library.string() + "\": " + found.text);
    return false;
  }
  try {
    const json::Json parsed = json::parse(found.text, "the answer");
    const auto plugins = read_plugins(parsed, {"the answer", "$"}, library.string());
    if (!task.manifest) {
      std::fputs((to_json(plugins).dump(2) + "\n").c_str(), stdout);
      return true;
    }
    check_manifest(task, library);
    const std::string text = to_json(make_manifest(library, plugins));
    write_own_file(manifest_path(library), [&](const auto& take) { take(text); });
    return true;
  } catch (const std::exception& failed) {
    if (task.manifest) remove_stale_manifest(library);
    complain(failed.what());
    return false;
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{serve_word}) return serve();
  if (arguments == std::vector<std::string>{"--version"}) {
    std::printf("ctxb-scan %s\n", version());
    return 0;
  }
  if (arguments == std::vector<std::string>{"--help"}) {
    std::fputs(usage, stdout);
    return 0;
  }
  const std::optional<Task> task = read_arguments(arguments);
  if (!task) {
    std::fputs(usage, stderr);
    return 2;
  }
  become_examiner();
  bool all = true;
  for (const auto& file : task->files) all = work_on(*task, file) && all;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace detail

int run_scan_program(const std::vector<std::string>& arguments) noexcept {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit is to fail, so that this can be said
  try {
    const int status = detail::run(arguments);
    if (detail::all_is_printed()) return status;
    detail::complain(detail::not_printed);
    return 1;
  } catch (const std::exception& error) {
    detail::complain(error.what());
    return 1;
  }
}

}  // namespace ctxbroker
