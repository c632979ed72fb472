#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the host of docs/workers.md, and the host, the module and the plug-ins of docs/workers_own_format.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

code_of() { # PAGE FILE
  awk -v file="$2" '$0 ~ "^```[a-z]+ " file "$" {shown = 1; next} /^```$/ {shown = 0} shown' "$CTXB_SOURCE/docs/$1"
}

libraries="$CTXB_BUILD/lib"
includes=(-I"$CTXB_SOURCE/broker/include" -I"$CTXB_SOURCE/plugin_sdk/include" -isystem "$CTXB_CUDA_INCLUDE_DIR")
warnings=(-Wall -Wextra -Werror)
cd "$scratch"
code_of embedding.md halfwhite.c >halfwhite.c
code_of workers.md isolated_host.cpp >isolated_host.cpp
for file in crasher.c painter_module.cpp painter_host.cpp; do code_of workers_own_format.md "$file" >"$file"; done
# The plug-in needs the driver by its name alone.
cc -shared -x c /dev/null -o libcuda.so -Wl,-soname,libcuda.so.1
cc -shared -fPIC "${includes[@]}" "${warnings[@]}" halfwhite.c -o halfwhite.so -Wl,--no-as-needed -L. -lcuda
cc -shared -fPIC "${warnings[@]}" crasher.c -o crasher.so
c++ -std=c++17 -shared -fPIC "${includes[@]}" "${warnings[@]}" painter_module.cpp -o painter_module.so \
  "$libraries/libctxbroker.so"
for program in painter_host isolated_host; do
  c++ -std=c++17 "${includes[@]}" "${warnings[@]}" "$program.cpp" -o "$program" \
    -Wl,--no-as-needed "$libraries/ctxbroker/ctxbroker_gate_link.so" "$libraries/libctxbroker.so" \
    "-Wl,-rpath,$libraries:$libraries/ctxbroker"
done

run env CTXBROKER_DRIVER=software ./painter_host ./painter_module.so ./crasher.so ./halfwhite.so
expect_status 0
expect_out "ended: signal"
expect_out 'no picture: worker "./crasher.so": it was ended by signal 11 (SIGSEGV) while it handled message 1'
expect_out "the last pixel is 255"

run env CTXBROKER_DRIVER=software ./painter_host ./painter_module.so ./no_such.so
expect_status 1
expect_err "no_such.so"
expect_err "[the module's start: "

run env CTXBROKER_DRIVER=software ./isolated_host "$CTXB_BUILD/plugins/exposure.so" "$CTXB_BUILD/plugins/blur.so"
expect_status 0
expect_out "Stops"
expect_out "frame 2 is done"

run env CTXBROKER_DRIVER=software ./isolated_host ./no_such.so
expect_status 1
expect_err "no_such.so"
