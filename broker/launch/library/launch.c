// SPDX-License-Identifier: Apache-2.0
/* ctxbroker_launch.so: preloaded into every process of a run, in front of the gate. It does nearly
 * nothing until the process calls the driver. Then it loads ctxbroker_run.so, which opens a broker.
 *
 * C, because it depends on nothing but the C library: it is in programs that never use CUDA. */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

static char folder[PATH_MAX]; /* of this library; empty: not known */
static ctxb_run_start start = {.size = sizeof start};
static int only_process; /* the run covers no other; 0: it covers all */

static void fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char* format, ...) {
  char why[PATH_MAX + 512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  char text[sizeof why + 128];
  const int bytes = snprintf(text, sizeof text,
                             "ctxb-run: error: the process was ended before its first call of the "
                             "CUDA driver: %s\n",
                             why);
  struct stat now;
  const int is_still_there = start.has_standard_error && fstat(STDERR_FILENO, &now) == 0 &&
                             now.st_dev == start.device && now.st_ino == start.inode;
  if (is_still_there && write(STDERR_FILENO, text, (size_t)bytes) < 0) {
    _exit(ctxb_run_exit_code); /* nobody can be told */
  }
  _exit(ctxb_run_exit_code);
}

/* ---- the environment ------------------------------------------------------------------------- */

/* Takes an entry out of a list, in its place: the environment only becomes shorter. */
static void take_out(char* list, const char* entry, const char* separators) {
  const size_t length = strlen(entry);
  char* to = list;
  for (char* from = list; *from != '\0';) {
    const size_t bytes = strcspn(from, separators);
    const int is_it = bytes == length && memcmp(from, entry, length) == 0;
    char* next = from + bytes;
    if (!is_it) {
      if (to != list) *to++ = separators[0];
      memmove(to, from, bytes);
      to += bytes;
    }
    if (*next != '\0') ++next;
    from = next;
  }
  *to = '\0';
}

/* The variable's value, in its place. Not by getenv and unsetenv: programs such as bash have
 * functions of these names, for an environment of their own that they have not read yet. */
static char** find_variable(const char* name) {
  const size_t length = strlen(name);
  char** one = environ;
  while (one != NULL && *one != NULL &&
         (strncmp(*one, name, length) != 0 || (*one)[length] != '=')) {
    ++one;
  }
  return one != NULL && *one != NULL ? one : NULL;
}

static char* value_of(const char* name) {
  char** variable = find_variable(name);
  return variable != NULL ? *variable + strlen(name) + 1 : NULL;
}

static void remove_variable(const char* name) {
  for (char** one = find_variable(name); one != NULL && *one != NULL; ++one) one[0] = one[1];
}

static void take_out_of(const char* variable, const char* entry, const char* separators) {
  char* list = value_of(variable);
  if (list == NULL) return;
  take_out(list, entry, separators);
  if (*list == '\0') remove_variable(variable);
}

/* An own file or folder, by its path. */
static void take_own_out_of(const char* variable, const char* file, const char* separators) {
  char entry[PATH_MAX + 64];
  snprintf(entry, sizeof entry, "%s%s", folder, file);
  take_out_of(variable, entry, separators);
}

/* The run does not cover this process, and the programs that it starts are none of the run's. */
static void leave_environment(void) {
  static const char* const files[] = {"/ctxbroker_launch.so", "/ctxbroker_gate.so"};
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
    take_own_out_of("LD_PRELOAD", files[i], ": ");
    take_out_of("LD_PRELOAD", files[i] + 1, ": "); /* found in LD_LIBRARY_PATH */
  }
  take_own_out_of("LD_LIBRARY_PATH", "/gate", ":;");
  take_own_out_of("LD_LIBRARY_PATH", "", ":;");
  remove_variable("CTXBROKER_RUN");
}

/* ---- the start ------------------------------------------------------------------------------- */

static void find_folder(void) {
  Dl_info self;
  if (dladdr((const void*)&start, &self) == 0 || self.dli_fname == NULL) return;
  if (realpath(self.dli_fname, folder) == NULL) {
    *folder = '\0';
    return;
  }
  char* slash = strrchr(folder, '/');
  if (slash != NULL) *slash = '\0';
}

/* The process keeps its number when it becomes another program. One that was forked has its own. */
static int is_covered(void) {
  return start.settings != NULL && (only_process == 0 || only_process == getpid());
}

/* Everything is copied, because the program may change its environment and its descriptors. */
__attribute__((constructor)) static void prepare(void) {
  static int is_prepared = 0;
  if (is_prepared) return;
  is_prepared = 1;
  struct stat status;
  if (fstat(STDERR_FILENO, &status) == 0) {
    start.has_standard_error = 1;
    start.device = status.st_dev;
    start.inode = status.st_ino;
  }
  const char* settings = value_of("CTXBROKER_RUN");
  if (settings == NULL || getauxval(AT_SECURE) != 0) return;
  start.settings = strdup(settings);
  find_folder();
  /* Settings that are damaged end the process at its first call. */
  if (start.settings != NULL &&
      sscanf(start.settings, "{\"children\":false,\"pid\":%d", &only_process) != 1) {
    only_process = 0;
  }
  if (start.settings != NULL && !is_covered()) leave_environment();
}

/* Returns the settings of the run, for a broker that the program opens itself. Null: ctxb-run did
 * not start the program, or does not cover this process. */
__attribute__((visibility("default"))) const char* ctxb_run_settings(void);
const char* ctxb_run_settings(void) {
  prepare();
  return is_covered() ? start.settings : NULL;
}

/* The gate calls it: see gate.h there. */
__attribute__((visibility("default"))) void ctxb_before_first_driver(void);
void ctxb_before_first_driver(void) {
  prepare(); /* a constructor of another library may be first */
  if (start.settings == NULL) {
    fail("the variable CTXBROKER_RUN is missing; start the program with ctxb-run");
  }
  if (!is_covered()) return; /* the gate passes all calls on */
  char file[PATH_MAX + 64];
  snprintf(file, sizeof file, "%s/ctxbroker_run.so", folder);
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* why = dlerror();
    if (why == NULL) why = file;
    fail("the broker cannot be loaded: %s%s", why,
         strstr(why, "static TLS") == NULL
             ? ""
             : ". The program's libraries have taken the room for thread-local data; run it with "
               "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 in its environment");
  }
  ctxb_run_open_function run = NULL;
  *(void**)&run = dlsym(library, "ctxb_run_open");
  if (run == NULL) fail("%s is of another version; install ctxbroker again", file);
  if (run(&start) != ctxb_run_opened) _exit(ctxb_run_exit_code);
}
