#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the public headers with every compiler and language version that they promise.

    header_matrix.py INCLUDE-FOLDER...

Each row of the table is one compilation of all its headers, each included twice. (That each C++ header
compiles alone is a part of the build, tests/unit/headers.) A compiler that is not installed is skipped
and named. Ends with 1 if a row fails, with 77 if no row could be tried.
"""
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile

SDK_C = ["plugin*.h"]
HOST_C = ["host*.h", "worker*.h"]
HOST = ["*.hpp"]
SDK = [*SDK_C, "plugin.hpp", "sdk/*.hpp"]
C = ["c11", "c17"]
CPP = ["c++17", "c++20", "c++2b"]
TABLE = [  # compiler, language versions, headers
    ("gcc", C, SDK_C + HOST_C),
    ("clang", C, SDK_C + HOST_C),
    ("x86_64-w64-mingw32-gcc", C, SDK_C),
    ("g++", ["c++11", "c++14"], SDK_C + HOST_C),
    ("g++", CPP, SDK + HOST_C + HOST),
    ("clang++", CPP, SDK + HOST_C + HOST),
    ("x86_64-w64-mingw32-g++", CPP, SDK),
]
FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
CONTROL = "struct nothing { int none[0]; };\n"  # an extension of GNU's


def compile_text(compiler: str, version: str, text: str, folders: list[str]) -> str:
    """Returns the compiler's complaint, or nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, "all.cpp" if "++" in version else "all.c")
        source.write_text(text)
        command = [compiler, f"-std={version}", *FLAGS, *(f"-I{folder}" for folder in folders),
                   str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr or f"status {done.returncode}" if done.returncode != 0 else ""


def try_row(compiler: str, version: str, headers: list[str], folders: list[str]) -> str:
    text = "".join(f'#include "{header}"\n' for header in headers)
    complaint = compile_text(compiler, version, text * 2, folders)
    if complaint:
        return complaint
    if not compile_text(compiler, version, CONTROL, folders):
        return "the control compiled, so this row shows nothing"
    return ""


def main() -> int:
    folders = sys.argv[1:]
    rows, missing = [], set()
    for compiler, versions, patterns in TABLE:
        headers = sorted({str(file.relative_to(folder)) for folder in folders for pattern in patterns
                          for file in pathlib.Path(folder).glob(f"ctxbroker/{pattern}")})
        if len(headers) < len(patterns):
            print(f"no headers {patterns} in {folders}")
            return 1
        if shutil.which(compiler) is None:
            missing.add(compiler)
            continue
        rows += [(compiler, version, headers) for version in versions]
    for compiler in sorted(missing):
        print(f"skipped: {compiler} is not installed; tools/setup --lint installs it")
    if not rows:
        return 77
    failed = False
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, complaint in zip(rows, pool.map(lambda row: try_row(*row, folders), rows)):
            print(f"{row[0]} -std={row[1]}: {len(row[2])} headers: {complaint or 'ok'}")
            failed = failed or complaint != ""
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
