# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by doc_pages.py, with a build and the source: makes the mistakes of docs/troubleshooting.md.
# All of these fail, or say something.
set +e
build="$1" source="$2" plugins="$1/test_plugins"

image() { sample_host image IN.png -o OUT.png "$@" </dev/null; }

image --plugin "$plugins/behaviours.so#lingers" --job-timeout 500
image --plugin "$plugins/behaviours.so#faults"
image --plugin "$plugins/behaviours.so"
image --plugin "$plugins/hopper.so"
image --plugin "$plugins/no_such.so"
for fault in missing_symbol missing_library no_entry abi_major; do
  image --plugin "$plugins/broken_$fault.so"
done
image --plugin histogram_equalisation
image --plugin blur --lease green:500
echo '{"schema": "ctxbroker.policy/1", "for_all": {"memory_budget": 16384}}' >small.json
image --plugin blur --policy small.json
CTXBROKER_SOFTWARE_MEMORY=1048576 sample_host image "$source/assets/flower.png" -o OUT.png --plugin blur </dev/null
sample_host doctor

${CXX:-c++} -std=c++17 -shared -fPIC -I"$source/plugin_sdk/include" "$source/tests/scripts/doc_code/meddler.cpp" \
  -o meddler.so -ldl && image --plugin ./meddler.so

# An installation without the gate's folder.
mkdir -p broken && cp -r ~/ctxbroker/bin ~/ctxbroker/lib broken/ && rm -r broken/lib/ctxbroker/*gate*
broken/bin/sample_host doctor
true
