// SPDX-License-Identifier: Apache-2.0
/* The functions and data that the parts of the gate library share. */
#pragma once

/* The exported functions are blocks of machine code of one size, one after the other in the order
 * of function_table.inc. A block jumps through its target; until a driver is behind the gate its
 * target leads to the second half of the block, which asks gate.c to open one. In
 * entries_PROCESSOR.S. */
#define CTXB_GATE_BLOCK_BYTES 32

#ifndef __ASSEMBLER__
#include <stddef.h>

#include "gate/library/gate.h"

#define CTXB_GATE_INSIDE __attribute__((visibility("hidden")))

CTXB_GATE_INSIDE extern const char ctxb_gate_blocks[];
CTXB_GATE_INSIDE extern ctxb_gate_function ctxb_gate_targets[];

/* Called by the second half of block `index`; returns where to go on. */
CTXB_GATE_INSIDE ctxb_gate_function ctxb_gate_resolve(uint64_t index);

/* Calls `found` with one file after the other that may be NVIDIA's driver, until it returns 1: in
 * LD_LIBRARY_PATH, in the loader's cache, in the folders that distributions and containers use.
 * Returns 1 when a call did. The loader cannot be asked by name, because the gate has the name. */
int ctxb_gate_for_each_driver_file(int (*found)(const char* file, void* context), void* context);

/* Replacements of dlopen, dlsym and dlvsym in tenants' libraries. If the loader's own function has
 * to answer, they jump to it, because the loader looks at its caller. In entries_PROCESSOR.S. */
extern const char ctxb_gate_watched_dlopen[];
extern const char ctxb_gate_late_dlsym[];
extern const char ctxb_gate_late_dlvsym[];

/* Returns whether the library is the driver behind the gate. */
int ctxb_gate_is_driver(const void* library);

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after);

/* Opens a library for a tenant's code. 1: done, with what dlopen answered; 0: the loader is to
 * answer, because what it finds may depend on who asks. */
int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library);

/* Returns the gate's function for a guarded function of the driver, where the driver was in the
 * process before the gate. NULL: the loader has to answer. `version` is NULL for dlsym. */
void* ctxb_gate_late_answer(void* handle, const char* name, const char* version,
                            const void* caller);
#endif
