# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the tests here: builds and runs, against an installation, what people build with it.
# The documents' examples are built and run as a reader would do it.
source "$CTXB_SOURCE/tests/scripts/expect.sh"
projects="$CTXB_SOURCE/tests/consumer/projects"
outside="$scratch/outside"
export CTXBROKER_DRIVER=software
unset CTXBROKER_PLUGIN_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH

# A library's SONAME changes with its ABI; the gate has the driver's, and plug-ins have none.
soname_of() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
# gate_of PROGRAM: its place among what the program needs, by number; empty: not there.
gate_of() { readelf -d "$1" | grep NEEDED | grep -n 'ctxbroker_gate\.so' | cut -d : -f 1; }
# code_of DOCUMENT FILE: the block of code that a document gives for a file (```language FILE).
code_of() { awk -v file="$2" '/^```/ { inside = ($2 == file); next } inside' "$CTXB_SOURCE/docs/$1"; }
# expect_said TEXT: in the errors, wherever CMake broke its lines.
expect_said() { [[ "$(tr -s ' \n' ' ' <<<"$err")" == *"$1"* ]] || failed "expected in the errors: $1"; }
exports_of() { nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//'; }

# build_project SOURCE BUILD CMAKE-ARGUMENT...
build_project() {
  local source="$1" build="$2"
  shift 2
  run env -u CTXB_NVCC "$CMAKE" -S "$source" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCTXB_NVCC="$CTXB_NVCC" -DCMAKE_BUILD_TYPE=Release "$@"
  expect_status 0
  run "$CMAKE" --build "$build"
  expect_status 0
}

# consumers PREFIX: everything below.
consumers() {
  prefix="$1"
  mkdir -p "$outside"
  library_names
  components
  plugin_and_host
  plugins_of_the_documents
  host_in_c
  pkg_config
  host_with_its_own_plugins
}

library_names() {
  local library
  for library in libctxbroker libctxbroker_boost_log; do
    [[ "$(soname_of "$prefix/lib/$library.so")" == "$library.so.0" ]] || failed "$library has no versioned SONAME"
  done
  [[ "$(soname_of "$prefix/lib/ctxbroker/ctxbroker_gate.so")" == libcuda.so.1 ]] || failed "the gate's SONAME"
  [[ -z "$(soname_of "$prefix/lib/ctxbroker/plugins/gain.so")" ]] || failed "a plug-in has a SONAME"
  # Nothing may point back into the source or build tree, or into the folder of the installation.
  run grep -rlF -e "$CTXB_SOURCE" -e "$CTXB_BUILD" -e "$scratch" "$prefix/lib/cmake" "$prefix/lib/pkgconfig" "$prefix/include"
  expect_status 1
}

# ask_for WANTED [OPTIONALLY]: configures with these components.
ask_for() {
  run "$CMAKE" -S "$projects/components" -B "$outside/components" -DCMAKE_PREFIX_PATH="$prefix" \
    -DWANTED="$1" -DOPTIONALLY="${2:-OFF}"
}

components() {
  ask_for sdk
  expect_out "has: plugin_sdk;ctxb_add_plugin"
  ask_for broker
  expect_out "has: broker"
  ask_for "boost_log;sdk"
  expect_out "has: plugin_sdk;broker;boost_log;ctxb_add_plugin"
  ask_for software_device
  expect_out "has: software_device"
  ask_for ""
  expect_out "has: plugin_sdk;broker;boost_log;software_device;ctxb_add_plugin"
  ask_for "broker;bosot_log"
  expect_status 1
  expect_said "ctxbroker has no component 'bosot_log'. Its components are sdk, broker, boost_log, software_device."
  ask_for "broker;bosot_log" ON
  expect_status 0
  mv "$prefix/lib/libctxbroker_boost_log.so.$CTXB_VERSION" "$scratch/away"
  ask_for "boost_log"
  expect_status 1
  expect_said "The component 'boost_log' of ctxbroker is not installed here: there is no"
  expect_said "--component boost_log"
  ask_for ""
  expect_out "has: plugin_sdk;broker;software_device;ctxb_add_plugin"
  mv "$scratch/away" "$prefix/lib/libctxbroker_boost_log.so.$CTXB_VERSION"
}

plugin_and_host() {
  local built="$outside/plugin_and_host" plugin
  build_project "$projects/plugin_and_host" "$built"
  plugin="$(find "$built" -name halve.so)"
  expect_file "$plugin"
  # The plug-in shows its entry and nothing else, and needs no CUDA library.
  [[ "$(exports_of "$plugin")" == ctxb_plugin_entry ]] || failed "other symbols than the entry"
  run readelf -d "$plugin"
  [[ "$out" != *libcuda* ]] || failed "the plug-in links a CUDA library"
  [[ "$(gate_of "$built/tiny_host")" == 1 ]] || failed "a host that links the broker does not have the gate first"
  run "$built/tiny_host" "$plugin"
  expect_status 0
  expect_out "org.example.halve on "
  run env CTXBROKER_PLUGIN_PATH="$(dirname "$plugin")" \
    "$prefix/bin/sample_host" audio "$CTXB_SOURCE/assets/tabla.flac" -o "$scratch/half.wav" --plugin halve
  expect_status 0
  expect_file "$scratch/half.wav"
}

plugins_of_the_documents() {
  local documents="$outside/documents" file
  mkdir "$documents"
  for file in vignette.cu vignette.cpp CMakeLists.txt; do
    code_of writing_plugins.md "$file" >"$documents/$file"
  done
  code_of runtime_plugins.md negative.cu >"$documents/negative.cu"
  echo 'ctxb_add_plugin(negative CUDA_SOURCES negative.cu)' >>"$documents/CMakeLists.txt"
  build_project "$documents" "$documents/build"
  run "$prefix/bin/sample_host" list --plugin-path "$documents/build"
  expect_out "How dark the corners get."
  run "$prefix/bin/sample_host" image "$CTXB_SOURCE/assets/flower.png" -o "$scratch/dark.png" \
    --driver software --plugin "$documents/build/vignette.so:amount=1"
  expect_status 0
  expect_out "vignette"
  expect_file "$scratch/dark.png"
  # The one on the runtime API, which carries it inside, is refused where there is no GPU.
  [[ "$(exports_of "$documents/build/negative.so")" == ctxb_plugin_entry ]] || failed "other symbols than the entry"
  run "$prefix/bin/sample_host" list --plugin-path "$documents/build"
  expect_out "needs a GPU"
  run "$prefix/bin/sample_host" image "$CTXB_SOURCE/assets/flower.png" -o "$scratch/negative.png" \
    --driver software --plugin "$documents/build/negative.so"
  expect_status 8
  expect_err "plug-in negative cannot be used here: it needs a GPU"
  expect_no_file "$scratch/negative.png"
}

# It knows no C++ compiler, and runs the installed samples.
host_in_c() {
  local host="$outside/host_c"
  cp -r "$projects/host_c" "$host"
  code_of embedding_in_c.md red_over_grey.c >"$host/red_over_grey.c"
  build_project "$host" "$host/build"
  run "$host/build/red_over_grey" "$prefix/lib/ctxbroker/plugins/blur.so" "$prefix/lib/ctxbroker/plugins/merge.so"
  expect_status 0
  expect_out "the first pixel is 0.75 0.25 0.25 1"
}

pkg_config() {
  local host="$outside/pkgconfig"
  cp -r "$projects/pkgconfig" "$host"
  code_of embedding_in_c.md red_over_grey.c >"$host/red_over_grey.c"
  code_of embedding.md painter.cpp >"$host/painter.cpp"
  cp "$CTXB_SOURCE/tests/fixtures/mixer/mixer.c" "$host/"
  # A driver that has nothing: whoever got it would not find its functions.
  mkdir "$host/stub"
  cc -shared -x c /dev/null -o "$host/stub/libcuda.so.1" -Wl,-soname,libcuda.so.1
  run env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" make -C "$host"
  expect_status 0
  [[ "$(gate_of "$host/red_over_grey")" == 1 ]] || failed "the gate is not first"
  [[ "$(gate_of "$host/painter")" == 1 ]] || failed "the gate is not first"
  run env LD_LIBRARY_PATH="$host/stub" "$host/red_over_grey" "$prefix/lib/ctxbroker/plugins/blur.so" \
    "$prefix/lib/ctxbroker/plugins/merge.so"
  expect_status 0
  expect_out "the first pixel is 0.75 0.25 0.25 1"
  [[ "$(exports_of "$host/mixer.so")" == ctxb_plugin_entry ]] || failed "other symbols than the entry"
  run "$prefix/bin/sample_host" audio "$CTXB_SOURCE/assets/tabla.flac" -o "$scratch/mixed.wav" \
    --plugin "$host/mixer.so"
  expect_status 0
  run env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --atleast-version="$CTXB_VERSION" ctxbroker_plugin_sdk
  expect_status 0
}

host_with_its_own_plugins() {
  local host="$outside/painter" shipped="$scratch/shipped"
  cp -r "$projects/painter" "$host"
  code_of embedding.md halfwhite.c >"$host/halfwhite.c"
  code_of embedding.md painter.cpp >"$host/painter.cpp"
  : >"$host/empty.c"
  run "$CMAKE" -S "$host" -B "$host/build" -G "Unix Makefiles" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCUDA_INCLUDE_DIR="$CTXB_CUDA_INCLUDE_DIR"
  expect_status 0
  run "$CMAKE" --build "$host/build"
  expect_status 0
  [[ "$(gate_of "$host/build/painter_with_driver")" == 1 ]] || failed "the gate is not first"
  [[ -z "$(gate_of "$host/build/painter_without_gate")" ]] || failed "the gate is there"
  run env LD_LIBRARY_PATH="$prefix/lib/ctxbroker/software_device" "$host/build/painter" "$host/build/libhalfwhite.so"
  painted_twice
  expect_err "was given up: to show what comes after"
  [[ "$(sed 's/.*generation \([0-9]*\).*/\1/' <<<"$out" | sort -u | wc -l)" == 2 ]] ||
    failed "the lost lease was not renewed"

  # Shipped with the broker beside it, the host finds the gate there, and has it before the driver
  # that it links; nothing of this machine's paths is left in it.
  run "$CMAKE" --install "$host/build" --prefix "$shipped"
  expect_status 0
  mv "$prefix/lib" "$shipped/lib"
  run readelf -d "$shipped/bin/painter_with_driver"
  [[ "$out" != *"$scratch"* ]] || failed "paths of this machine"
  # A driver that cannot be: whoever got it would not find its functions.
  mkdir "$scratch/other"
  cp "$host/build/stub/libcuda.so.1" "$scratch/other/"
  run env LD_LIBRARY_PATH="$scratch/other" "$shipped/bin/painter_with_driver" "$host/build/libhalfwhite.so"
  painted_twice
  # The control: without the gate it gets that one.
  run env LD_LIBRARY_PATH="$scratch/other:$shipped/lib" \
    "$host/build/painter_without_gate" "$host/build/libhalfwhite.so"
  [[ "$status" != 0 ]] || failed "the plug-in found a driver that is not there"
  mv "$shipped/lib" "$prefix/lib"
}

painted_twice() {
  expect_status 0
  [[ "$(grep -c "status 0, last pixel 255, green lease" <<<"$out")" == 2 ]] || failed "not painted twice"
}
