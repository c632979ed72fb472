// SPDX-License-Identifier: Apache-2.0
/* A program into which no library can be preloaded. */
#include <stdio.h>

int main(void) {
  puts("x");
  return 0;
}
