// SPDX-License-Identifier: Apache-2.0
/* A library that takes a part of the room that the C library keeps for thread-local data of
 * libraries that are opened late. */
static __thread char room[128] __attribute__((tls_model("initial-exec")));

__attribute__((visibility("default"))) char* address_of_room(void);
char* address_of_room(void) {
  return room;
}
