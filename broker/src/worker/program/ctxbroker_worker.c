/* SPDX-License-Identifier: Apache-2.0 */
/* The program ctxbroker-worker: serves with the module that the host names. */
#include "ctxbroker/worker_module.h"

int main(void) {
  return ctxb_worker_serve(0);
}
