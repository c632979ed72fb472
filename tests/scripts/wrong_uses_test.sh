#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wrong uses of ctxb_add_plugin end when the project is configured, with words that help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

project="$scratch/project"
mkdir "$project"
cat >"$project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(wrong_uses LANGUAGES CXX)
include(${SDK}/cmake/CtxbAddPlugin.cmake)
include(${CMAKE_SOURCE_DIR}/case.cmake)
END
cd "$project"
printf '#include <ctxbroker/plugin.hpp>\nCTXB_EXPORT_PLUGINS(Nothing)\n' >good.cpp
printf '#include "entry.hpp"\n' >by_header.cpp
printf 'CTXB_EXPORT_PLUGINS(Nothing)\n' >entry.hpp
printf 'int nothing;\n' >silent.cpp
printf '__global__ void k() {}\n' >k.cu
cp k.cu two-words.cu
mkdir other
cp k.cu other/k.cu
printf '.version 7.0\n' >assembly.ptx
cp k.cu k.cpp
printf '#!/bin/sh\necho "gcc 12.2"\n' >no_nvcc
chmod +x no_nvcc

# configure TEXT [ARGUMENT...]: with TEXT as the project's own part.
configure() {
  printf '%s\n' "$1" >"$project/case.cmake"
  shift
  run env CTXB_NVCC= "$CMAKE" -S "$project" -B "$scratch/build" -G Ninja -DSDK="$CTXB_SOURCE/plugin_sdk" \
    -DCTXB_NVCC="$CTXB_NVCC" -UCTXB_TRIED_NVCC "$@"
  err="$(tr -s ' \n' ' ' <<<"$err")"
}
good() {
  configure "$@"
  expect_status 0
}
# wrong WORDS TEXT [ARGUMENT...]
wrong() {
  local words="$1"
  shift
  configure "$@"
  [[ "$status" != 0 ]] || failed "it was taken: $1"
  expect_err "$words"
}

good 'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu assembly.ptx)'
good 'ctxb_add_plugin(a SOURCES by_header.cpp)'
good 'set(CTXB_ENTRY_ELSEWHERE ON)
ctxb_add_plugin(a SOURCES silent.cpp)'

wrong 'ctxb_add_plugin(a): unknown arguments HEADERS;x.hpp. The keywords are SOURCES, KERNELS,' \
  'ctxb_add_plugin(a HEADERS x.hpp SOURCES good.cpp)'
wrong 'SOURCES names KERNEL, and there is no file' 'ctxb_add_plugin(a SOURCES good.cpp KERNEL k.cu)'
wrong 'If it was meant as a keyword: The keywords are SOURCES, KERNELS,' \
  'ctxb_add_plugin(a SOURCES good.cpp KERNEL k.cu)'
wrong 'KERNELS names missing.cu, and there is no file' 'ctxb_add_plugin(a SOURCES good.cpp KERNELS missing.cu)'
wrong 'SOURCES names missing.cpp, and there is no file' 'ctxb_add_plugin(a SOURCES missing.cpp)'
wrong 'SOURCES is empty' 'ctxb_add_plugin(a KERNELS k.cu)'
wrong 'KERNELS stands there without a file' 'ctxb_add_plugin(a SOURCES good.cpp KERNELS ${unset})'
wrong 'LINK stands there without KERNELS to link' 'ctxb_add_plugin(a SOURCES good.cpp LINK)'
wrong 'KERNELS names k.cpp, which is no .cu and no .ptx file' 'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cpp)'
wrong "the file name of 'two-words.cu' must be a C identifier" 'ctxb_add_plugin(a SOURCES good.cpp KERNELS two-words.cu)'
wrong "two kernel files are called 'k'" 'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu other/k.cu)'
wrong 'none of the sources (silent.cpp) exports a plug-in, so no host could use the library' \
  'ctxb_add_plugin(a SOURCES silent.cpp KERNELS k.cu)'
wrong 'Write CTXB_EXPORT_PLUGINS(...)' 'ctxb_add_plugin(a SOURCES silent.cpp)'
wrong 'there is a target of this name already' 'ctxb_add_plugin(a SOURCES good.cpp)
ctxb_add_plugin(a SOURCES good.cpp)'
wrong "the name 'two words' must be a C identifier" 'ctxb_add_plugin("two words" SOURCES good.cpp)'
wrong "'sm_75' is no architecture; write 75-virtual" \
  'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu ARCHITECTURES sm_75)'
wrong "CUDART is 'dynamic'; write static or shared" 'ctxb_add_plugin(a SOURCES good.cpp CUDART dynamic)'
wrong 'CTXB_NVCC names /nowhere/nvcc, and there is no such file' \
  'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu)' -DCTXB_NVCC=/nowhere/nvcc
wrong "CTXB_NVCC is 'nvcc'. Write the whole path" \
  'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu)' -DCTXB_NVCC=nvcc
wrong "which is no CUDA compiler: \`$project/no_nvcc --version\` says no release (0)" \
  'ctxb_add_plugin(a SOURCES good.cpp KERNELS k.cu)' -DCTXB_NVCC="$project/no_nvcc"

sed -i 's/LANGUAGES CXX/LANGUAGES C/' CMakeLists.txt
rm -r "$scratch/build"
cp good.cpp good.c
wrong 'this project has no C++. Write project(NAME LANGUAGES C CXX)' 'ctxb_add_plugin(a SOURCES good.c)'
