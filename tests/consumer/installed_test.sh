#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installation serves projects outside the tree, also after it was moved.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/consumers.sh"
moved="$scratch/some where else"

run "$CMAKE" --install "$CTXB_BUILD" --prefix "$scratch/prefix"
expect_status 0
mv "$scratch/prefix" "$moved"
for file in bin/sample_host bin/ctxb-scan bin/ctxb-run lib/ctxbroker/ctxbroker_launch.so lib/ctxbroker/ctxbroker_run.so lib/libctxbroker.so lib/libctxbroker.so.0 lib/libctxbroker_boost_log.so.0 \
  lib/ctxbroker/libctxbroker_software_device.so include/ctxbroker/version.hpp \
  lib/ctxbroker/software_device/libcuda.so.1 lib/ctxbroker/software_device/libcuda.so \
  lib/ctxbroker/plugins/gain.so lib/ctxbroker/ctxbroker-worker lib/ctxbroker/ctxbroker_gate.so lib/ctxbroker/gate/libcuda.so.1 \
  include/ctxbroker/broker.hpp include/ctxbroker/host.h include/ctxbroker/host_graph.h \
  include/ctxbroker/host_memory.h include/ctxbroker/host_plugins.h include/ctxbroker/host_parameters.h include/ctxbroker/plugin.h \
  include/ctxbroker/plugin.hpp lib/cmake/ctxbroker/ctxbroker-config.cmake \
  lib/pkgconfig/ctxbroker.pc lib/pkgconfig/ctxbroker_plugin_sdk.pc share/doc/ctxbroker/LICENSE \
  share/doc/ctxbroker/policy.schema.json share/doc/ctxbroker/graph.schema.json \
  share/doc/ctxbroker/preset.schema.json share/doc/ctxbroker/manifest.schema.json share/doc/ctxbroker/run_report.schema.json \
  lib/ctxbroker/plugins/gain.ctxb.json; do
  expect_file "$moved/$file"
done
expect_no_file "$moved/include/ctxbroker/version.hpp.in"
# The gate has the driver's SONAME: ldconfig must not make it the machine's driver.
if command -v ldconfig >/dev/null || [[ -x /sbin/ldconfig ]]; then
  run env PATH="$PATH:/sbin:/usr/sbin" ldconfig -n "$moved/lib" "$moved/lib/ctxbroker"
  expect_status 0
  for link in "$moved/lib/libcuda.so.1" "$moved/lib/ctxbroker/libcuda.so.1"; do expect_no_file "$link"; done
fi

# The SDK alone is enough for a plug-in author.
run "$CMAKE" --install "$CTXB_BUILD" --prefix "$scratch/sdk" --component sdk
expect_status 0
cat >"$scratch/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(alone LANGUAGES C CXX)
find_package(ctxbroker_plugin_sdk 0.1 REQUIRED)
ctxb_add_plugin(alone SOURCES mixer.c)
END
cp "$CTXB_SOURCE/tests/fixtures/mixer/mixer.c" "$scratch/"
prefix="$scratch/sdk"
build_project "$scratch" "$scratch/alone"
expect_file "$scratch/alone/alone.so"

consumers "$moved"
