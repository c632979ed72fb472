// SPDX-License-Identifier: Apache-2.0
/* A library that keeps more per thread than a process has room for beside what it was started with.
 */
__attribute__((visibility("default"))) __thread char late_open_room[4096];

__attribute__((visibility("default"))) char* late_open_touch(void) {
  late_open_room[0] = 1;
  return late_open_room;
}
