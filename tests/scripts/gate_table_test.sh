#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of the driver's functions and its documentation are what their generator writes. The list
# of the handles that these functions take has all that the toolkit's headers have.
set -euo pipefail
if ! command -v python3 >/dev/null; then
  echo "python3 is not installed: nothing was compared"
  exit 0
fi
python3 "$CTXB_SOURCE/broker/shared/driver/make_function_table.py" --check
if [[ -f $CTXB_CUDA_INCLUDE_DIR/cudaTypedefs.h ]]; then
  python3 "$CTXB_SOURCE/tests/scripts/handle_parameters.py" --check "$CTXB_CUDA_INCLUDE_DIR"
fi
