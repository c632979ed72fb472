#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sums of tools/test: passed, failed, skipped and never built are told apart.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
mkdir -p "$scratch/build/good" "$scratch/build/bad" "$scratch/build/unbuilt"
cp -r "$CTXB_SOURCE/tools" "$scratch/tools"

ctest_file() { printf '%s\n' "${@:2}" >"$scratch/build/$1/CTestTestfile.cmake"; }
skip_like_googletest="printf 'a.cpp:1: Skipped\nno NVIDIA GPU & no <driver>\n\n[  SKIPPED ] x\n'"
ctest_file good \
  'add_test(one "true")' \
  'add_test(two "true")' \
  "add_test(three \"bash\" \"-c\" \"${skip_like_googletest//\\/\\\\}\")" \
  'set_tests_properties(three PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")' \
  'add_test(four "false")' \
  'set_tests_properties(four PROPERTIES DISABLED TRUE)'
ctest_file bad 'add_test(one "true")' 'add_test(two "false")'
ctest_file unbuilt 'add_test(one "true")' 'add_test(two "/nowhere/at/all")'

cat >"$scratch/tools/sum" <<'END'
#!/usr/bin/env bash
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source tools/lib/suite.sh
for preset in "$@"; do run_suite "$preset" "$preset"; done
summary
END
chmod +x "$scratch/tools/sum"
last_line() { tail -n 1 "$scratch/out"; }

run "$scratch/tools/sum" good
expect_status 0
expect_out "skipped 1: no NVIDIA GPU & no <driver>"
[[ "$(last_line)" == "2 passed, 0 failed, 1 skipped" ]] || failed "wrong sum"

run "$scratch/tools/sum" good bad
expect_status 1
[[ "$(last_line)" == "3 passed, 1 failed, 1 skipped" ]] || failed "wrong sum"

run "$scratch/tools/sum" unbuilt
expect_status 1
[[ "$(last_line)" == "1 passed, 1 failed, 0 skipped" ]] || failed "wrong sum"

# Nothing ran: that is no success.
mkdir "$scratch/build/empty" && ctest_file empty ''
run "$scratch/tools/sum" empty
expect_status 1
