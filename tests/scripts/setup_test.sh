#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/setup on a machine it cannot use as it is: what it passes over, and what it says.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
cp -r "$CTXB_SOURCE/tools" "$scratch/tools"
setup="$scratch/tools/setup"
export CTXB_SKIP_PACKAGES=1
unset CTXB_CUDA_ROOT CTXB_IGNORE_INSTALLED_CUDA CUDA_HOME CUDA_PATH

# fake_toolkit FOLDER VERSION: an nvcc that only knows its version.
fake_toolkit() {
  mkdir -p "$1/bin" "$1/include"
  printf '#!/bin/sh\n[ "$1" = --version ] || exit 1\necho "Cuda compilation tools, release %s, V%s.1"\n' \
    "$2" "$2" >"$1/bin/nvcc"
  chmod +x "$1/bin/nvcc"
  touch "$1/include/cuda.h"
}

run "$setup" --nonsense
expect_status 2
expect_err "unknown argument: --nonsense"

# The toolkit of this build is taken, checked by compiling, and written down.
real="$(dirname "$(dirname "$CTXB_NVCC")")"
run env CTXB_CUDA_ROOT="$real" "$setup"
expect_status 0
expect_out "CTXB_CUDA_ROOT=$real"
expect_file "$scratch/build/cuda_root"
[[ "$(<"$scratch/build/cuda_root")" == "$real" ]] || failed "build/cuda_root names another toolkit"

run env CTXB_CUDA_ROOT="$scratch/nowhere" "$setup"
expect_status 1
expect_err "CTXB_CUDA_ROOT=$scratch/nowhere has no bin/nvcc"

fake_toolkit "$scratch/old" 12.3
run env CTXB_CUDA_ROOT="$scratch/old" "$setup"
expect_status 1
expect_err "is CUDA 12.3; 12.4 or later is needed"

# An old one in CUDA_HOME is passed over by name. What follows depends on the machine.
run env CUDA_HOME="$scratch/old" PIP_NO_INDEX=1 PIP_FIND_LINKS= "$setup"
expect_err "not used: $scratch/old is CUDA 12.3"

fake_toolkit "$scratch/bare" 12.10
rm "$scratch/bare/include/cuda.h"
run env CTXB_CUDA_ROOT="$scratch/bare" "$setup"
expect_status 1
expect_err "has no include/cuda.h"

# New enough (12.10 is above 12.4), but it compiles nothing.
fake_toolkit "$scratch/broken" 12.10
run env CTXB_CUDA_ROOT="$scratch/broken" "$setup"
expect_status 1
expect_err "$scratch/broken/bin/nvcc does not compile a small kernel"

# Nothing to fetch from: one clear message, nothing half-fetched left behind.
if python3 -m pip --version >/dev/null 2>&1; then
  run env CTXB_IGNORE_INSTALLED_CUDA=1 PIP_NO_INDEX=1 PIP_FIND_LINKS= "$setup"
  expect_status 1
  expect_err "pip could not fetch the CUDA compiler"
  expect_err "CUDA_HOME"
  expect_no_file "$scratch/build/cuda"
  [[ -z "$(compgen -G "$scratch/build/cuda-fetch*")" ]] || failed "left a half-fetched folder"
fi
