// SPDX-License-Identifier: Apache-2.0
// The least that a host's probing program is.
#include "ctxbroker/probe.hpp"

int main(int argc, char** argv) {
  return ctxbroker::run_probe({argv + 1, argv + argc});
}
