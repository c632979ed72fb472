// SPDX-License-Identifier: Apache-2.0
/* Between ctxbroker_launch.so, which is in every process of a run, and ctxbroker_run.so, which it
 * loads before the first call of the driver. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The exit code of a process that is ended before its first call of the driver. */
enum { ctxb_run_exit_code = 125 };

typedef struct ctxb_run_start {
  uint32_t size;
  const char* settings; /* the text of CTXBROKER_RUN */
  /* Standard error as it was when the process began. What the program puts in its place later is
   * the program's. */
  int has_standard_error;
  dev_t device;
  ino_t inode;
} ctxb_run_start;

typedef enum ctxb_run_result {
  ctxb_run_opened, /* a broker is open, or there is nothing that it could protect */
  ctxb_run_failed  /* standard error says why */
} ctxb_run_result;

/* `start` lives until the process ends. */
typedef ctxb_run_result (*ctxb_run_open_function)(const ctxb_run_start* start);
__attribute__((visibility("default"))) ctxb_run_result ctxb_run_open(const ctxb_run_start* start);

#ifdef __cplusplus
}
#endif
