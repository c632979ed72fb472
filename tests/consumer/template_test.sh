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
