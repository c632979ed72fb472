// SPDX-License-Identifier: Apache-2.0
/* Every name the driver exports. C, so that one list can define the calls that are not implemented
 * and hold the address of each one that is, whatever its signature. */
#pragma once

/* The CUDA version whose driver the software device is like, at most. */
#define CTXB_NEWEST_CUDA 13000

#ifdef __cplusplus
extern "C" {
#endif

struct ctxb_entry_point {
  const char* symbol; /* as exported: "cuMemAlloc_v2" */
  const char* base;   /* as cuGetProcAddress knows it: "cuMemAlloc" */
  int version;        /* first CUDA version that returns it: 3020 */
  int per_thread;     /* 1: for CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
  void (*address)(void);
};

/* By symbol, then once more those that have another base name too; also those that the device does
 * not export, because they came after CTXB_NEWEST_CUDA. */
extern const struct ctxb_entry_point ctxb_entry_points[];
extern const unsigned ctxb_entry_point_count;

#ifdef __cplusplus
}
#endif
