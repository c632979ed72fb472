// SPDX-License-Identifier: Apache-2.0
/* A library that uses the device on its own account, as a plug-in does, and resets it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wpedantic"

#define EXPORT __attribute__((visibility("default")))

/* Answers NO_DEVICE where there is no driver, as in ctxb-run itself. */
#define CALL(name, types, ...) (find(name) != NULL ? ((int(*) types)find(name))(__VA_ARGS__) : 100)

static void* find(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver != NULL ? dlsym(driver, name) : NULL;
}

EXPORT int reset_device(void);
int reset_device(void) {
  return CALL("cuDevicePrimaryCtxReset_v2", (int), 0);
}

EXPORT int allocate(void);
int allocate(void) {
  void* context = NULL;
  uint64_t memory = 0;
  int status = CALL("cuInit", (unsigned), 0);
  if (status == 0) status = CALL("cuDevicePrimaryCtxRetain", (void**, int), &context, 0);
  if (status == 0) status = CALL("cuCtxSetCurrent", (void*), context);
  if (status == 0) status = CALL("cuMemAlloc_v2", (uint64_t*, size_t), &memory, 4096);
  return status;
}

EXPORT int free_memory(uint64_t memory);
int free_memory(uint64_t memory) {
  return CALL("cuMemFree_v2", (uint64_t), memory);
}

#ifdef NEIGHBOUR_AT_LOAD
/* The process's first call of the driver is made while the loader has its lock. */
__attribute__((constructor)) static void begin(void) {
  allocate();
}
#endif
