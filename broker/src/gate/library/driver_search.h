/* Where NVIDIA's driver lies. The loader cannot be asked by name: the gate has the name. */
#pragma once

#include <stddef.h>

/* Calls `found` with one file after the other that may be the driver, until it returns 1: in
 * LD_LIBRARY_PATH, in the loader's cache, in the folders that distributions and containers use.
 * Returns 1 when a call did. */
int ctxb_gate_for_each_driver_file(int (*found)(const char* file, void* context), void* context);
