// SPDX-License-Identifier: Apache-2.0
// ctxb-scan: loads plug-in libraries, so that no host has to.
#include "ctxbroker/scan.hpp"

int main(int argc, char** argv) {
  return ctxbroker::run_scan_program({argv + 1, argv + argc});
}
