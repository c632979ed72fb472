// SPDX-License-Identifier: Apache-2.0
/* A program that knows nothing of the broker. Its arguments are deeds, which it does one after the
 * other. It finds the driver by its name, as the runtime library does. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wpedantic"

static const char* driver_name = "libcuda.so.1";

static void* driver(void) {
  static void* library = NULL;
  if (library == NULL) library = dlopen(driver_name, RTLD_NOW);
  if (library == NULL) {
    printf("no driver: %s\n", dlerror());
    exit(9);
  }
  return library;
}

/* The name of a function of the driver and the types of its arguments. */
#define CALL(name, types, ...) (((int(*) types)dlsym(driver(), name))(__VA_ARGS__))

static uint64_t memory;

static void say(const char* what, int status) {
  printf("%s: %d\n", what, status);
  fflush(stdout);
}

static void use(void) {
  void* context = NULL;
  int status = CALL("cuInit", (unsigned), 0);
  if (status == 0) status = CALL("cuDevicePrimaryCtxRetain", (void**, int), &context, 0);
  if (status == 0) status = CALL("cuCtxSetCurrent", (void*), context);
  if (status == 0) status = CALL("cuMemAlloc_v2", (uint64_t*, size_t), &memory, 64);
  if (status == 0) {
    status = CALL("cuMemsetD32_v2", (uint64_t, unsigned, size_t), memory, 0x1234, 16);
  }
  /* A library may make another context current, in which later calls wait for no work of this one.
   */
  if (status == 0) status = CALL("cuStreamSynchronize", (void*), NULL);
  say("use", status);
}

static void reset(void) {
  say("reset", CALL("cuDevicePrimaryCtxReset_v2", (int), 0));
}

static void release_all(void) {
  int status = 0;
  for (int i = 0; i < 4; ++i) {
    const int one = CALL("cuDevicePrimaryCtxRelease_v2", (int), 0);
    if (one != 0 && one != 201) status = one;
  }
  say("release", status);
}

static void look(void) {
  unsigned content = 0;
  const int status = CALL("cuMemcpyDtoH_v2", (void*, uint64_t, size_t), &content, memory, 4);
  printf("memory: %s\n", status == 0 && content == 0x1234 ? "whole" : "DAMAGED");
  fflush(stdout);
}

/* Both meet at the driver. */
static pthread_barrier_t both;
static void* first_call(void* unused) {
  (void)unused;
  pthread_barrier_wait(&both);
  return (void*)(intptr_t)CALL("cuInit", (unsigned), 0);
}
static void first_call_on_threads(void) {
  enum { count = 8 };
  pthread_t threads[count];
  void* statuses[count];
  driver();
  pthread_barrier_init(&both, NULL, count);
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, first_call, NULL);
  int worst = 0;
  for (int i = 0; i < count; ++i) {
    pthread_join(threads[i], &statuses[i]);
    if (statuses[i] != NULL) worst = (int)(intptr_t)statuses[i];
  }
  say("threads", worst);
}

static void* call_for_ever(void* unused) {
  (void)unused;
  for (;;) reset();
  return NULL;
}

static void wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  fflush(stdout);
}

/* A process that was forked and does not exec. */
static void fork_and_do(const char* deeds) {
  const pid_t child = fork();
  if (child == 0) {
    use();
    if (strstr(deeds, "reset") != NULL) reset();
    if (strstr(deeds, "look") != NULL) look();
    exit(0);
  }
  wait_for(child);
}

/* This program's arguments for deeds that commas separate. */
enum { most_arguments = 16 };
static void arguments_for(const char* self, const char* deeds, char** arguments) {
  static char list[4096];
  snprintf(list, sizeof list, "%s", deeds);
  int count = 0;
  arguments[count++] = (char*)self;
  for (char* one = strtok(list, ","); one != NULL && count + 1 < most_arguments;
       one = strtok(NULL, ",")) {
    arguments[count++] = one;
  }
  arguments[count] = NULL;
}

extern char** environ;
static void start_again(const char* self, const char* deeds) {
  char* arguments[most_arguments];
  arguments_for(self, deeds, arguments);
  pid_t child = 0;
  if (posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0) wait_for(child);
}

static void become_again(const char* self, const char* deeds) {
  char* arguments[most_arguments];
  arguments_for(self, deeds, arguments);
  execv(self, arguments);
}

static void use_library(const char* file, const char* function) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("no library: %s\n", dlerror());
    exit(9);
  }
  if (*function == '\0') return;
  int (*deed)(void) = (int (*)(void))dlsym(library, function);
  say(function, deed());
}

/* A library with copies of everything that it needs. */
static void use_in_namespace(const char* file) {
  void* library = dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
  if (library == NULL) {
    printf("in a namespace: %s\n", dlerror());
    return;
  }
  int (*allocate)(void) = (int (*)(void))dlsym(library, "allocate");
  int (*reset_device)(void) = (int (*)(void))dlsym(library, "reset_device");
  say("in a namespace, allocate", allocate());
  say("in a namespace, reset_device", reset_device());
}

