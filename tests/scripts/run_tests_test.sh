#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_tests of a bundle: it counts what GoogleTest says, and what a dying program no longer says.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
mkdir -p "$scratch/bundle/bin"
cp "$CTXB_SOURCE/tools/lib/run_tests.sh" "$scratch/bundle/run_tests"
run_tests() { run env CTXB_LOGS="$scratch/logs" bash "$scratch/bundle/run_tests" "$@"; }
program() { printf '#!/bin/bash\n%s\n' "$2" >"$scratch/bundle/bin/$1"; chmod +x "$scratch/bundle/bin/$1"; }
last_line() { tail -n 1 "$scratch/out"; }

program good 'echo "[==========] 3 tests from 1 test suite ran."; echo "[  PASSED  ] 2 tests."
  printf "a.cpp:1: Skipped\nno GPU here\n"; echo "[  SKIPPED ] 1 test, listed below:"
  [[ $ANSWER == 42 ]]'
program bad 'echo "[  PASSED  ] 4 tests."; echo "[  FAILED  ] 2 tests, listed below:"; exit 1'
program dies 'echo "[ RUN      ] some"; kill -SEGV $$'
program hangs 'sleep 60'
program driver 'echo "[  PASSED  ] 1 test."; [[ $CTXBROKER_DRIVER == nvidia ]]'
cat >"$scratch/bundle/test_programs.txt" <<'END'
good|10|unit|ANSWER=42
bad|10|unit|
dies|10|unit|
hangs|10|unit,slow|
driver|10|contract|
END

run_tests --only '^good$'
expect_status 0
expect_out "skipped: no GPU here"
[[ "$(last_line)" == "2 passed, 0 failed, 1 skipped" ]] || failed "wrong sum"

run_tests --only 'bad|dies'
expect_status 1
expect_out "ended with status 139"
[[ "$(last_line)" == "4 passed, 3 failed, 0 skipped" ]] || failed "wrong sum"

run_tests --gpu
expect_status 0
[[ "$(last_line)" == "1 passed, 0 failed, 0 skipped" ]] || failed "--gpu runs the contract tests alone"
run_tests --only driver
expect_status 1

run_tests --slow --seconds 2 --only hangs
expect_status 1
expect_out "ran past"  # what is left of the two seconds

run_tests --only no_such_program
expect_status 1
expect_err "nothing ran"
run_tests --seconds soon
expect_status 2
