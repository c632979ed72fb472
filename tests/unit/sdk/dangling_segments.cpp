// SPDX-License-Identifier: Apache-2.0
// Must not compile: the segments end before the iterator that points to them. See CMakeLists.txt.
#include "ctxbroker/plugin.hpp"

using namespace ctxbroker::sdk;

unsigned first_end(const Job& job, const Real& rate) {
  auto now = job.segments(rate).begin();
  return now->end;
}
