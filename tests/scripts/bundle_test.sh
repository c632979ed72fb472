#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/bundle: what goes into a bundle, and what --gpu leaves out. Its build is a small one, made here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
tree="$scratch/tree"
from="$tree/build/release"
mkdir -p "$tree/assets" "$from"/{bin,lib,plugins,test_plugins}
cp -r "$CTXB_SOURCE/tools" "$tree/tools"
# What sets a machine up, and what builds, is tested elsewhere.
printf '#!/bin/bash\n' >"$tree/tools/setup"
printf 'configure() { :; }\nbuild() { :; }\n' >"$tree/tools/lib/build.sh"
echo "a picture" >"$tree/assets/flower.png"
a_program="$(type -P true)"
for name in contract_host contract_software fuzz_ptx gpu_runtime soak unit_parser; do
  cp "$a_program" "$from/bin/$name"
done
for file in lib/libctxbroker.so.0.1.0 plugins/gain.so; do cp "$a_program" "$from/$file"; done
ln -s libctxbroker.so.0.1.0 "$from/lib/libctxbroker.so.0"
ln -s libctxbroker.so.0 "$from/lib/libctxbroker.so"
echo "no library" >"$from/test_plugins/broken.so"
cat >"$from/test_programs.txt" <<'END'
unit_parser|60|unit|
contract_host|60|contract|
contract_software|60|contract|CTXBROKER_DRIVER=software
gpu_runtime|60|contract,gpu|A=1
END
bundle() { run "$tree/tools/bundle" "$@"; }
# programs FOLDER: what is in its bin/, in one line.
programs() { (cd "$1/bin" && echo ./*); }
listed() { cut -d '|' -f 1 "$1/test_programs.txt" | tr '\n' ' '; }

bundle "$scratch/whole"
expect_status 0
expect_out ", 4 test programs; run $scratch/whole/run_tests there"
[[ "$(programs "$scratch/whole")" == "$(programs "$from")" ]] || failed "not every program"
[[ "$(listed "$scratch/whole")" == "$(listed "$from")" ]] || failed "another list of tests"
for file in assets/flower.png lib/libctxbroker.so plugins/gain.so test_plugins/broken.so; do
  expect_file "$scratch/whole/$file"
done
# Programs ask for a library by its SONAME, which is a link to the file with the whole version.
[[ "$(readlink "$scratch/whole/lib/libctxbroker.so.0")" == libctxbroker.so.0.1.0 ]] || failed "no link by the SONAME"
[[ -x "$scratch/whole/run_tests" ]] || failed "no run_tests"

# For a driver alone: neither unit tests, nor what is for the software device, nor fuzz targets.
bundle --gpu "$scratch/gpu"
expect_status 0
expect_out ", 2 test programs;"
[[ "$(programs "$scratch/gpu")" == "./contract_host ./gpu_runtime ./soak" ]] || failed "other programs"
[[ "$(listed "$scratch/gpu")" == "contract_host gpu_runtime " ]] || failed "another list of tests"
expect_file "$scratch/gpu/plugins/gain.so"
# The build is as it was.
[[ "$(wc -l <"$from/test_programs.txt")" == 4 ]] || failed "the build's own list was changed"
expect_file "$from/bin/unit_parser"
run env CTXB_LOGS="$scratch/logs" "$scratch/gpu/run_tests" --only 'contract_software|unit_parser'
expect_err "nothing ran"

# A bundle is replaced whole; what is none stays as it is.
bundle "$scratch/gpu"
expect_status 0
[[ "$(programs "$scratch/gpu")" == "$(programs "$from")" ]] || failed "not replaced"
mkdir "$scratch/other"
echo "dear" >"$scratch/other/letter"
bundle --gpu "$scratch/other"
expect_status 1
expect_err "is no bundle; nothing was changed"
[[ "$(<"$scratch/other/letter")" == dear && "$(ls "$scratch/other")" == letter ]] || failed "it was changed"
bundle --cpu
expect_status 2
