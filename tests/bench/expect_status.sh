#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# expect_status.sh STATUS PROGRAM [ARGUMENT...]: succeeds when the program ends with that status.
wanted="$1"
shift
"$@"
status=$?
if [[ "$status" != "$wanted" ]]; then
  printf 'ended with status %s, not %s\n' "$status" "$wanted" >&2
  exit 1
fi
