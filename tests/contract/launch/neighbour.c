// SPDX-License-Identifier: Apache-2.0
/* A library that uses the device on its own account, as a plug-in does, and resets it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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

/* Works in whatever context is current. */
EXPORT int use_again(void);
int use_again(void) {
  uint64_t memory = 0;
  return CALL("cuMemAlloc_v2", (uint64_t*, size_t), &memory, 4096);
}

/* A kernel that stores to an address that is nobody's. */
static int launch_crash(void) {
  static const char crash[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry crash()\n"
      "{\n"
      "  .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
      "  mov.u64 %rd1, 16;\n"
      "  mov.u32 %r1, 1;\n"
      "  st.global.u32 [%rd1], %r1;\n"
      "  ret;\n"
      "}\n";
  void *module = NULL, *kernel = NULL;
  int status = CALL("cuModuleLoadData", (void**, const void*), &module, crash);
  if (status == 0) {
    status = CALL("cuModuleGetFunction", (void**, void*, const char*), &kernel, module, "crash");
  }
  if (status != 0) return status;
  return CALL("cuLaunchKernel",
              (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
               void**, void**),
              kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

EXPORT int fault(void);
int fault(void) {
  const int status = launch_crash();
  return status != 0 ? status : CALL("cuStreamSynchronize", (void*), NULL);
}

/* The same with no guarded call after the launch. */
EXPORT int fault_unseen(void);
int fault_unseen(void) {
  enum { not_ready = 600 };
  int status = launch_crash();
  if (status != 0) return status;
  do status = CALL("cuStreamQuery", (void*), NULL);
  while (status == not_ready);
  return status;
}

EXPORT int free_memory(uint64_t memory);
int free_memory(uint64_t memory) {
  return CALL("cuMemFree_v2", (uint64_t), memory);
}

/* Closes the driver more often than it opened it. */
EXPORT int drop_driver(void);
int drop_driver(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  for (int i = 0; i < 100; ++i) dlclose(driver);
  return 0;
}

#ifdef NEIGHBOUR_ON_THREAD
/* It resets the device until the program asks how that went. */
static pthread_t thread;
static volatile int is_asked;
static void* reset_again_and_again(void* unused) {
  (void)unused;
  allocate();
  while (!is_asked) reset_device();
  allocate();
  return (void*)(intptr_t)reset_device();
}
__attribute__((constructor)) static void begin_thread(void) {
  pthread_create(&thread, NULL, reset_again_and_again, NULL);
}
EXPORT int last_status(void);
int last_status(void) {
  void* status = NULL;
  is_asked = 1;
  pthread_join(thread, &status);
  return (int)(intptr_t)status;
}
#endif

#ifdef NEIGHBOUR_OPENS
__attribute__((constructor)) static void open_another(void) {
  const char* file = getenv("NEIGHBOUR_OPENS");
  if (file != NULL) dlopen(file, RTLD_NOW | RTLD_LOCAL);
}
#endif

#ifdef NEIGHBOUR_AT_LOAD
/* The process's first call of the driver is made while the loader has its lock. */
__attribute__((constructor)) static void begin(void) {
  allocate();
}
#endif
