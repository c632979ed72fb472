#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of the driver's functions, function_table.inc, and docs/guarded_functions.md.
Run it by hand. The build never runs it. A test fails if you forget.

    make_function_table.py                     after a change of classification.txt
    make_function_table.py --toolkit FOLDER    for another CUDA Toolkit (/usr/local/cuda)
                                               or NVIDIA's headers alone: see below
    make_function_table.py --check             writes nothing, and names the files that are out of date

The names and versions come from the table as it is, or from a toolkit. Its headers (cudaTypedefs.h
and others) declare each form of a function with the first CUDA version that cuGetProcAddress returns
it for: the second form is exported as _v2, and a form for the per-thread default stream belongs to
the newest before it. The toolkit's stub of the driver, if it has one, must not export more than that.

NVIDIA's wheel nvidia-cuda-runtime on PyPI brings the headers without a toolkit. In a temporary folder:

    pip download --no-deps nvidia-cuda-runtime && unzip -q nvidia_cuda_runtime-*.whl
    make_function_table.py --toolkit nvidia/cu13

Scope and rule come from broker/src/gate/classification.txt. If that has no line for some of the
names, they are listed and nothing is written. With another toolkit, the functions that come and go
are listed too: look at each new one, because a pattern may fit it that nobody wrote for it.
"""
import argparse
import collections
import fnmatch
import pathlib
import re
import subprocess
import sys
import typing

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
table_file = here / "function_table.inc"
page_file = root / "docs" / "guarded_functions.md"
rules_file = root / "broker" / "src" / "gate" / "classification.txt"
scopes = ("call", "thread", "context", "device", "process")
kinds = ("pass", "look_up", "capture", "absorb", "scope", "own", "count", "virtualise",
            "refuse", "time", "report")


class Function(typing.NamedTuple):
    symbol: str
    base: str  # the name that cuGetProcAddress knows it by
    version: int  # the first CUDA version that returns it
    per_thread: int  # 1: for the per-thread default stream


class Rule(typing.NamedTuple):
    pattern: str
    scope: str
    kind: str
    words: str


# ---- names and versions -------------------------------------------------------------------------

def functions_of_table():
    """The CUDA version that the table's names come from, and its functions."""
    text = table_file.read_text()
    cuda = re.search(r"CUDA (\d+\.\d+)", text)[1]
    pattern = r"^CTXB_DRIVER_FUNCTION\((\w+), (\w+), (\d+), ([01]),"
    return cuda, [Function(symbol, base, int(version), int(per_thread))
                  for symbol, base, version, per_thread in re.findall(pattern, text, re.M)]


def functions_of_toolkit(toolkit):
    """The toolkit's CUDA version, and the driver's functions as its headers declare them."""
    include = toolkit / "include"
    number = int(re.search(r"#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text())[1])
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    forms = collections.defaultdict(set)
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h",
                   "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"):
        for base, version, suffix in re.findall(
                r"\*PFN_(cu(?!WGL)\w+?)_v(\d+)(?:_(ptsz|ptds))?\)", (include / header).read_text()):
            forms[base].add((int(version), suffix))
    functions = []
    for base, of_base in forms.items():
        count = 0
        for version, suffix in sorted(of_base):
            count += not suffix
            symbol = base + (f"_v{count}" if count > 1 else "") + (f"_{suffix}" if suffix else "")
            functions.append(Function(symbol, base, version, 1 if suffix else 0))
    compare_with_stub(toolkit / "lib64" / "stubs" / "libcuda.so", functions)
    return cuda, sorted(functions)


def compare_with_stub(stub, functions):
    """Ends the program if the driver exports a function that the headers do not lead to."""
    if not stub.exists():
        print(f"{stub} is not there: the symbols are those that the headers lead to")
        return
    listing = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, text=True,
                             capture_output=True).stdout
    missing = set(re.findall(r" T (cu[A-Z]\w+)", listing)) - {one.symbol for one in functions}
    if missing:
        sys.exit("the headers do not say what these are: " + ", ".join(sorted(missing)))


# ---- scope and rule -----------------------------------------------------------------------------

