#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gate's table and its documentation are what their generator writes.
set -euo pipefail
if ! command -v python3 >/dev/null; then
  echo "python3 is not installed: nothing was compared"
  exit 0
fi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
gate="$CTXB_SOURCE/broker/src/gate"
python3 "$gate/make_gate_table.py" "$scratch/table" "$scratch/document"
status=0
compare() {
  if ! diff -q "$1" "$2" >/dev/null; then
    echo "$2 is not up to date; run: broker/src/gate/make_gate_table.py" \
      "broker/src/gate/gate_table.inc docs/guarded_functions.md"
    status=1
  fi
}
compare "$scratch/table" "$gate/gate_table.inc"
compare "$scratch/document" "$CTXB_SOURCE/docs/guarded_functions.md"
exit $status
