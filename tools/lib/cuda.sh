# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: finds a CUDA Toolkit, or fetches NVIDIA's compiler and headers.
# What is found: a folder with bin/nvcc of CUDA 12.4 or later and include/cuda.h beside it.

cuda_least=12.4
cuda_fetched="$ctxb_root/build/cuda"         # where the fetched compiler goes
cuda_wheels="$ctxb_root/tools/cuda-wheels.txt" # what is fetched: versions and hashes

# cuda_version NVCC: "13.0", or nothing when it does not run.
cuda_version() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p'; }

version_at_least() { [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

cuda_has_headers() {
  [[ -f "$1/include/cuda.h" || -f "$1/targets/x86_64-linux/include/cuda.h" ]]
}

# cuda_usable ROOT: sets cuda_why_not and returns 1 when ROOT is of no use.
cuda_usable() {
  local version=""
  cuda_why_not=""
  if [[ -x "$1/bin/nvcc" ]]; then version="$(cuda_version "$1/bin/nvcc")" || true; fi
  if [[ ! -x "$1/bin/nvcc" ]]; then
    cuda_why_not="has no bin/nvcc"
  elif [[ -z "$version" ]]; then
    cuda_why_not="has a bin/nvcc that does not run"
  elif ! version_at_least "$version" "$cuda_least"; then
    cuda_why_not="is CUDA $version; $cuda_least or later is needed"
  elif ! cuda_has_headers "$1"; then
    cuda_why_not="has no include/cuda.h"
  fi
  [[ -z "$cuda_why_not" ]]
}

# cuda_find: prints the first usable installed toolkit; says on stderr why others were passed over.
cuda_find() {
  local candidate candidates=() on_path seen=":"
  candidates+=("${CUDA_HOME:-}" "${CUDA_PATH:-}")
  if on_path="$(command -v nvcc)"; then
    on_path="$(readlink -f "$on_path")"
    candidates+=("${on_path%/bin/nvcc}")
  fi
  candidates+=(/usr/local/cuda)
  while IFS= read -r candidate; do candidates+=("$candidate"); done \
    < <(compgen -G '/usr/local/cuda-*' | sort -rV)
  candidates+=(/opt/cuda)
  for candidate in "${candidates[@]}"; do
    if [[ -z "$candidate" || ! -e "$candidate" || "$seen" == *":$candidate:"* ]]; then continue; fi
    seen+="$candidate:"
    if cuda_usable "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
    warn "not used: $candidate $cuda_why_not."
  done
  return 1
}

# cuda_fetch: puts the compiler and headers into build/cuda, whole or not at all; once.
cuda_fetch() {
  local work stamp="$cuda_fetched/.fetched" wheel
  if [[ -f "$stamp" ]] && cmp -s "$stamp" "$cuda_wheels"; then return 0; fi
  if [[ "$(uname -s) $(uname -m)" != "Linux x86_64" ]]; then
    fail "no CUDA Toolkit $cuda_least or later found, and fetching one is only set up for Linux x86_64 (this is $(uname -sm))." \
      "Install a CUDA Toolkit and set CUDA_HOME to its folder."
  fi
  if ! python3 -m pip --version >/dev/null 2>&1; then install_packages "${packages_fetch[@]}"; fi
  say "fetching NVIDIA's CUDA compiler and headers (about 105 MB, from the Python package index)"
  mkdir -p "$ctxb_root/build"
  work="$(mktemp -d "$ctxb_root/build/cuda-fetch.XXXXXX")"
  if ! python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
    --require-hashes --dest "$work/wheels" --requirement "$cuda_wheels" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    rm -rf "$work"
    fail "pip could not fetch the CUDA compiler (its words above)." \
      "It needs the network (pypi.org, or the index that pip is set to use)." \
      "Or install a CUDA Toolkit of $cuda_least or later and set CUDA_HOME to its folder."
  fi
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked"; done
  # A wheel keeps no execute permissions.
  find "$work/unpacked/nvidia/cu13" -path '*/bin/*' -type f -exec chmod +x {} +
  rm -rf "$cuda_fetched"
  mv "$work/unpacked/nvidia/cu13" "$cuda_fetched"
  rm -rf "$work"
  if ! cuda_usable "$cuda_fetched"; then fail "what was fetched into $cuda_fetched $cuda_why_not."; fi
  cp "$cuda_wheels" "$stamp"
}

# cuda_check ROOT: compiles a kernel, once per compiler, so that a broken toolkit is told of here.
cuda_check() {
  local work stamp="$ctxb_root/build/cuda_checked" now
  now="$1 $(stat -L -c '%Y %s' "$1/bin/nvcc")"
  if [[ -f "$stamp" && "$(<"$stamp")" == "$now" ]]; then return 0; fi
  mkdir -p "$ctxb_root/build"
  work="$(mktemp -d)"
  cat >"$work/check.cu" <<'END'
#include <cuda.h>
#include <cudaTypedefs.h>
extern "C" __global__ void check(float* values, int count) {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = powf(values[i], 2.5f);
}
END
  if ! "$1/bin/nvcc" -fatbin -gencode arch=compute_75,code=compute_75 -o "$work/check.fatbin" \
    "$work/check.cu" >"$work/log" 2>&1 || [[ ! -s "$work/check.fatbin" ]]; then
    cat "$work/log" >&2
    rm -rf "$work"
    fail "$1/bin/nvcc does not compile a small kernel (its words above)." \
      "Set CUDA_HOME to another toolkit, or CTXB_IGNORE_INSTALLED_CUDA=1 to have one fetched."
  fi
  rm -rf "$work"
  printf '%s' "$now" >"$stamp"
}

# cuda_choose: sets cuda_root to the toolkit that the build is to use.
cuda_choose() {
  if [[ -n "${CTXB_CUDA_ROOT:-}" ]]; then
    cuda_root="$CTXB_CUDA_ROOT"
    if ! cuda_usable "$cuda_root"; then fail "CTXB_CUDA_ROOT=$cuda_root $cuda_why_not."; fi
  elif [[ "${CTXB_IGNORE_INSTALLED_CUDA:-0}" == 1 ]] || ! cuda_root="$(cuda_find)"; then
    cuda_fetch
    cuda_root="$cuda_fetched"
  fi
  cuda_check "$cuda_root"
}
