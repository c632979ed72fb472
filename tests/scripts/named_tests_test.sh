#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test that facts.md and defects.md name exists.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# All that a test, a suite or a row of a table can be named in.
grep -rhE --include='*.cpp' --include='*.cu' '[A-Z]' "$CTXB_SOURCE/tests" >"$scratch/tests"
# "TEST_F(Suite, Name) {" and what GoogleTest makes of it, on one line or two.
tr '\n' ' ' <"$scratch/tests" | grep -oE 'TEST(_F|_P)?\( *[A-Za-z0-9]+, *[A-Za-z0-9]+' |
  sed -E 's/^TEST(_F|_P)?\( *//; s/, */./' | sort -u >"$scratch/names"

is_suite() { grep -q "^$1\." "$scratch/names"; }
is_test() { grep -qx "$1" "$scratch/names"; }
is_word() { grep -qE "(^|[^A-Za-z0-9])(DISABLED_)?$1([^A-Za-z0-9]|\$)" "$scratch/tests"; }
is_part() { grep -qF "$1" "$scratch/tests"; }

# exists NAME: as a document writes it, without its backticks; what is no test's name exists too.
exists() {
  local name="$1" suite test row
  if [[ "$name" =~ ^([A-Z][A-Za-z0-9]+)\.([^/]+)(/(.*))?$ ]]; then
    suite="${BASH_REMATCH[1]}" test="${BASH_REMATCH[2]}" row="${BASH_REMATCH[4]}"
    if [[ "$test" == '*' ]]; then is_suite "$suite"; else is_test "$suite.$test"; fi || return 1
    [[ ! "$row" =~ ^[A-Za-z0-9]+$ ]] || is_word "$row"
  elif [[ "$name" =~ ^\.\.\.([A-Z][A-Za-z0-9]+)(\.\.\.)?$ ]]; then
    is_part "${BASH_REMATCH[1]}"  # the name before, with this in it
  elif [[ "$name" =~ ^[A-Z][a-z]+[A-Z][A-Za-z0-9]*$ ]]; then
    is_suite "$name" || is_word "$name"
  fi
}

for right in GreenContext.IsAContextOnceConverted 'FaultTest.*' LoseAnywhereTest cuMemFree \
  OnTwoDevices.ChildTestPasses/PrimaryRetainedOnOneDeviceIsReleasedOnThatDevice; do
  exists "$right" || { echo "$right is not found, but is there" && exit 1; }
done
for wrong in GreenContext.IsNoContext 'NoTest.*' GreenContextTestThatIsNot ...OfNothingAtAll... \
  OnTwoDevices.ChildTestPasses/NothingAtAll; do
  ! exists "$wrong" || { echo "$wrong is found, but is not there" && exit 1; }
done

missing=0
for document in facts defects; do
  file="docs/measurements/$document.md"
  while IFS=: read -r line name; do
    name="${name//\`/}"
    exists "$name" && continue
    echo "$file:$line names $name, which no test is called"
    missing=1
  done < <(grep -noE '`[^`]+`' "$CTXB_SOURCE/$file")
done
exit $missing
