// SPDX-License-Identifier: Apache-2.0
// A host's own worker program. It answers with how often the thread that serves has allocated
// memory, after the milliseconds that the message's type says.
#include <ctxbroker/worker_module.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/allocation_count.hpp"

namespace {

ctxb_status handle(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  const std::uint64_t count = ctxbroker::bench::allocations_of_this_thread();
  if (reply->capacity < sizeof count) return CTXB_ERROR_INVALID_ARGUMENT;
  std::this_thread::sleep_for(std::chrono::milliseconds(message->type));
  std::memcpy(reply->data, &count, sizeof count);
  reply->bytes = sizeof count;
  return CTXB_OK;
}

}  // namespace

int main() {
  ctxb_worker_module module{};
  module.size = sizeof module;
  module.abi = CTXB_WORKER_ABI;
  module.handle = handle;
  return ctxb_worker_serve(&module);
}
