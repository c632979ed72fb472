#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctxb-validate as its users meet it: exit codes, JSON, repeating a failure, and its page.
set -euo pipefail
bin="$CTXB_BUILD/bin"
plugins="$CTXB_BUILD/plugins"
breaking="$CTXB_BUILD/test_plugins/behaviours.so"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
export CTXBROKER_DRIVER=software
status=0
fail() { echo "$*"; status=1; }

# ends_with CODE TEXT ARGUMENT...: the exit code, and what the program says.
ends_with() {
  local code="$1" text="$2" got=0
  shift 2
  "$bin/ctxb-validate" "$@" >"$scratch/said" 2>&1 || got=$?
  if ((got != code)); then fail "ctxb-validate $*: exit code $got instead of $code"; cat "$scratch/said"; fi
  if ! grep -qF -e "$text" "$scratch/said"; then fail "ctxb-validate $*: does not say: $text"; cat "$scratch/said"; fi
}

ends_with 0 "strictness 1, seed 7: 6 pass, 0 fail" "$plugins/exposure.so" --strictness 1 --seed 7
ends_with 1 "--reproduce process.output_written:7 --plugin com.example.test.writes_half" \
  "$breaking" --plugin writes_half --only process.output_written --seed 7
ends_with 1 "fail process.output_written: process left" \
  "$breaking" --plugin writes_half --reproduce process.output_written:7
ends_with 1 "crash state.garbage" "$breaking" --plugin trusts_its_state --only state.garbage
ends_with 1 "hang  life.process" "$breaking" --plugin never_returns --only life.process --deadline 3
ends_with 2 "there is no test" "$plugins/exposure.so" --only life.nothing
ends_with 2 "not in range" "$plugins/exposure.so" --strictness 11
ends_with 2 "FILE is required"
ends_with 3 "is not a file that can be read" "$scratch/no_such_file.so"
ends_with 4 'no plug-in "exposur"; it has' "$plugins/exposure.so" --plugin exposur

# A damaged file: whatever it is, the answer is a sentence.
cp "$plugins/exposure.so" "$scratch/damaged.so"
printf '\377\377\377\377\377\377\377\377' |
  dd of="$scratch/damaged.so" bs=1 seek=40 conv=notrunc status=none  # where the sections are
ends_with 1 "the file is damaged" "$scratch/damaged.so" --only static.entry
head -c 3000 "$plugins/exposure.so" >"$scratch/short.so"
ends_with 1 "fail  static.library" "$scratch/short.so" --only static.library
cp "$scratch/short.so" "$scratch/huge.so"
truncate -s 3G "$scratch/huge.so"  # only the first 3,000 bytes take room on the disk
ends_with 1 "is larger than 2147483648 bytes" "$scratch/huge.so" --only static.library

# A manifest that the library has outgrown, and one that fits.
small="$scratch/small.so"
manifest="$scratch/small.ctxb.json"
cp "$CTXB_BUILD/test_plugins/unloadable.so" "$small"
ends_with 0 "there is no manifest" "$small" --only load.manifest -v
"$bin/ctxb-scan" --manifest "$small" >/dev/null
ends_with 0 "1 pass" "$small" --only load.manifest
sed -i 's/"1\.0\.0"/"0.9.0"/' "$manifest"
ends_with 1 'at /plugins/0/version "0.9.0", and its descriptors have "1.0.0"' "$small" --only load.manifest
sed -i 's/"build_id": "[0-9a-f]*"/"build_id": "00"/' "$manifest"
ends_with 1 "it is of build 00 of the library" "$small" --only load.manifest
printf '{' >"$manifest"
ends_with 1 "small.ctxb.json" "$small" --only load.manifest

# A scan that fails keeps the manifest of this build, and removes one of another build.
late="$scratch/late.so"
cp "$CTXB_BUILD/test_plugins/unloadable.so" "$late"
"$bin/ctxb-scan" --manifest "$late" >/dev/null
cp "$scratch/late.ctxb.json" "$scratch/kept"
truncate -s 3000 "$late"  # what the linker named it is in the first page
fails_to_describe() {
  "$bin/ctxb-scan" --manifest "$late" 2>"$scratch/said" && fail "half a library was described"
  grep -qF "late.so" "$scratch/said" || fail "ctxb-scan: $(cat "$scratch/said")"
}
fails_to_describe
cmp "$scratch/late.ctxb.json" "$scratch/kept" || fail "a failed scan has changed the manifest"
sed -i 's/"build_id": "[0-9a-f]*"/"build_id": "00"/' "$scratch/late.ctxb.json"
fails_to_describe
[[ ! -e "$scratch/late.ctxb.json" ]] || fail "a failed scan has kept the manifest of another build"

