#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the C ABI of the headers with what the files beside this script keep of it.

    abi.py C-COMPILER LIBRARY            compares, and that LIBRARY exports what the headers declare
    abi.py C-COMPILER LIBRARY --accept   keeps what the headers say now

functions_and_layouts.abi has the functions and structs of the C headers, as abidw writes them.
constants.txt has the values of the macros. Types need debug information, which the library does not
have. So abidw reads a small library that is made from the headers alone. The compiler holds the
functions' definitions in libctxbroker to the same declarations.

Ends with 77 where abidw and abidiff are not installed (Debian: abigail-tools).
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT_TYPES = HERE / "functions_and_layouts.abi"
KEPT_CONSTANTS = HERE / "constants.txt"
FOLDERS = [ROOT / "plugin_sdk/include", ROOT / "broker/include"]
WHAT_TO_DO = f"""
What may change is in docs/versioning.md. In short: a struct may grow at its end, and functions, structs
and constants may be added. Everything else breaks hosts or plug-ins that exist; it needs a new SONAME
(functions and structs for hosts) or a new CTXB_ABI_MAJOR (plugin*.h).

If the change is meant, run `{pathlib.Path(__file__).relative_to(ROOT)} cc LIBRARY --accept` with a built
libctxbroker.so, read the differences that git shows, and add a line to CHANGELOG.md."""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def must(*command: object) -> str:
    done = run(*command)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def headers(folders: list[pathlib.Path]) -> dict[str, str]:
    """The C headers' texts without comments, by the names to include them by."""
    found = {}
    for folder in folders:
        for file in sorted(folder.glob("ctxbroker/*.h")):
            text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read_text(), flags=re.S)
            found[f"ctxbroker/{file.name}"] = text
    return found


def functions(texts: dict[str, str]) -> dict[str, str]:
    """The declarations of exported functions, by name."""
    declarations = re.findall(r"^CTXB_EXPORT\s+([^;{}=]*?\b(ctxb_\w+)\s*\([^;{}]*\))\s*;",
                              "\n".join(texts.values()), flags=re.M)
    return {name: " ".join(declaration.split()) for declaration, name in declarations}


def types_of(compiler: str, folders: list[pathlib.Path], to: pathlib.Path) -> None:
    """Writes what abidw says of a library that has the declared functions and all structs."""
    texts = headers(folders)
    lines = [f'#include "{header}"' for header in texts]
    lines += [f"CTXB_EXPORT {declaration} {{ __builtin_trap(); }}"
              for declaration in functions(texts).values()]
    structs = set(re.findall(r"\bstruct\s+(ctxb_\w+)\s*\{", "\n".join(texts.values())))
    lines += [f"CTXB_EXPORT const struct {name}* layout_of_{name}(void) {{ __builtin_trap(); }}"
              for name in sorted(structs)]
    source = to.with_suffix(".c")
    source.write_text("\n".join(lines) + "\n")
    library = to.with_suffix(".so")
    must(compiler, "-std=c11", "-g", "-O0", "-w", "-shared", "-fPIC", f"-ffile-prefix-map={to.parent}=.",
         *(f"-I{f}" for f in folders),
         source, "-o", library)
    must("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash",
         "--out-file", to, library)


def constants_of(compiler: str, folders: list[pathlib.Path], scratch: pathlib.Path) -> str:
    texts = headers(folders)
    names = sorted(set(re.findall(r"^#define (CTXB_[A-Z0-9_]+)[ \t]+\S", "\n".join(texts.values()),
                                  flags=re.M)) - {"CTXB_EXPORT"})
    source, program = scratch / "constants.c", scratch / "constants"
    source.write_text("\n".join([
        "#include <stdio.h>", *(f'#include "{header}"' for header in texts),
        "static void number(const char* name, long long value) { printf(\"%s %lld\\n\", name, value); }",
        "static void text(const char* name, const char* value) { printf(\"%s %s\\n\", name, value); }",
        "#define SHOW(m) _Generic((m), char*: text, default: number)(#m, (m));",
        "int main(void) {", *(f"SHOW({name})" for name in names), "return 0; }", ""]))
    must(compiler, "-std=c11", "-w", *(f"-I{f}" for f in folders), source, "-o", program)
    return must(program)


def differences(compiler: str, folders: list[pathlib.Path], scratch: pathlib.Path) -> str:
    report = ""
    now = scratch / "now.abi"
    types_of(compiler, folders, now)
    done = run("abidiff", "--no-show-locs", KEPT_TYPES, now)
    if done.returncode != 0:
        report += done.stdout + done.stderr
    kept = set(KEPT_CONSTANTS.read_text().splitlines())
    have = set(constants_of(compiler, folders, scratch).splitlines())
    report += "".join(f"constant gone or changed: {line}\n" for line in sorted(kept - have))
    report += "".join(f"constant new or changed:  {line}\n" for line in sorted(have - kept))
    return report


def controls(compiler: str, scratch: pathlib.Path) -> str:
    """Changes of a copy of the headers have to be seen."""
    for header, old, new, seen in [
            ("plugin.h", "uint32_t result_bytes;", "uint64_t result_bytes;", "ctxb_port"),
            ("plugin.h", "#define CTXB_AGAIN 1", "#define CTXB_AGAIN 9", "CTXB_AGAIN"),
            ("host.h", "ctxb_version(void)", "ctxb_version_of(void)", "ctxb_version")]:
        copies = []
        for number, folder in enumerate(FOLDERS):
            copy = scratch / f"copy{number}"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            copies.append(copy)
            file = copy / "ctxbroker" / header
            if file.exists():
                text = file.read_text()
                if old not in text:
                    return f"the control finds no '{old}' in {header}"
                file.write_text(text.replace(old, new))
        if seen not in differences(compiler, copies, scratch):
            return f"the control '{new}' was not seen"
    return ""


def main() -> int:
    compiler, library = sys.argv[1], sys.argv[2]
    if shutil.which("abidw") is None or shutil.which("abidiff") is None:
        print("skipped: abidw and abidiff are not installed; tools/setup --lint installs them")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        if sys.argv[3:] == ["--accept"]:
            types_of(compiler, FOLDERS, scratch / "kept.abi")
            shutil.copy(scratch / "kept.abi", KEPT_TYPES)
            KEPT_CONSTANTS.write_text(constants_of(compiler, FOLDERS, scratch))
            return 0
        problems = differences(compiler, FOLDERS, scratch)
        if problems:
            problems = f"The C ABI of the headers has changed:\n{problems}{WHAT_TO_DO}\n"
        exported = {line.split()[-1].split("@")[0] for line in
                    must("nm", "-D", "--defined-only", library).splitlines()}
        exported = {name for name in exported if name.startswith("ctxb_")}
        declared = set(functions(headers(FOLDERS)))
        for name in sorted(declared - exported):
            problems += f"{library} does not export {name}, which a header declares\n"
        for name in sorted(exported - declared):
            problems += f"{library} exports {name}, which no header declares\n"
        problems = problems or controls(compiler, scratch)
        print(problems or f"{len(declared)} functions and their types are as they were")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
