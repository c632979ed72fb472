#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel in the eyes of auditwheel and mypy. pip installs both into the build folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/python_wheel.sh"

wanted="$CTXB_SOURCE/tests/scripts/python_tools.txt" tools="$CTXB_BUILD/python_tools"
if ! cmp -s "$wanted" "$tools/installed.txt"; then
  rm -rf "$tools"
  run python3 -m venv "$tools"
  expect_status 0
  run "$tools/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  if ((status != 0)) && why="$(grep -iE -m 1 'connection|timed out|proxy|unreachable' "$scratch/err")"; then
    echo "skipped: pip cannot fetch auditwheel and mypy: $why"
    exit 77
  fi
  expect_status 0
  cp "$wanted" "$tools/installed.txt"
fi

# tools/wheel asks auditwheel, if that is on PATH. The control: one that finds another tag.
mkdir "$scratch/liar"
printf '#!/bin/sh\necho "It is consistent with the following platform tag: \\"linux_x86_64\\"."\n' >"$scratch/liar/auditwheel"
chmod +x "$scratch/liar/auditwheel"
run env PATH="$scratch/liar:$PATH" "$CTXB_SOURCE/tools/wheel" --from "$CTXB_BUILD" "$scratch/wheels"
expect_status 1
expect_err "auditwheel does not say that the wheel is manylinux_2_"
PATH="$tools/bin:$PATH" pack_wheel "$scratch/wheels"
run "$tools/bin/auditwheel" show "$wheel"
expect_status 0
expect_out manylinux_2_

# The tests of the annotations skip themselves without mypy.
install_wheel "$tools"
cd "$scratch"
run "$tools/bin/python" "$CTXB_SOURCE/python/tests/test_typing.py"
expect_status 0
[[ "$err" == *OK* && "$err" != *skipped* ]] || failed "mypy was not asked"
