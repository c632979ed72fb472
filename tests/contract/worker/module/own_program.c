/* SPDX-License-Identifier: Apache-2.0 */
/* A host's own worker program. It answers each message with the number of its bytes. */
#include <ctxbroker/worker_module.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* wait_long(void* unused) {
  sleep(600);
  return unused;
}

static ctxb_status handle(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  if (reply->capacity < sizeof message->bytes) return CTXB_ERROR_INVALID_ARGUMENT;
  memcpy(reply->data, &message->bytes, sizeof message->bytes);
  reply->bytes = sizeof message->bytes;
  return CTXB_OK;
}

int main(void) {
  const ctxb_worker_module module = {
      .size = sizeof module, .abi = CTXB_WORKER_ABI, .handle = handle};
  const char* const user = getenv("TEST_WORKER_USER");
  if (user != NULL && setuid(atoi(user)) != 0) return 1;
  pthread_t thread;
  if (getenv("TEST_WORKER_THREAD") != NULL) pthread_create(&thread, NULL, wait_long, NULL);
  return ctxb_worker_serve(&module);
}
