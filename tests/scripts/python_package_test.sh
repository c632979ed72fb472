#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package, as its users get it: the wheel of this build in a fresh virtual environment.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/python_wheel.sh"

run "$CTXB_SOURCE/tools/wheel" --from "$scratch/no_build" "$scratch"
expect_status 1
expect_err "is not a build folder"
run "$CTXB_SOURCE/tools/wheel" --from
expect_status 2

pack_wheel "$scratch/wheels"
# The same files give the same wheel.
run "$CTXB_SOURCE/tools/wheel" --from "$CTXB_BUILD" "$scratch/again"
expect_status 0
cmp "$wheel" "$scratch/again/${wheel##*/}"

run python3 -m venv "$scratch/venv"
expect_status 0
install_wheel "$scratch/venv"
cd "$scratch" # away from the sources
run "$scratch/venv/bin/python" -c 'import ctxbroker; print(ctxbroker.__file__)'
expect_out "$scratch/venv/lib"

# Nothing of NVIDIA's, no library without a home, and nothing that lies about in the sources.
installed="$(dirname "$out")"
while read -r file; do
  run env -u LD_LIBRARY_PATH ldd "$file"
  if [[ "$out" == *"not found"* ]]; then failed "a library is missing for $file"; fi
done < <(find "$installed" -type f \( -name '*.so*' -o -path '*/bin/*' \))
run find "$installed" -name '.*' -o -type f ! -path '*/lib/*' ! -path '*/bin/*' ! -name '*.py' ! -name '*.pyc' ! -name py.typed
[[ -z "$out" ]] || failed "the wheel has files that are not the package's"
run find "$installed" -name 'libcudart*' -o -name 'libcublas*' -o -name 'libnv*'
[[ -z "$out" ]] || failed "the wheel has files of NVIDIA's"

run_package_tests "$scratch/venv"
