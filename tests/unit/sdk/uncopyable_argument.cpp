// SPDX-License-Identifier: Apache-2.0
// Must not compile: a std::string is no kernel argument. See CMakeLists.txt.
#include <string>

#include "ctxbroker/plugin.hpp"

void launch(const ctxbroker::sdk::Job& job, const ctxbroker::sdk::Kernel& kernel) {
  job.launch(kernel, {{1}, {1}}, std::string("text"));
}
