#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels of a folder with public_kernels.py, runs them on a driver, and compares that with
# itself. Arguments: PYTHON NVCC DRIVER FOLDER
set -euo pipefail
script="$(dirname "${BASH_SOURCE[0]}")/public_kernels.py"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$1" "$script" compile "$folder" "$4" --nvcc "$2"
"$1" "$script" run "$folder" "$3"
"$1" "$script" run "$folder" "$3" "$3" | tee "$folder/compared"
grep -q "14 launches: {'same bits': 14}" "$folder/compared"
