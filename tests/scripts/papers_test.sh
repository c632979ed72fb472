#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every source file has its SPDX line; the version stands in one place, and the list of changes knows it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
cd "$CTXB_SOURCE"
if ! git rev-parse --git-dir >/dev/null 2>&1; then
  echo "skipped: this is no git checkout, so nobody knows which files are sources"
  exit 77
fi

# without_line FILE...: those that have no SPDX line among their first three.
without_line() { awk 'FNR == 1 && name != "" && !seen { print name } FNR == 1 { name = FILENAME; seen = 0 }
  FNR <= 3 && /SPDX-License-Identifier: Apache-2\.0/ { seen = 1 } FNR > 3 { nextfile }
  END { if (name != "" && !seen) print name }' "$@"; }

# The controls: one with the line, one without, an empty one is no source.
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n' >"$scratch/with"
printf 'int x;\n' >"$scratch/without"
[[ "$(without_line "$scratch/with" "$scratch/without" "$scratch/with")" == "$scratch/without" ]] || failed "the check sees nothing"

# What programs read cannot have it: data, pictures, lists of hashes, JSON.
mapfile -t sources < <(git ls-files -- '*.cpp' '*.hpp' '*.c' '*.h' '*.cu' '*.cuh' '*.S' '*.inc' '*.in' '*.py' '*.sh' \
  '*.cmake' '*CMakeLists.txt' '*Makefile' '*.yml' '*.yaml' '*.map' 'tools/*' '.clang-*' '*/.clang-tidy' |
  grep -vE '^tests/fuzz/corpus/|\.txt$|\.md$|\.rsp\.in$' ; git ls-files -- '*CMakeLists.txt')
((${#sources[@]} > 500)) || failed "only ${#sources[@]} sources"
run without_line "${sources[@]}"
[[ -z "$out" ]] || failed "no SPDX line in: $out"

version="$(sed -n 's/^project(ctxbroker VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
[[ -n "$version" ]] || failed "CMakeLists.txt has no version"
grep -q "^## $version" CHANGELOG.md || failed "CHANGELOG.md has no section for $version"
for paper in LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/versioning.md docs/supported.md assets/LICENSES.md; do
  expect_file "$paper"
done
