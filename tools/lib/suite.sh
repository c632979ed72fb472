# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: runs CTest suites and sums them up.

suite_passed=0
suite_failed=0
suite_skipped=0
suite_report="" # one line per suite

# fixed_addresses: a prefix that turns address randomisation off, where that is allowed. The
# sanitizers of GCC 12 do not start on kernels that randomise more bits than they knew.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi

# count NAME PASSED FAILED SKIPPED
count() {
  suite_passed=$((suite_passed + $2))
  suite_failed=$((suite_failed + $3))
  suite_skipped=$((suite_skipped + $4))
  suite_report+="$(printf '  %-22s %5d passed %5d failed %5d skipped' "$1" "$2" "$3" "$4")"$'\n'
}

# run_suite NAME PRESET CTEST-ARGUMENT...
run_suite() {
  local name="$1" folder="build/$2" status=0 junit tests failed skipped unbuilt
  shift 2
  junit="$ctxb_root/$folder/junit-$name.xml"
  rm -f "$junit"
  say "testing $name"
  "${fixed_addresses[@]}" ctest --test-dir "$folder" -j "${CTXB_JOBS:-$(nproc)}" \
    --output-on-failure --no-tests=ignore --output-junit "$junit" "$@" \
    >"$folder/ctest-$name.log" 2>&1 || status=$?
  # Disabled tests are parts of others, run by them as child processes.
  tests=$(($(junit_attribute "$junit" tests) - $(junit_attribute "$junit" disabled)))
  failed="$(junit_attribute "$junit" failures)"
  skipped="$(junit_attribute "$junit" skipped)"
  # The report calls a program that was not built skipped; here it has failed.
  unbuilt="$(grep -cE '^[[:space:]]+[0-9]+ - .* \(Not Run\)' "$folder/ctest-$name.log")" || true
  failed=$((failed + unbuilt)) skipped=$((skipped - unbuilt))
  if ((status != 0 && failed == 0)); then failed=1 tests=$((tests + 1)); fi
  if ((failed > 0)); then grep -vE '^ *[0-9]+/[0-9]+ .* Passed|^ *Start +[0-9]+:' "$folder/ctest-$name.log" || true; fi
  count "$name" $((tests - failed - skipped)) "$failed" "$skipped"
  skip_reasons "$junit"
}

# junit_attribute FILE NAME: a number from the head of CTest's report; 0 when there is none.
junit_attribute() {
  local value=""
  if [[ -f "$1" ]]; then
    value="$(sed -n '/<testsuite /,/>/p' "$1" | grep -oE "\b$2=\"[0-9]+\"" | head -n 1 | tr -dc 0-9)" || true
  fi
  printf '%d' "${value:-0}"
}

# skip_reasons FILE: how many tests were skipped, and the reason each group of them gave.
skip_reasons() {
  if [[ ! -f "$1" ]]; then return 0; fi
  awk '
    /<testcase / { skipped = 0; reason = "" }
    /<skipped/ { skipped = 1 }
    skipped && /: Skipped$/ { getline reason }
    /<\/testcase>/ && skipped { reasons[reason == "" ? "no reason given" : reason]++ }
    END { for (r in reasons) printf "  skipped %d: %s\n", reasons[r], r }' "$1" |
    sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g'
}

# run_check NAME COMMAND...: one thing that passes or fails as a whole.
run_check() {
  local name="$1"
  shift
  say "checking $name"
  if "$@"; then count "$name" 1 0 0; else count "$name" 0 1 0; fi
}

# summary: the report, and last the line "N passed, N failed, N skipped"; status 1 on a failure.
summary() {
  printf '\n%s%d passed, %d failed, %d skipped\n' "$suite_report" \
    "$suite_passed" "$suite_failed" "$suite_skipped"
  ((suite_failed == 0 && suite_passed > 0))
}
