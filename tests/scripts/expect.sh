# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the script tests: a scratch folder, and checks that name what they saw.

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# run COMMAND...: keeps status, standard output and standard error in status, out and err.
run() {
  status=0
  "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  out="$(<"$scratch/out")" err="$(<"$scratch/err")"
}

failed() {
  printf '%s:%s: %s\nstatus: %s\noutput: %s\nerrors: %s\n' \
    "${0##*/}" "${BASH_LINENO[-2]}" "$1" "$status" "$out" "$err"
  exit 1
}
expect_status() { [[ "$status" == "$1" ]] || failed "expected status $1"; }
expect_out() { [[ "$out" == *"$1"* ]] || failed "expected in the output: $1"; }
expect_err() { [[ "$err" == *"$1"* ]] || failed "expected in the errors: $1"; }
expect_file() { [[ -f "$1" ]] || failed "expected a file: $1"; }
expect_no_file() { [[ ! -e "$1" ]] || failed "expected no file: $1"; }
