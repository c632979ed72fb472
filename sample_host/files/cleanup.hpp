// SPDX-License-Identifier: Apache-2.0
// Unfinished files that a signal handler can remove: a fixed table, as a handler may neither lock
// nor allocate.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

namespace ctxbroker::sample_host::cleanup {

// A free slot, or -1 when all are taken.
int reserve() noexcept;

// Creates a file from a template as mkostemps does ("name.XXXXXX.part", suffix_length 5) with
// every signal held back until the slot knows its name. The file's mode is what the umask leaves of
// `mode`. `path` becomes the name. Returns the descriptor, or -1 with errno.
int create(int slot, std::string& path, std::size_t suffix_length, mode_t mode);

// Does not return if a signal is ending the process, which has removed the unfinished files.
void wait_if_ending() noexcept;

// The slot's file is finished or removed.
void release(int slot) noexcept;

// Lets main end the process with exit. Before this call, a plug-in that calls exit is named, and
// the process ends with the exit code of a plug-in's failure.
void let_exit() noexcept;

// Installs the handlers, each only where the default action stands (a sanitizer's or an embedding
// host's handler stays).
void install();

// When a signal ends the process, this text is left at the path ("-": on standard output). The
// text of 0 is for a plug-in that calls exit. The texts are made now. Call once.
void leave_report(const std::string& path, const std::function<std::string(int)>& text_of);
// The whole report is there: a later signal leaves it as it is.
void report_is_written() noexcept;

}  // namespace ctxbroker::sample_host::cleanup