def read_rules():
    rules = []
    for number, line in enumerate(rules_file.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, scope, kind, *words = line.split(None, 3)
        if scope not in scopes or kind not in kinds:
            sys.exit(f"{rules_file.name}:{number}: no such scope or rule: {scope} {kind}")
        rules.append(Rule(pattern, scope, kind, words[0] if words else ""))
    return rules


def kind_words():
    """Returns the kinds of rules as the head of classification.txt explains them."""
    found = dict(re.findall(r"^#   (\w+) {2,}(\S.*)$", rules_file.read_text(), re.M))
    return [(name, found[name]) for name in kinds if name != "pass"]


def classify(functions):
    """Pairs each function with its rule. Ends the program if one has none, or a rule fits none."""
    rules = read_rules()
    rows, used, unknown = [], set(), []
    for function in functions:
        rule = next((one for one in rules if fnmatch.fnmatchcase(function.base, one.pattern)), None)
        if rule is None:
            unknown.append(function.base)
            continue
        used.add(rule.pattern)
        rows.append((function, rule))
    if unknown:
        sys.exit(f"{rules_file.name} has no line for these names. Add for each whom it can affect, "
                 "and what the gate does:\n  " + "\n  ".join(sorted(set(unknown))))
    unused = [one.pattern for one in rules if one.pattern not in used]
    if unused:
        sys.exit(f"{rules_file.name}: no function fits " + ", ".join(unused))
    return rows


# ---- what is written ----------------------------------------------------------------------------

def table_text(cuda, rows):
    major, minor = map(int, cuda.split("."))
    lines = [
        "// SPDX-License-Identifier: Apache-2.0\n"
        f"#define CTXB_FUNCTION_TABLE_CUDA {major * 1000 + minor * 10}\n"
        f"/* Written by make_function_table.py, with the names of CUDA {cuda}:\n"
        " * CTXB_DRIVER_FUNCTION(exported symbol, name that cuGetProcAddress knows it by, first CUDA\n"
        " * version, per-thread default stream, scope, rule). */\n"]
    for function, rule in rows:
        columns = [str(one) for one in function] + [rule.scope, rule.kind]
        lines.append(f"CTXB_DRIVER_FUNCTION({', '.join(columns)})\n")
    return "".join(lines)


def page_text(cuda, rows):
    guarded = [row for row in rows if row[1].kind != "pass"]
    text = (
        "# What is guarded\n\n"
        "This page is for host authors. After it, you know for each function of the driver "
        "whether a plug-in's\ncall is held back, and how. [The gate](the_gate.md) explains "
        "the rest.\n\n"
        f"The gate knows the {len(rows)} functions of CUDA {cuda}. {len(guarded)} of them are "
        "guarded. Calls of all others go\nstraight to the driver, and so do "
        "[functions of a newer driver](the_gate.md#drivers-newer-than-the-gate).\n\n"
        "(broker/shared/driver/make_function_table.py writes this page from the table that the\n"
        "gate is built from.)\n\n"
        "| rule | what a plug-in's call does |\n|---|---|\n"
        + "".join(f"| {name} | {words} |\n" for name, words in kind_words()) + "\n"
        "\"Affects\" says whom a call can affect without the gate: only the caller (call), the "
        "thread, everybody in\nthe context, everybody on the device, or the whole process.\n\n"
        "| function | affects | rule | what the gate does, or what the function would do |\n"
        "|---|---|---|---|\n")
    by_base = {}
    for function, rule in guarded:
        by_base.setdefault(function.base, ([], rule))[0].append(function.symbol)
    for _, (symbols, rule) in sorted(by_base.items()):
        text += (f"| {', '.join('`' + one + '`' for one in symbols)} | {rule.scope} | "
                 f"{rule.kind} | {rule.words} |\n")
    text += ("\n## What is not guarded\n\nA plug-in can affect others by these functions, and "
             "the gate lets them through:\n\n| function | what it reaches, and why it is "
             "not guarded |\n|---|---|\n")
    passed = {function.base: rule.words for function, rule in rows if rule.kind == "pass"}
    by_words = {}
    for base, words in sorted(passed.items()):
        if words:
            by_words.setdefault(words, []).append(f"`{base}`")
    for words, bases in by_words.items():
        text += f"| {', '.join(bases)} | {words} |\n"
    text += ("\nThese functions affect only their caller, as far as the driver's own rules "
             "go:\n\n")
    return text + ", ".join(f"`{base}`" for base in sorted(passed) if not passed[base]) + ".\n"


def tell_changes(cuda, before, rows):
    """Lists the functions that the table does not have, with their rules, and those that it loses."""
    old, new = set(before), {function for function, _ in rows}
    symbols = {function.symbol for function in old}
    for function, rule in rows:
        if function not in old:
            word = "changed" if function.symbol in symbols else "new"
            print(f"{word} in CUDA {cuda}: {', '.join(map(str, function))}: "
                  f"{rule.scope} {rule.kind} (the line for {rule.pattern})")
    for symbol in sorted(symbols - {function.symbol for function in new}):
        print(f"gone in CUDA {cuda}: {symbol}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolkit", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    cuda, functions = functions_of_table()
    before = functions
    if arguments.toolkit:
        cuda, functions = functions_of_toolkit(arguments.toolkit)
    rows = classify(functions)
    tell_changes(cuda, before, rows)

    status = 0
    for file, text in ((table_file, table_text(cuda, rows)), (page_file, page_text(cuda, rows))):
        if not arguments.check:
            file.write_text(text, encoding="utf-8")
        elif file.read_text() != text:
            print(f"{file.relative_to(root)} is not up to date; run: "
                  "python3 broker/shared/driver/make_function_table.py", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
