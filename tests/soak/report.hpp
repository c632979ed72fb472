// SPDX-License-Identifier: Apache-2.0
// What came of it, for people and for programs.
#pragma once

#include <cstdio>

#include "options.hpp"
#include "resources.hpp"
#include "tally.hpp"

namespace ctxbroker::soak {

struct Course {
  unsigned threads = 0;
  std::size_t modes = 0;
  Resources before, after;  // the first life of each plug-in, and all others
};

void print_line(std::FILE* output, const Tally& tally, double seconds, const Resources& now);
void print_report(std::FILE* output, const Options& options, const Tally& tally,
                  const Course& course);
// Throws std::runtime_error when the file cannot be written.
void write_report(const Options& options, const Tally& tally, const Course& course);

}  // namespace ctxbroker::soak
