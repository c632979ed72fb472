// SPDX-License-Identifier: Apache-2.0
// Descriptors that the test's worker module passes to the host.
#pragma once

#include <cstddef>

#include "ctxbroker/worker_module.h"

namespace ctxbroker::test {

// In one packet, past the host's functions, which take one descriptor of memory.
void send_descriptors(const int* all, std::size_t count);

// A new memory file of one page.
int made_memory();

// Does an act that passes descriptors. False: the message is not of one.
bool pass(const ctxb_worker_host& host, const ctxb_worker_message& message);

}  // namespace ctxbroker::test
