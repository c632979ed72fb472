#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The template for plug-ins, copied out of an installation: its README's three commands build, test
# and validate it. The home folder is one of its own, so the README's ~/ctxbroker is the installation.
set -euo pipefail
source "$CTXB_SOURCE/tests/scripts/expect.sh"
export HOME="$scratch" CUDA_HOME="${CTXB_NVCC%/bin/nvcc}"
unset CTXBROKER_DRIVER CMAKE_PREFIX_PATH CTXB_NVCC CMAKE_BUILD_PARALLEL_LEVEL
export PATH="$(dirname "$CMAKE"):$PATH"

run cmake --install "$CTXB_BUILD" --prefix "$HOME/ctxbroker"
expect_status 0
cp -r "$HOME/ctxbroker/share/ctxbroker/template" "$scratch/my_plugins"
cd "$scratch/my_plugins"

commands="$(awk '/^```/ { inside = ($0 == "```sh" && !seen++); next } inside' README.md)"
[[ "$(wc -l <<<"$commands")" == 3 ]] || failed "the README has other commands: $commands"
while IFS= read -r command; do
  run bash -c "$command"
  expect_status 0
  # The file for GitHub's machines runs the same.
  grep -qxF "        run: $command" .github/workflows/ci.yml || failed "ci.yml does not run: $command"
done <<<"$commands"
expect_out "100% tests passed"
for test in tint.default tint.red trim.default trim.half negative.colour validate.tint validate.trim \
  validate.negative; do
  grep -qE " $test \.+ +Passed" <<<"$out" || failed "$test did not pass"
done

# Installed, the plug-ins bring their manifests, so a host that runs no library knows them.
run cmake --install build --prefix "$scratch/installed"
expect_status 0
for plugin in tint trim negative; do
  for file in so ctxb.json; do
    [[ -f "$scratch/installed/lib/ctxbroker/plugins/$plugin.$file" ]] || failed "$plugin.$file is not installed"
  done
done
run env XDG_CACHE_HOME="$scratch/no_cache" "$HOME/ctxbroker/bin/sample_host" list --safe \
  --plugin-path "$scratch/installed/lib/ctxbroker/plugins"
expect_out "com.example.tint"
expect_out "com.example.trim"
expect_out "com.example.negative"
# The control: without the manifest, --safe does not know it.
rm "$scratch/installed/lib/ctxbroker/plugins/tint.ctxb.json"
run env XDG_CACHE_HOME="$scratch/other_cache" "$HOME/ctxbroker/bin/sample_host" list --safe \
  --plugin-path "$scratch/installed/lib/ctxbroker/plugins"
[[ "$out" != *com.example.tint* ]] || failed "tint is known without its manifest"
for file in spectrum/results.hpp tone/tone.cpp tone/tone.cu; do
  [[ -f "$HOME/ctxbroker/share/ctxbroker/sample_plugins/$file" ]] || failed "$file is not installed"
done

# The controls: a wrong kernel is seen, and so is a breach of a rule.
sed -i 's/pixel\.x \*= factor\.x/pixel.x += factor.x/' image/tint.cu
run cmake --build build
expect_status 0
run ctest --test-dir build
[[ "$status" != 0 ]] || failed "a wrong kernel passed"
expect_out "tint.red (Failed)"
sed -i 's/pixel\.x += factor\.x/pixel.x *= factor.x/' image/tint.cu
sed -i 's/job\.launch(kernel_/if (out.width != 331) throw Failure(CTXB_ERROR, "too wide");  \/\/ check.cpp has 331\n    &/' image/tint.cpp
run cmake --build build
expect_status 0
run ctest --test-dir build
[[ "$status" != 0 ]] || failed "a plug-in that takes one size alone passed"
expect_out "validate.tint (Failed)"
