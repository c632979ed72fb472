// SPDX-License-Identifier: Apache-2.0
// Loads a library in a process of its own and says what became of it. Only the scanning program
// does this: it forks, and it makes itself the one to whom orphans come.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace ctxbroker::detail {

enum class Outcome {
  described,       // `text` is JSON as scan/answer.hpp reads it
  could_not_load,  // `text` says why
  crashed,         // `text` says how
  hung,            // `text` says for how long
};

// How a message begins that the process, and not the library, is limited. The limit follows.
inline constexpr const char* file_size_limit_reached =
    "the process has reached its limit on the size of files, ";

struct Examination {
  Outcome outcome = Outcome::crashed;
  std::string text;
};

// Prepares this process, which must have one thread: it lets nobody look into it, takes in orphans,
// and closes all files but the standard ones, because what it examines may write to any. Call it
// once.
void become_examiner() noexcept;

// Loads the library in a forked process. The process and all that it started have ended when this
// returns, also at the deadline. If the other end of `host`, a file, is closed meanwhile, this
// process ends; -1: nobody waits.
Examination examine(const std::filesystem::path& library, std::chrono::milliseconds deadline,
                    int host);

}  // namespace ctxbroker::detail
