// SPDX-License-Identifier: Apache-2.0
// A careless library beside a program that does not know it. A thread of its own resets the device
// over and over, or keeps the multiprocessors busy. LD_PRELOAD or ctypes brings it into the
// process; see strangers.py.
//
// With -DWITH_RUNTIME (nvcc, static runtime library) the reset is cudaDeviceReset(), else the
// driver's function.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_RUNTIME
#include <cuda_runtime_api.h>
#endif

// In a file that the script reads afterwards, also when the process has crashed.
struct counts {
  volatile uint64_t tries;
  volatile uint64_t successes;
  volatile int64_t last_status;
};

static struct counts* counts;
static volatile int is_over;
static pthread_t thread;

static const char* option(const char* name) {
  const char* text = getenv(name);
  return text != NULL ? text : "";
}

// Puts a function of the driver, or null, into the pointer to a function at `to`.
static void look_up(const char* name, void* to) {
  static void* driver;
  if (driver == NULL) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = driver == NULL ? NULL : dlsym(driver, name);
  memcpy(to, &found, sizeof found);
}

// Call it after a try that was counted in `tries`. The process may crash in the try.
static void note(int status) {
  if (status == 0) ++counts->successes;
  counts->last_status = status;
}

static void sleep_ms(long ms) {
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

// ---- Resets ------------------------------------------------------------------------------------

#ifdef WITH_RUNTIME
// A runtime library that has not been used since its last reset returns success and does nothing.
static int reset(void) {
  cudaFree(NULL);
  return (int)cudaDeviceReset();
}
#else
static int reset(void) {
  static int (*function)(int device);
  if (function == NULL) {
    int (*initialise)(unsigned);
    look_up("cuInit", &initialise);
    look_up("cuDevicePrimaryCtxReset_v2", &function);
    if (initialise == NULL || function == NULL || initialise(0) != 0) return -1;
  }
  return function(0);
}
#endif

static void reset_over_and_over(void) {
  unsigned seed = 42;
  while (!is_over) {
    ++counts->tries;
    note(reset());
    sleep_ms(5 + rand_r(&seed) % 6);
  }
}

// ---- Work that fills the device -----------------------------------------------------------------

static const char spin_image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 nanoseconds) {\n"
    "  .reg .u64 %rd<4>;\n  .reg .pred %p;\n"
    "  ld.param.u64 %rd1, [nanoseconds];\n"
    "  mov.u64 %rd2, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %rd3, %globaltimer;\n"
    "  sub.u64 %rd3, %rd3, %rd2;\n"
    "  setp.lt.u64 %p, %rd3, %rd1;\n"
    "  @%p bra again;\n"
    "  ret;\n}\n";

typedef int (*launch_function)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, void* stream, void** arguments, void** extra);

static int prepare(void** kernel) {
  int (*initialise)(unsigned);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*load)(void**, const void*);
  int (*find)(void**, void*, const char*);
  look_up("cuInit", &initialise);
  look_up("cuDevicePrimaryCtxRetain", &retain);
  look_up("cuCtxSetCurrent", &set_current);
  look_up("cuModuleLoadData", &load);
  look_up("cuModuleGetFunction", &find);
  if (!initialise || !retain || !set_current || !load || !find) return -1;
  void *context = NULL, *module = NULL;
  int status = initialise(0);
  if (status == 0) status = retain(&context, 0);
  if (status == 0) status = set_current(context);
  if (status == 0) status = load(&module, spin_image);
  if (status == 0) status = find(kernel, module, "spin");
  return status;
}

static void fill_the_device(void) {
  const unsigned blocks = 4096, threads = 1024;  // many more blocks than any device holds at once
  uint64_t nanoseconds = 1000000;
  void* arguments[] = {&nanoseconds};
  void* kernel = NULL;
  launch_function launch;
  int (*wait)(void);
  look_up("cuLaunchKernel", &launch);
  look_up("cuCtxSynchronize", &wait);
  const int status = prepare(&kernel);
  if (status != 0 || launch == NULL || wait == NULL) {
    note(status != 0 ? status : -1);
    return;
  }
  while (!is_over) {
    ++counts->tries;
    int result = launch(kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL);
    if (result == 0) result = wait();
    note(result);
    if (result != 0) sleep_ms(10);
  }
}

// ---- Its thread ---------------------------------------------------------------------------------

static void stop(void) {
  is_over = 1;
  pthread_join(thread, NULL);
}

static int has_begun(void) {
  struct stat about;
  return stat(option("CTXB_NEIGHBOUR_BEGIN"), &about) == 0 && about.st_size > 0;
}

static void* work(void* unused) {
  (void)unused;
  while (!has_begun()) sleep_ms(1);
  atexit(stop);  // as a library does that wants its thread to end before CUDA does
  if (strcmp(option("CTXB_NEIGHBOUR"), "hog") == 0)
    fill_the_device();
  else
    reset_over_and_over();
  return NULL;
}

// A program may start others. The neighbour works in the first process of the program that it is
// meant for.
static int is_its_program(void) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  const char* name = strrchr(path, '/');
  const char* wanted = option("CTXB_NEIGHBOUR_PROGRAM");
  return name != NULL && strncmp(name + 1, wanted, strlen(wanted)) == 0;
}

__attribute__((constructor)) static void begin(void) {
  if (option("CTXB_NEIGHBOUR")[0] == 0 || !is_its_program()) return;
  const int file =
      open(option("CTXB_NEIGHBOUR_COUNTS"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (ftruncate(file, sizeof *counts) == 0) {
    void* mapped = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) counts = (struct counts*)mapped;
  }
  close(file);
  if (counts != NULL && pthread_create(&thread, NULL, work, NULL) != 0) counts->last_status = -2;
}