# A limit on the size of files is the process's, and neither blames the library nor costs the manifest.
cp "$CTXB_BUILD/test_plugins/unloadable.so" "$late"
"$bin/ctxb-scan" --manifest "$late" >/dev/null
cp "$scratch/late.ctxb.json" "$scratch/kept"
if command -v prlimit >/dev/null; then
  for limit in 0 100 "$(($(stat -c %s "$scratch/kept") - 1))"; do
    got=0
    said="$(prlimit --core=0 --fsize="$limit" "$bin/ctxb-scan" --manifest "$late" 2>&1)" || got=$?
    ((got == 1)) || fail "ctxb-scan with files of $limit bytes: exit code $got"
    grep -qF "$limit bytes (ulimit -f)" <<<"$said" || fail "ctxb-scan with files of $limit bytes: $said"
    ! grep -qF "crashed" <<<"$said" || fail "ctxb-scan with files of $limit bytes: $said"
    cmp "$scratch/late.ctxb.json" "$scratch/kept" || fail "a limit on files has changed the manifest"
  done
  prlimit --fsize=1000000 "$bin/ctxb-scan" --manifest "$late" || fail "a control, with a large limit"
fi

"$bin/ctxb-validate" "$plugins/exposure.so" --strictness 1 --seed 1 --json \
  --behaviour "$scratch/behaviour.json" >"$scratch/report.json"
if command -v python3 >/dev/null; then
  python3 - "$scratch" "$CTXB_SOURCE/docs/behaviour.schema.json" <<'PYTHON' || status=1
import json, sys
folder, schema_file = sys.argv[1:]
report = json.load(open(folder + "/report.json"))
assert report["schema"] == "ctxbroker.validate/1" and report["driver"] == "software", report
assert report["summary"]["pass"] == len(report["results"]) == 6, report["summary"]
manifest = json.load(open(folder + "/behaviour.json"))
schema = json.load(open(schema_file))
plugin = manifest["plugins"][0]
known = schema["properties"]["plugins"]["items"]["properties"]
assert set(plugin) <= set(known), set(plugin) - set(known)
assert set(manifest) <= set(schema["properties"]), set(manifest)
assert plugin["jobs"]["launches"] == 8 and plugin["jobs"]["heap_calls_in_process"] == 0, plugin
PYTHON
fi

# What the validator writes destroys nothing that it reads, and it waits for nobody.
cp "$plugins/exposure.so" "$scratch/own.so"
ln -s own.so "$scratch/linked.so"
ln "$scratch/own.so" "$scratch/hard.so"
for name in own linked hard; do
  ends_with 2 "is the library or its manifest" "$scratch/own.so" --only load.answers --behaviour "$scratch/$name.so"
done
cmp "$plugins/exposure.so" "$scratch/own.so" || fail "--behaviour has replaced the library"
mkfifo "$scratch/pipe"
ends_with 3 "a pipe that nobody reads" "$scratch/own.so" --only load.answers --behaviour "$scratch/pipe"
ends_with 3 "cannot be written" "$scratch/own.so" --only load.answers --behaviour "$scratch/nowhere/b.json"
rm -f "$manifest"
mkfifo "$manifest"
"$bin/ctxb-scan" --manifest "$small" 2>"$scratch/said" && fail "a manifest was written into a pipe"
grep -qF "is not a regular file" "$scratch/said" || fail "ctxb-scan: $(cat "$scratch/said")"
[[ -p "$manifest" ]] || fail "ctxb-scan has removed a pipe that is not its own"
rm "$manifest"
ln -s small.so "$manifest"
"$bin/ctxb-scan" --manifest "$small" 2>"$scratch/said" && fail "a manifest was written over its library"
cmp "$CTXB_BUILD/test_plugins/unloadable.so" "$small" || fail "ctxb-scan --manifest has replaced the library"

# The name of a file does nothing to a terminal.
odd="$scratch/"$'odd\e[31m.so'
cp "$plugins/exposure.so" "$odd"
ends_with 0 'odd\x1b[31m.so, strictness 1' "$odd" --strictness 1
ends_with 3 'none\x1b[31m.so is not a file' "$scratch/"$'none\e[31m.so'
head -c 3000 "$plugins/exposure.so" >"$odd"
"$bin/ctxb-scan" "$odd" >"$scratch/said" 2>&1 && fail "half a library was described"
grep -qF 'odd\x1b[31m.so' "$scratch/said" || fail "ctxb-scan: $(cat -v "$scratch/said")"
! grep -q $'\e' "$scratch/said" || fail "ctxb-scan prints the name as it is"

# Output that is lost is no success.
unwritten() {
  local code="$1" got=0
  shift
  "$@" >/dev/full 2>"$scratch/said" || got=$?
  if ((got != code)); then fail "$* >/dev/full: exit code $got instead of $code"; fi
  grep -qF "standard output cannot be written" "$scratch/said" || fail "$* >/dev/full: $(cat "$scratch/said")"
}
unwritten 3 "$bin/ctxb-validate" --list
unwritten 3 "$bin/ctxb-validate" --help
unwritten 3 "$bin/ctxb-validate" "$scratch/own.so" --only load.answers
unwritten 3 "$bin/ctxb-validate" "$scratch/own.so" --only load.answers --json
unwritten 1 "$bin/ctxb-scan" --version
unwritten 1 "$bin/ctxb-scan" --help
unwritten 1 "$bin/ctxb-scan" "$scratch/own.so"

# The page has the table that the program prints.
"$bin/ctxb-validate" --list >"$scratch/list"
sed -n '/^<!-- ctxb-validate --list -->$/,/^<!-- end of the list -->$/{/^<!--/d;p}' \
  "$CTXB_SOURCE/docs/validator.md" >"$scratch/page"
diff "$scratch/page" "$scratch/list" || fail "docs/validator.md: its table is not what --list prints"
exit $status
