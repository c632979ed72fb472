#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installation serves projects outside the tree: a plug-in and a host are built with
# find_package(ctxbroker) alone, and the installed sample_host runs the plug-in. The documents'
# examples are built and run as a reader would do it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
prefix="$scratch/prefix"
outside="$scratch/outside"
built="$scratch/built"

run "$CMAKE" --install "$CTXB_BUILD" --prefix "$prefix"
expect_status 0
for file in bin/sample_host lib/libctxbroker.so lib/libctxbroker.so.0 lib/libctxbroker_boost_log.so.0 \
  lib/libctxbroker_software_device.so include/ctxbroker/version.hpp \
  lib/software_device/libcuda.so.1 lib/software_device/libcuda.so plugins/gain.so \
  include/ctxbroker/broker.hpp include/ctxbroker/host.h include/ctxbroker/host_graph.h \
  include/ctxbroker/host_memory.h include/ctxbroker/host_plugins.h \
  include/ctxbroker/plugin.h include/ctxbroker/plugin.hpp lib/cmake/ctxbroker/ctxbroker-config.cmake \
  share/doc/ctxbroker/policy.schema.json share/doc/ctxbroker/graph.schema.json \
  share/doc/ctxbroker/preset.schema.json include/ctxbroker/host_parameters.h \
  lib/ctxbroker/ctxbroker_gate.so \
  lib/ctxbroker/gate/libcuda.so.1; do
  expect_file "$prefix/$file"
done
# The gate has the driver's SONAME: ldconfig must not make it the machine's driver.
if command -v ldconfig >/dev/null || [[ -x /sbin/ldconfig ]]; then
  run env PATH="$PATH:/sbin:/usr/sbin" ldconfig -n "$prefix/lib" "$prefix/lib/ctxbroker"
  expect_status 0
  for link in "$prefix/lib/libcuda.so.1" "$prefix/lib/ctxbroker/libcuda.so.1"; do
    if [[ -e "$link" ]]; then failed "ldconfig made $link"; fi
  done
fi
# A library's SONAME changes with its ABI; the gate has the driver's, and plug-ins have none.
soname_of() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
for library in libctxbroker libctxbroker_boost_log; do
  [[ "$(soname_of "$prefix/lib/$library.so")" == "$library.so.0" ]] || failed "$library has no versioned SONAME"
done
[[ "$(soname_of "$prefix/lib/ctxbroker/ctxbroker_gate.so")" == libcuda.so.1 ]] || failed "the gate's SONAME"
[[ -z "$(soname_of "$prefix/plugins/gain.so")" ]] || failed "a plug-in has a SONAME"
if [[ -e "$prefix/include/ctxbroker/version.hpp.in" ]]; then failed "the template is installed"; fi
# gate_of PROGRAM: its place among what the program needs, by number; empty: not there.
gate_of() { readelf -d "$1" | grep NEEDED | grep -n 'ctxbroker_gate\.so' | cut -d : -f 1; }
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

[[ "$(gate_of "$built/tiny_host")" == 1 ]] || failed "a host that links the broker does not have the gate first"
run env CTXBROKER_DRIVER=software "$built/tiny_host" "$plugin"
expect_status 0
expect_out "org.example.halve on "

run env CTXBROKER_DRIVER=software CTXBROKER_PLUGIN_PATH="$(dirname "$plugin")" \
  "$prefix/bin/sample_host" audio "$CTXB_SOURCE/assets/tabla.flac" -o "$scratch/half.wav" --plugin halve
expect_status 0
expect_file "$scratch/half.wav"

# code_of DOCUMENT FILE: the block of code that a document gives for a file (```language FILE).
code_of() {
  awk -v file="$2" '/^```/ { inside = ($2 == file); next } inside' "$CTXB_SOURCE/docs/$1"
}

documents="$scratch/documents"
mkdir "$documents" "$documents/host"
for file in vignette.cu vignette.cpp negative.cu CMakeLists.txt; do
  code_of writing_plugins.md "$file" >"$documents/$file"
done
echo 'ctxb_add_plugin(negative CUDA_SOURCES negative.cu)' >>"$documents/CMakeLists.txt"
run "$CMAKE" -S "$documents" -B "$documents/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCTXB_NVCC="$CTXB_NVCC" -DCMAKE_BUILD_TYPE=Release
expect_status 0
run "$CMAKE" --build "$documents/build"
expect_status 0
run "$prefix/bin/sample_host" list --plugin-path "$documents/build"
expect_out "How dark the corners get."
run "$prefix/bin/sample_host" image "$CTXB_SOURCE/assets/flower.png" -o "$scratch/dark.png" \
  --driver software --plugin "$documents/build/vignette.so:amount=1"
expect_status 0
expect_out "vignette"
expect_file "$scratch/dark.png"
# The one on the runtime API, which carries it inside, is refused where there is no GPU.
run nm -D --defined-only "$documents/build/negative.so"
[[ "$(awk '{print $3}' <<<"$out" | sed 's/@.*//')" == ctxb_plugin_entry ]] || failed "other symbols than the entry"
run "$prefix/bin/sample_host" list --plugin-path "$documents/build"
expect_out "needs a GPU"
run "$prefix/bin/sample_host" image "$CTXB_SOURCE/assets/flower.png" -o "$scratch/negative.png" \
  --driver software --plugin "$documents/build/negative.so"
