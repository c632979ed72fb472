#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over every C and C++ source of a build folder, as many at once as there are cores.

    tidy.py BUILD_FOLDER [PATTERN]

Most of the work is in the headers, so sources with the same compiler arguments are looked at several
in one go, and one by one where that finds anything (they may just not compile together).

What was clean, and has not changed since with all that it includes, is passed over: a mark for each
source is kept in BUILD_FOLDER/tidy. PATTERN restricts the run to sources whose path it matches.
The build must be up to date, because ninja knows from it what a source includes.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

IN_ONE_GO = 12  # more would be slower: each has its own declarations for the others to be checked with


def included_by_object(build):
    """What ninja found each object to depend on, by the object's path."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                          capture_output=True).stdout
    found, files = {}, []
    for line in text.splitlines():
        if line.startswith("    "):
            if not os.path.basename(line.strip()).startswith("unity_"):  # names paths of this checkout
                files.append(os.path.join(build, line.strip()))
        elif line:
            files = found.setdefault(line.split(": #deps")[0], [])
    return found


def compiled_together(source):
    """The sources that a file of a unity build includes; any other source alone."""
    if not source.name.startswith("unity_"):
        return [source]
    return [pathlib.Path(path) for path in re.findall(r'^#include "(.+)"$', source.read_text(), re.M)]


def sources(build, root):
    """Source to (compile command, what it includes); generated sources are left out."""
    includes = included_by_object(build)
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        made = entry.get("output")
        if made is None:
            made = re.search(r" -o (\S+)", entry["command"]).group(1)
        for source in compiled_together(pathlib.Path(entry["file"])):
            if source.suffix in (".c", ".cpp") and root / "build" not in source.parents:
                found.setdefault(source, (entry["command"], includes.get(made, [])))
    return found


@functools.lru_cache(maxsize=None)
def content(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).digest()


def config_folder(root, source):
    """The innermost folder around a source that says what is checked."""
    return next(folder for folder in source.parents if folder == root or (folder / ".clang-tidy").exists())


def fingerprint(root, source, command, includes):
    """Of all that clang-tidy sees; the same in every checkout."""
    seen = hashlib.sha256(command.replace(str(root), "").encode())
    # In an order that does not depend on where the checkout lies.
    includes = sorted(map(os.path.realpath, includes), key=lambda path: path.replace(str(root), ""))
    configs = dict.fromkeys([root / ".clang-tidy", config_folder(root, source) / ".clang-tidy"])
    for path in [*configs, source, *includes]:
        if os.path.exists(path):
            seen.update(content(str(path)))
    return seen.hexdigest()


def arguments_of(command):
    """Of a compiler's command line, what does not name its input and its output.

    Nor does it name the precompiled header, which only the compiler that made it can read, and options
    that only GCC knows.
    """
    words = shlex.split(re.sub(r" -[oc] \S+| -include \S+/cmake_pch\.\S+| -fno-gnu-unique", "", command))
    return tuple(words[2 if words[0].endswith("ccache") else 1:])


def batches(root, todo):
    """C++ sources that can be looked at in one go; each C source alone."""
    alike = {}
    for source, arguments in todo:
        key = (config_folder(root, source), arguments) if source.suffix == ".cpp" else source
        alike.setdefault(key, []).append(source)
    for sources_alike in alike.values():
        for begin in range(0, len(sources_alike), IN_ONE_GO):
            yield sources_alike[begin:begin + IN_ONE_GO]


def clang_tidy(build, source, arguments):
    run = subprocess.run(["clang-tidy", "--quiet", "--checks=-bugprone-suspicious-include",
                          source, "--", *arguments, "-Wno-unknown-warning-option"],
                         cwd=build, text=True, capture_output=True, check=False)
    return "" if run.returncode == 0 else run.stdout + run.stderr


def folder_for(root, build, source):
    """A folder in the build in which the same is checked as where the source is."""
    return build / "tidy_together" / config_folder(root, source).relative_to(root)


def make_folders(root, build, found):
    for source in {config_folder(root, one) / "source" for one in found}:
        folder = folder_for(root, build, source)
        folder.mkdir(parents=True, exist_ok=True)
        if source.parent != root:
            shutil.copy(source.parent / ".clang-tidy", folder)


def findings(root, build, batch, arguments, clean):
    """Calls clean(source) for each that is, and returns the words about each that is not."""
    if len(batch) == 1:
        text = clang_tidy(build, batch[0], arguments[batch[0]])
    else:
        with tempfile.NamedTemporaryFile("w", dir=folder_for(root, build, batch[0]), suffix=".cpp") as together:
            together.writelines(f'#include "{source}"\n' for source in batch)
            together.flush()
            text = clang_tidy(build, together.name, arguments[batch[0]])
    if not text:
        for source in batch:
            clean(source)
        return []
    if len(batch) == 1:
        return [text]
    half = len(batch) // 2
    return (findings(root, build, batch[:half], arguments, clean) +
            findings(root, build, batch[half:], arguments, clean))


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parents[2]
    build = pathlib.Path(sys.argv[1]).resolve()
    pattern = re.compile(sys.argv[2] if len(sys.argv) == 3 else "")

    seen, arguments = {}, {}
    for source, (command, includes) in sources(build, root).items():
        if pattern.search(str(source)):
            seen[source] = fingerprint(root, source, command, includes)
            arguments[source] = arguments_of(command)

    def mark(source):
        return build / "tidy" / source.relative_to(root)

    def clean(source):
        mark(source).parent.mkdir(parents=True, exist_ok=True)
        mark(source).write_text(seen[source])

    todo = [(source, arguments[source]) for source in seen
            if not mark(source).exists() or mark(source).read_text() != seen[source]]
    make_folders(root, build, seen)
    dirty = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CTXB_JOBS", os.cpu_count()))) as pool:
        for texts in pool.map(lambda batch: findings(root, build, batch, arguments, clean), batches(root, todo)):
            dirty += len(texts)
            for text in texts:
                print(text, flush=True)
    print(f"{len(seen)} sources, {len(todo)} of them new or changed, {dirty} with findings")
    sys.exit(dirty > 0)


if __name__ == "__main__":
    main()
