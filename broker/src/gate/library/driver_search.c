// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate/library/parts.h"

static const char driver_name[] = "libcuda.so.1";

typedef int (*visit)(const char* file, void* context);

static int in_folder(const char* folder, size_t length, visit found, void* context) {
  char path[PATH_MAX];
  const int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, driver_name);
  if (length == 0 || written < 0 || (size_t)written >= sizeof path) return 0;
  return access(path, R_OK) == 0 && found(path, context);
}

/* Folders separated by colons. */
static int in_path_list(const char* list, visit found, void* context) {
  while (list != NULL && *list != '\0') {
    const size_t length = strcspn(list, ":");
    if (length < PATH_MAX && in_folder(list, length, found, context)) return 1;
    list += length;
    if (*list == ':') ++list;
  }
  return 0;
}

/* The loader's cache, as glibc writes it since 2.2 ("glibc-ld.so.cache1.1"). */
struct cache_header {
  char magic[20];
  uint32_t entry_count;
  uint32_t string_bytes;
  uint32_t unused[5];
};
struct cache_entry {
  int32_t flags;
  uint32_t name, path; /* offsets of text, from the header */
  uint32_t os_version;
  uint64_t hardware;
};

/* Text within the cache; NULL when it does not end there. */
static const char* text_at(const char* cache, size_t bytes, uint32_t offset) {
  if (offset >= bytes || memchr(cache + offset, '\0', bytes - offset) == NULL) return NULL;
  return cache + offset;
}

static int in_cache_image(const char* image, size_t bytes, visit found, void* context) {
  static const char magic[] = "glibc-ld.so.cache1.1";
  /* Older systems write an older table in front of it. */
  const char* start = memmem(image, bytes, magic, sizeof magic - 1);
  if (start == NULL) return 0;
  bytes -= (size_t)(start - image);
  struct cache_header header;
  if (bytes < sizeof header) return 0;
  memcpy(&header, start, sizeof header);
  if (header.entry_count > (bytes - sizeof header) / sizeof(struct cache_entry)) return 0;
  for (uint32_t i = 0; i < header.entry_count; ++i) {
    struct cache_entry entry;
    memcpy(&entry, start + sizeof header + i * sizeof entry, sizeof entry);
    const char* name = text_at(start, bytes, entry.name);
    const char* path = text_at(start, bytes, entry.path);
    if (name == NULL || path == NULL || strcmp(name, driver_name) != 0) continue;
    if (found(path, context)) return 1;
  }
  return 0;
}

static int in_cache(visit found, void* context) {
  const int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  struct stat status;
  int done = 0;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    const size_t bytes = (size_t)status.st_size;
    void* image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (image != MAP_FAILED) {
      done = in_cache_image(image, bytes, found, context);
      munmap(image, bytes);
    }
  }
  close(file);
  return done;
}

int ctxb_gate_for_each_driver_file(visit found, void* context) {
  static const char usual[] =
#if defined(__aarch64__)
      "/usr/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu/tegra:"
#else
      "/usr/lib/x86_64-linux-gnu:/usr/lib/wsl/lib:"
#endif
      "/usr/lib64:/usr/lib:/usr/local/nvidia/lib64:/usr/lib/nvidia:/run/opengl-driver/lib";
  return in_path_list(secure_getenv("LD_LIBRARY_PATH"), found, context) ||
         in_cache(found, context) || in_path_list(usual, found, context);
}
