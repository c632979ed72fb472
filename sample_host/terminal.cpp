// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace ctxbroker::sample_host {

bool stderr_is_terminal() noexcept {
  return ::isatty(STDERR_FILENO) == 1;
}

int stderr_columns() noexcept {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool use_colour() noexcept {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return stderr_is_terminal() && (no_colour == nullptr || *no_colour == 0) && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

void print_error(const std::string& text, bool colour) {
  std::string lines;
  for (const char c : text) {
    if (c == '\n') {
      lines += "\n  ";
    } else if (c != '\r') {
      lines += c;
    }
  }
  lines.erase(lines.find_last_not_of(" \n") + 1);
  std::fprintf(stderr, "sample_host: %serror:%s %s\n", colour ? "\033[1;31m" : "",
               colour ? "\033[0m" : "", lines.c_str());
}

}  // namespace ctxbroker::sample_host
