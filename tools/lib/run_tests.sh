#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test programs of this bundle; ends with "N passed, N failed, N skipped".
#
#   ./run_tests [--gpu] [--only PATTERN] [--seconds N] [--slow] [--list] [-- GTEST-ARGUMENT...]
#
#   --gpu           the contract and gpu tests on the NVIDIA driver (CTXBROKER_DRIVER=nvidia);
#                   without it all tests, on the software device
#   --only PATTERN  programs whose name matches this regular expression
#   --seconds N     stop after N seconds; what did not run or end by then counts as failed
#   --slow          also the programs labelled slow
#   --list          print the programs and their labels, run nothing
#
# Each program's output stays in logs/ in the current folder, or where CTXB_LOGS says.
# Status 0: all passed; 1: a test failed or nothing ran; 2: wrong arguments.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
gpu=0 slow=0 list=0 only="" seconds=0 arguments=()

help_text() { sed -n '3,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }
wrong() { printf 'run_tests: error: %s\n  Try: run_tests --help\n' "$1" >&2; exit 2; }
while (($# > 0)); do
  case "$1" in
    --gpu) gpu=1 ;;
    --slow) slow=1 ;;
    --list) list=1 ;;
    --only) [[ $# -ge 2 ]] || wrong "--only needs a pattern"; only="$2"; shift ;;
    --seconds)
      [[ $# -ge 2 && "$2" =~ ^[1-9][0-9]*$ ]] || wrong "--seconds needs a number above 0"
      seconds="$2"; shift ;;
    --) shift; arguments=("$@"); break ;;
    -h | --help) help_text; exit 0 ;;
    *) wrong "unknown argument: $1" ;;
  esac
  shift
done

logs="${CTXB_LOGS:-logs}"
if ((!list)); then mkdir -p "$logs" || exit 1; fi
driver=software
if ((gpu)); then driver=nvidia; fi
passed=0 failed=0 skipped=0 ran=0

# number_after TEXT FILE: the number in GoogleTest's last line "[  TEXT  ] N test...".
number_after() { sed -n "s/^\[  $1 *\] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$2" | tail -n 1; }

run_program() { # NAME TIMEOUT ENVIRONMENT
  local name="$1" limit="$2" log="$logs/$1.log" status=0 p f s left environment=()
  read -r -a environment <<<"$3"
  if ((seconds > 0)); then
    left=$((seconds - SECONDS))
    if ((left <= 0)); then
      printf '%-34s NOT RUN: the %d seconds are over\n' "$name" "$seconds"
      failed=$((failed + 1))
      return
    fi
    # The list's limit is for one test; a whole program gets ten times that, or what is left.
    limit=$((limit * 10 < left ? limit * 10 : left))
  else
    limit=$((limit * 10))
  fi
  local from=$SECONDS
  # In a group of its own, so that bash's word about a program that died goes nowhere.
  {
    env "CTXBROKER_DRIVER=$driver" "${environment[@]}" \
      timeout --kill-after=10 "$limit" "$here/bin/$name" "${arguments[@]}" >"$log" 2>&1
  } 2>/dev/null || status=$?
  ran=$((ran + 1))
  p="$(number_after PASSED "$log")" s="$(number_after SKIPPED "$log")" f="$(number_after FAILED "$log")"
  p="${p:-0}" s="${s:-0}" f="${f:-0}"
  # A program that ended early counts as one failure, whatever it had said before.
  if ((status != 0 && f == 0)) || { ((p + s + f == 0)) && ! grep -q '^\[==========\] 0 tests' "$log"; }; then f=1; fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  printf '%-34s %5d passed %4d failed %4d skipped %5d s' "$name" "$p" "$f" "$s" $((SECONDS - from))
  case $status in
    0 | 1) printf '\n' ;;
    124 | 137) printf '  ran past %d s\n' "$limit" ;;
    *) printf '  ended with status %d\n' "$status" ;;
  esac
  if ((f > 0)); then
    grep -E '^\[  FAILED  \]|: Failure$|ERROR: |WARNING: ThreadSanitizer' "$log" | sort -u | head -n 40
    if ! grep -q '^\[  FAILED  \]' "$log"; then tail -n 15 "$log"; fi
  fi
  # Why tests were skipped: the line after "FILE:LINE: Skipped".
  sed -n '/: Skipped$/{n;s/^/    skipped: /;p}' "$log" | sort | uniq -c | sort -rn | head -n 5
}

while IFS='|' read -r name limit labels environment; do
  if [[ -z "$name" ]]; then continue; fi
  if [[ -n "$only" && ! "$name" =~ $only ]]; then continue; fi
  if [[ ",$labels," == *,slow,* ]] && ((!slow)); then continue; fi
  if ((gpu)) && [[ ",$labels," != *,gpu,* && ",$labels," != *,contract,* ]]; then continue; fi
  if ((list)); then
    printf '%-34s %s\n' "$name" "$labels"
  else
    run_program "$name" "$limit" "$environment"
  fi
done <"$here/test_programs.txt"
if ((list)); then exit 0; fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
if ((ran == 0)); then printf 'run_tests: nothing ran\n' >&2; exit 1; fi
((failed == 0))