expect_status 8
expect_err "plug-in negative cannot be used here: it needs a GPU"
if [[ -e "$scratch/negative.png" ]]; then failed "a file was written"; fi

# The host with plug-ins of a format of its own. The plug-in links the driver by its name alone, so
# an empty library of that name does for the linker.
code_of embedding.md halfwhite.c >"$documents/host/halfwhite.c"
code_of embedding.md painter.cpp >"$documents/host/painter.cpp"
cat >"$documents/host/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(painter LANGUAGES C CXX)
find_package(ctxbroker REQUIRED)
add_library(cuda SHARED empty.c)
set_target_properties(cuda PROPERTIES SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY stub)
add_library(halfwhite MODULE halfwhite.c)
target_include_directories(halfwhite PRIVATE ${CUDA_INCLUDE_DIR})
target_link_options(halfwhite PRIVATE LINKER:--no-as-needed)
target_link_libraries(halfwhite PRIVATE cuda)
set_target_properties(halfwhite PROPERTIES SKIP_BUILD_RPATH ON)
# Two link the driver too, and that first; one of them does without the gate.
foreach(name painter painter_with_driver painter_without_gate)
  add_executable(${name} painter.cpp)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
endforeach()
foreach(name painter_with_driver painter_without_gate)
  target_link_options(${name} PRIVATE LINKER:--no-as-needed)
  target_link_libraries(${name} PRIVATE cuda)
endforeach()
set_target_properties(painter_without_gate PROPERTIES CTXBROKER_LINK_GATE OFF)
foreach(name painter painter_with_driver painter_without_gate)
  target_link_libraries(${name} PRIVATE ctxbroker::broker)
endforeach()
install(TARGETS painter_with_driver DESTINATION bin)
END
: >"$documents/host/empty.c"
run "$CMAKE" -S "$documents/host" -B "$documents/host/build" -G "Unix Makefiles" \
  -DCMAKE_PREFIX_PATH="$prefix" -DCUDA_INCLUDE_DIR="$CTXB_CUDA_INCLUDE_DIR"
expect_status 0
run "$CMAKE" --build "$documents/host/build"
expect_status 0
[[ "$(gate_of "$documents/host/build/painter_with_driver")" == 1 ]] || failed "the gate is not first"
[[ -z "$(gate_of "$documents/host/build/painter_without_gate")" ]] || failed "the gate is there"
painter=(env CTXBROKER_DRIVER=software "$documents/host/build/painter" "$documents/host/build/libhalfwhite.so")
run env LD_LIBRARY_PATH="$prefix/lib/software_device" "${painter[@]}"
expect_status 0
expect_err "was given up: to show what comes after"
[[ "$(grep -c "status 0, last pixel 255, green lease" <<<"$out")" == 2 ]] || failed "not painted twice"
[[ "$(sed 's/.*generation \([0-9]*\).*/\1/' <<<"$out" | sort -u | wc -l)" == 2 ]] ||
  failed "the lost lease was not renewed"

# The host in C, with the installed samples.
code_of embedding.md red_over_grey.c >"$documents/host/red_over_grey.c"
cat >>"$documents/host/CMakeLists.txt" <<'END'
add_executable(red_over_grey red_over_grey.c)
set_target_properties(red_over_grey PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF)
target_compile_options(red_over_grey PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(red_over_grey PRIVATE ctxbroker::broker)
END
run "$CMAKE" --build "$documents/host/build"
expect_status 0
run env CTXBROKER_DRIVER=software "$documents/host/build/red_over_grey" "$prefix/plugins/blur.so" "$prefix/plugins/merge.so"
expect_status 0
expect_out "the first pixel is 0.75 0.25 0.25 1"

# Shipped with the broker beside it, the host finds the gate there, and has it before the driver that
# it links; nothing of this machine's paths is left in it.
run "$CMAKE" --install "$documents/host/build" --prefix "$scratch/shipped"
expect_status 0
mv "$prefix/lib" "$scratch/shipped/lib"
run readelf -d "$scratch/shipped/bin/painter_with_driver"
[[ "$out" != *"$scratch"* ]] || failed "paths of this machine"
# A driver that cannot be: whoever got it would not find its functions.
mkdir "$scratch/other"
cp "$documents/host/build/stub/libcuda.so.1" "$scratch/other/"
run env CTXBROKER_DRIVER=software LD_LIBRARY_PATH="$scratch/other" \
  "$scratch/shipped/bin/painter_with_driver" "$documents/host/build/libhalfwhite.so"
expect_status 0
[[ "$(grep -c "status 0, last pixel 255, green lease" <<<"$out")" == 2 ]] || failed "not painted twice"
# The control: without the gate it gets that one.
run env CTXBROKER_DRIVER=software LD_LIBRARY_PATH="$scratch/other:$scratch/shipped/lib" \
  "$documents/host/build/painter_without_gate" "$documents/host/build/libhalfwhite.so"
[[ "$status" != 0 ]] || failed "the plug-in found a driver that is not there"
