// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

#include "linked_host.hpp"

// Any argument: without the gate.
int main(int argc, char**) try {
  return ctxbroker::run_linked_host(argc == 1);
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
