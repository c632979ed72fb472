#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/docs finds what is wrong with the manual: a copy of the pages with one mistake of each kind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
copy="$scratch/copy"
mkdir "$copy"
(cd "$CTXB_SOURCE" && tar -c --exclude=./build --exclude=./.git --exclude=./out .) | tar -x -C "$copy"
# What pip installs is the same.
mkdir -p "$copy/build/docs"
if [[ -d "$CTXB_SOURCE/build/docs/venv" ]]; then ln -s "$CTXB_SOURCE/build/docs/venv" "$copy/build/docs/venv"; fi
docs="$copy/docs"

run "$copy/tools/docs"
expect_status 0
expect_file "$copy/build/docs/site/index.html"

echo '# Forgotten' >"$docs/forgotten.md"
{
  printf '\n[a](no_such_page.md) [b](embedding.md#no-such-heading) [c](../broker/no_such.h)\n\n'
  # shellcheck disable=SC2016  # it is Markdown
  printf '`Graph::no_such_member`\n\n<img src="https://example.com/a.png">\n'
} >>"$docs/glossary.md"
cat >"$copy/broker/include/ctxbroker/unnamed.hpp" <<'END'
/// @file
/// A header that the page on the reference does not name.
END
run "$copy/tools/docs"
expect_status 1
for words in "forgotten.md" "no_such_page.md" "embedding.html#no-such-heading" "no_such.h" "Graph::no_such_member" \
  "loads https://example.com/a.png" "does not name the public header broker/include/ctxbroker/unnamed.hpp"; do
  expect_err "$words"
done

printf '/// Does what @ref nothing_here does.\nvoid f();\n' >>"$copy/broker/include/ctxbroker/unnamed.hpp"
run "$copy/tools/docs"
expect_status 1
expect_err "Doxygen warns about the public headers"

rm "$copy/broker/include/ctxbroker/unnamed.hpp"
echo '// another picture' >>"$docs/images/parts.dot"
run "$copy/tools/docs"
expect_status 1
expect_err "docs/images/parts.svg is not the picture of docs/images/parts.dot"