/* Opens the files of a folder until one does not fit. */
static void open_what_fits(const char* folder) {
  DIR* opened = opendir(folder);
  if (opened == NULL) return;
  const struct dirent* entry = NULL;
  char path[4096];
  while ((entry = readdir(opened)) != NULL) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (dlopen(path, RTLD_NOW) == NULL) break;
  }
  closedir(opened);
}

/* The library frees what the program holds. */
static void free_by(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) exit(9);
  int (*deed)(uint64_t) = (int (*)(uint64_t))dlsym(library, "free_memory");
  say("free_memory", deed(memory));
}

/* Destroys the context that a library has left current. The driver would pop it from the stack of
 * the thread that destroys it. */
static void* destroy(void* context) {
  return (void*)(intptr_t)CALL("cuCtxDestroy_v2", (void*), context);
}
static void destroy_current(void) {
  void *context = NULL, *status = NULL;
  CALL("cuCtxGetCurrent", (void**), &context);
  pthread_t thread;
  pthread_create(&thread, NULL, destroy, context);
  pthread_join(thread, &status);
  say("destroy", (int)(intptr_t)status);
}

/* Waits until a file has that text in it, for 30 s at most. */
static void wait_for_text(const char* file, const char* text) {
  for (int i = 0; i < 3000; ++i) {
    static char content[1 << 20];
    FILE* opened = fopen(file, "r");
    const size_t bytes = opened != NULL ? fread(content, 1, sizeof content - 1, opened) : 0;
    if (opened != NULL) fclose(opened);
    content[bytes] = '\0';
    if (strstr(content, text) != NULL) return;
    usleep(10000);
  }
  printf("it is not in the file: %s\n", text);
}

int main(int argc, char** argv) {
  char self[4096] = {0};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 9;
  for (int i = 1; i < argc; ++i) {
    const char* deed = argv[i];
    const size_t length = strcspn(deed, "=");
    const char* value = deed[length] == '=' ? deed + length + 1 : "";
#define IS(name) (length == strlen(name) && strncmp(deed, name, length) == 0)
    if (IS("driver")) driver_name = value;
    if (IS("use")) use();
    if (IS("reset")) reset();
    if (IS("release")) release_all();
    if (IS("look")) look();
    if (IS("threads")) first_call_on_threads();
    if (IS("fork")) fork_and_do(value);
    if (IS("start")) start_again(self, value);
    if (IS("exec")) become_again(self, value);
    if (IS("open")) use_library(value, "");
    if (IS("reset-by")) use_library(value, "reset_device");
    if (IS("allocate-by")) use_library(value, "allocate");
    if (IS("use-by")) use_library(value, "use_again");
    if (IS("fault-by")) use_library(value, "fault");
    if (IS("fault-unseen-by")) use_library(value, "fault_unseen");
    if (IS("destroy-current")) destroy_current();
    if (IS("free-by")) free_by(value);
    if (IS("drop-by")) use_library(value, "drop_driver");
    if (IS("wait-by")) use_library(value, "last_status");
    if (IS("in-namespace")) use_in_namespace(value);
    if (IS("open-what-fits")) open_what_fits(value);
    if (IS("set-run")) setenv("CTXBROKER_RUN", value, 1);
    for (int one = 3; IS("close-descriptors") && one < 1024; ++one) close(one);
    if (IS("print")) printf("%s\n", value);
    if (IS("complain")) fprintf(stderr, "%s\n", value);
    if (IS("variable")) printf("%s=%s\n", value, getenv(value) != NULL ? getenv(value) : "(unset)");
    if (IS("set-preload")) setenv("LD_PRELOAD", value, 1);
    if (IS("forget")) clearenv();
    if (IS("go-to") && chdir(value) != 0) return 9;
    if (IS("wait-for-refusal-in")) wait_for_text(value, "cuDevicePrimaryCtxReset_v2");
    if (IS("close-errors")) close(STDERR_FILENO);
    if (IS("open-file") && open(value, O_WRONLY | O_CREAT | O_TRUNC, 0644) < 0) return 9;
    if (IS("remove-folder") && rmdir(value) != 0) return 9;
    if (IS("broker")) {
      void* loaded = dlopen(value, RTLD_NOW | RTLD_NOLOAD);
      printf("broker: %s\n", loaded != NULL ? "in the process" : "not in the process");
    }
    if (IS("exit-beside-threads")) {
      pthread_t thread;
      pthread_create(&thread, NULL, call_for_ever, NULL);
      exit(3);
    }
    if (IS("exit")) exit(atoi(value));
    if (IS("_exit")) _exit(atoi(value));
    if (IS("kill")) raise(SIGKILL);
    fflush(stdout);
  }
  return 0;
}
