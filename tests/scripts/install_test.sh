#!/usr/bin/env bash
# An installation serves a project outside the tree: a plug-in and a host are built with
# find_package(ctxbroker) alone, and the installed sample_host runs the plug-in.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
prefix="$scratch/prefix"
outside="$scratch/outside"
built="$scratch/built"

run "$CMAKE" --install "$CTXB_BUILD" --prefix "$prefix"
expect_status 0
for file in bin/sample_host lib/libctxbroker.so lib/libctxbroker_software_device.so \
  lib/software_device/libcuda.so.1 plugins/gain.so include/ctxbroker/broker.hpp \
  include/ctxbroker/plugin.h include/ctxbroker/plugin.hpp lib/cmake/ctxbroker/ctxbroker-config.cmake; do
  expect_file "$prefix/$file"
done
# Nothing installed may point back into the source or build tree.
run grep -rlF -e "$CTXB_SOURCE" -e "$CTXB_BUILD" "$prefix/lib/cmake" "$prefix/include"
expect_status 1

cp -r "$CTXB_SOURCE/tests/scripts/outside_tree/project" "$outside"
run env -u CTXB_NVCC "$CMAKE" -S "$outside" -B "$built" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCTXB_NVCC="$CTXB_NVCC" -DCMAKE_BUILD_TYPE=Release
expect_status 0
run "$CMAKE" --build "$built"
expect_status 0
plugin="$(find "$built" -name halve.so)"
expect_file "$plugin"

# The plug-in shows its entry and nothing else, and needs no CUDA library.
run nm -D --defined-only "$plugin"
[[ "$(awk '{print $3}' <<<"$out" | sed 's/@.*//')" == ctxb_plugin_entry ]] || failed "other symbols than the entry"
run readelf -d "$plugin"
[[ "$out" != *libcuda* ]] || failed "the plug-in links a CUDA library"

run env CTXBROKER_DRIVER=software "$built/tiny_host" "$plugin"
expect_status 0
expect_out "org.example.halve on "

run env CTXBROKER_DRIVER=software CTXBROKER_PLUGIN_PATH="$(dirname "$plugin")" \
  "$prefix/bin/sample_host" audio "$CTXB_SOURCE/assets/tabla.flac" -o "$scratch/half.wav" --plugin halve
expect_status 0
expect_file "$scratch/half.wav"
