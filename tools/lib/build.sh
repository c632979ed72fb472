# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: configures and builds a preset with the toolkit that tools/setup chose.

# configure PRESET: runs CMake unless the build folder already stands with the same toolkit (Ninja
# runs CMake again by itself when a CMakeLists.txt changes).
configure() {
  local preset="$1" folder="build/$1" cuda_root arguments
  cuda_root="$(<build/cuda_root)"
  if [[ -f "$folder/build.ninja" && ! CMakePresets.json -nt "$folder/build.ninja" ]] &&
    grep -qxF "CTXB_CUDA_ROOT:PATH=$cuda_root" "$folder/CMakeCache.txt"; then return 0; fi
  arguments=("-DCTXB_CUDA_ROOT:PATH=$cuda_root")
  if command -v ccache >/dev/null; then
    arguments+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  say "configuring $folder"
  mkdir -p "$folder"
  if ! cmake --preset "$preset" "${arguments[@]}" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    # A half-configured folder must not pass for a whole one next time.
    rm -f "$folder/build.ninja"
    fail "CMake could not configure the preset $preset (its words above)."
  fi
}

# build PRESET [TARGET...]: everything without targets.
build() {
  local preset="$1" quiet=()
  shift
  if [[ ! -t 1 ]]; then quiet=(--quiet); fi
  say "building $preset"
  if ! ninja -C "build/$preset" -j "${CTXB_JOBS:-$(nproc)}" "${quiet[@]}" "$@"; then
    fail "the build of the preset $preset failed (above)."
  fi
}
