#!/usr/bin/env python3
"""Runs clang-tidy over every C and C++ source of a build folder, as many at once as there are cores.

    tidy.py BUILD_FOLDER [PATTERN]

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
import subprocess
import sys


def included_by_object(build):
    """What ninja found each object to depend on, by the object's path."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, text=True,
                          capture_output=True).stdout
    found, files = {}, []
    for line in text.splitlines():
        if line.startswith("    "):
            files.append(os.path.join(build, line.strip()))
        elif line:
            files = found.setdefault(line.split(": #deps")[0], [])
    return found


def sources(build, root):
    """Source to (compile command, what it includes); generated sources are left out."""
    includes = included_by_object(build)
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source, made = pathlib.Path(entry["file"]), entry.get("output")
        if made is None:
            made = re.search(r" -o (\S+)", entry["command"]).group(1)
        if source.suffix in (".c", ".cpp") and root / "build" not in source.parents:
            found.setdefault(source, (entry["command"], includes.get(made, [])))
    return found


@functools.lru_cache(maxsize=None)
def content(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).digest()


def fingerprint(root, source, command, includes):
    """Of all that clang-tidy sees; the same in every checkout."""
    seen = hashlib.sha256(command.replace(str(root), "").encode())
    # In an order that does not depend on where the checkout lies.
    includes = sorted(map(os.path.realpath, includes), key=lambda path: path.replace(str(root), ""))
    for path in [root / ".clang-tidy", source, *includes]:
        if os.path.exists(path):
            seen.update(content(str(path)))
    return seen.hexdigest()


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parents[2]
    build = pathlib.Path(sys.argv[1]).resolve()
    pattern = re.compile(sys.argv[2] if len(sys.argv) == 3 else "")

    def look_at(item):
        source, (command, includes) = item
        mark = build / "tidy" / source.relative_to(root)
        seen = fingerprint(root, source, command, includes)
        if mark.exists() and mark.read_text() == seen:
            return True, ""
        run = subprocess.run(["clang-tidy", "--quiet", "-p", build,
                              "--extra-arg=-Wno-unknown-warning-option", source],
                             text=True, capture_output=True, check=False)
        if run.returncode == 0:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(seen)
        return run.returncode == 0, run.stdout or run.stderr

    todo = [item for item in sources(build, root).items() if pattern.search(str(item[0]))]
    dirty = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CTXB_JOBS", os.cpu_count()))) as pool:
        for clean, text in pool.map(look_at, todo):
            if not clean:
                dirty += 1
                print(text, flush=True)
    print(f"{len(todo)} sources, {dirty} with findings")
    sys.exit(dirty > 0)


if __name__ == "__main__":
    main()
