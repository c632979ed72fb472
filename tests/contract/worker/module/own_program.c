/* SPDX-License-Identifier: Apache-2.0 */
/* A host's own worker program. It answers each message with the number of its bytes. */
#include <ctxbroker/worker_module.h>
#include <string.h>

static ctxb_status handle(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  if (reply->capacity < sizeof message->bytes) return CTXB_ERROR_INVALID_ARGUMENT;
  memcpy(reply->data, &message->bytes, sizeof message->bytes);
  reply->bytes = sizeof message->bytes;
  return CTXB_OK;
}

int main(void) {
  const ctxb_worker_module module = {
      .size = sizeof module, .abi = CTXB_WORKER_ABI, .handle = handle};
  return ctxb_worker_serve(&module);
}
