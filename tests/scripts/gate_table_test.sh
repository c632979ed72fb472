#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of the driver's functions and its documentation are what their generator writes.
set -euo pipefail
if ! command -v python3 >/dev/null; then
  echo "python3 is not installed: nothing was compared"
  exit 0
fi
python3 "$CTXB_SOURCE/broker/shared/driver/make_function_table.py" --check
