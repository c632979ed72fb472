#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the gate's table and its documentation from the list of the driver's public names and
classification.txt. Run it by hand after you change either. The build never runs it. A test fails if
you forget.

    make_gate_table.py TABLE DOCUMENT        (gate_table.inc, docs/guarded_functions.md)

For a newer toolkit, run software_device/api/make_entry_points.py first. Then run this, and add a
line to classification.txt for each name that it does not know.
"""
import fnmatch
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
names_file = here.parent.parent / "software_device" / "api" / "entry_points.inc"
scopes = ("call", "thread", "context", "device", "process")
policies = ("pass", "look_up", "capture", "absorb", "scope", "own", "count", "virtualise",
            "refuse", "time", "report")


def read_rules():
    rules = []
    for number, line in enumerate((here / "classification.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, scope, policy, *words = line.split(None, 3)
        if scope not in scopes or policy not in policies:
            sys.exit(f"classification.txt:{number}: no such scope or policy: {scope} {policy}")
        rules.append((pattern, scope, policy, words[0] if words else ""))
    return rules


def policy_words():
    """The policies as the head of classification.txt explains them."""
    text = (here / "classification.txt").read_text()
    found = dict(re.findall(r"^#   (\w+) {2,}(\S.*)$", text, re.M))
    return [(name, found[name]) for name in policies if name != "pass"]


def main() -> None:
    rules = read_rules()
    rows, used = [], set()
    pattern = r"^CTXB_ENTRY\((\w+), (\w+), (\d+), ([01])\)"
    for symbol, base, version, per_thread in re.findall(pattern, names_file.read_text(), re.M):
        rule = next((one for one in rules if fnmatch.fnmatchcase(base, one[0])), None)
        if rule is None:
            sys.exit(f"classification.txt has no line for {base}: add what it can do to others")
        used.add(rule[0])
        rows.append((symbol, base, version, per_thread) + rule[1:])
    unused = [one[0] for one in rules if one[0] not in used]
    if unused:
        sys.exit("classification.txt: no function fits " + ", ".join(unused))

    with open(sys.argv[1], "w", encoding="utf-8") as table:
        table.write("// SPDX-License-Identifier: Apache-2.0\n/* Written by make_gate_table.py: CTXB_GATE_ENTRY(exported symbol, name that "
                    "cuGetProcAddress\n * knows it by, first CUDA version, per-thread default "
                    "stream, scope, policy). */\n")
        for row in rows:
            table.write("CTXB_GATE_ENTRY(" + ", ".join(row[:6]) + ")\n")

    guarded = [row for row in rows if row[5] != "pass"]
    with open(sys.argv[2], "w", encoding="utf-8") as document:
        document.write(
            "# What is guarded\n\n"
            "This page is for host authors. After it, you know for each function of the driver "
            "whether a plug-in's\ncall is held back, and how. [The gate](the_gate.md) explains "
            "the rest.\n\n"
            f"The gate exports {len(rows)} functions of the driver. {len(guarded)} of them are "
            "guarded. Calls of all others go\nstraight to the driver.\n\n"
            "(broker/src/gate/make_gate_table.py writes this page from the table that the gate is "
            "built from.)\n\n"
            "| policy | what a plug-in's call does |\n|---|---|\n"
            + "".join(f"| {name} | {words} |\n" for name, words in policy_words()) + "\n"
            "\"Affects\" says whom a call can affect without the gate: only the caller (call), the "
            "thread, everybody in\nthe context, everybody on the device, or the whole process.\n\n"
            "| function | affects | policy | what the gate does, or what the function would do |\n"
            "|---|---|---|---|\n")
        by_base = {}
        for symbol, base, _, _, scope, policy, words in guarded:
            by_base.setdefault(base, ([], scope, policy, words))[0].append(symbol)
        for base, (symbols, scope, policy, words) in sorted(by_base.items()):
            document.write(f"| {', '.join('`' + one + '`' for one in symbols)} | {scope} | "
                           f"{policy} | {words} |\n")
        document.write("\n## What is not guarded\n\nA plug-in can affect others by these functions, and "
                       "the gate lets them through:\n\n| function | what it reaches, and why it is "
                       "not guarded |\n|---|---|\n")
        unheld = {row[1]: row[6] for row in rows if row[5] == "pass" and row[6]}
        by_words = {}
        for base, words in sorted(unheld.items()):
            by_words.setdefault(words, []).append(f"`{base}`")
        for words, bases in by_words.items():
            document.write(f"| {', '.join(bases)} | {words} |\n")
        document.write("\nThese functions affect only their caller, as far as the driver's own rules "
                       "go:\n\n")
        others = sorted({row[1] for row in rows if row[5] == "pass"} - set(unheld))
        document.write(", ".join(f"`{one}`" for one in others) + ".\n")


main()
