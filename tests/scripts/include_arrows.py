#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes what: dependencies go one way, and nobody reaches around a room's headers.

    include_arrows.py CHECKOUT
    include_arrows.py --self-test

Reads every #include of the sources and looks at those that lead to a file of this checkout. The tables
below say what is allowed; docs/how_it_works.md says what the rooms are for. Prints each include that
is not allowed, why not and what to do about it, and ends with 1 if there is one. --self-test tries
small trees, of which each breaks one rule.
"""
import pathlib
import posixpath
import re
import sys
import tempfile

# Folders of broker/src (and of broker/shared): what each room uses, besides what those use in turn.
# A lower room never uses a higher one. What two rooms need belongs to the lower one, or to a room
# below both.
ROOMS = {
    "limits": [],
    "observe": [],
    "json": ["observe", "limits"],
    "process": [],
    "text": [],
    "image": ["observe", "limits"],
    "driver": ["process", "observe"],
    "context": ["driver"],
    "ledger": ["context"],
    "module": ["context", "image"],
    "gate": ["image", "ledger"],
    "plugin": ["gate", "module", "json", "text"],
    "graph": ["plugin"],
    "scan": ["plugin", "process"],
    "probe": ["gate", "json", "process"],
    "worker": ["graph", "process"],
}

# Folders of broker/software_device, in the same way.
DEVICE_ROOMS = {
    "memory": [],
    "ptx": [],
    "exec": ["ptx", "memory"],
    "api": ["exec"],
}

# Headers that hosts and authors of plug-ins get.
PUBLIC = ["broker/include", "broker/software_device/include", "plugin_sdk/include"]
SHARED = "broker/shared"  # for all of this repository; never installed
PRIVATE = "broker/src"

# What is built beside the broker: each sees itself, SHARED and PUBLIC.
OUTSIDE = ["broker/software_device", "broker/launch", "plugin_sdk", "sample_host", "sample_plugins"]

# Tests that may look into PRIVATE, and why. All other tests are hosts: they see what a host sees.
WHITE_BOX = {
    "tests/unit/": "unit tests look at one part of the broker",
    "tests/fuzz/": "fuzz targets give bytes to one reader of the broker",
    "tests/bench/bench_timeline.cpp": "measures a span, which no host can make",
    "tests/contract/gate/forked_process_test.cpp": "holds a lock of the broker's while the process forks",
    "tests/contract/gate/gate_start_test.cpp": "asks the gate's library itself, past the broker",
    "tests/contract/gate/handle_parameters_test.cpp": "calls rules of functions that no driver has here",
    "tests/contract/gate/ledger_contract_test.cpp": "compares the ledger with what the driver has",
    "tests/contract/gate/primary_detour_test.cpp": "no driver without another API has work for the detour",
    "tests/contract/gate/reused_handles_test.cpp": "stops a thread between the driver's answer and the record",
    "tests/contract/worker/module/graph_liar.cpp": "lies in the words of the graphs' own protocol",
    "tests/contract/worker/module/module.cpp": "reaches into the channel, as a hostile worker can",
    "tests/contract/worker/module/passing.cpp": "sends packets past the library, as a hostile worker can",
}

# Modules (NAME.hpp and NAME.cpp are one) that include each other in circles today. No circle may
# be added and no module may join one. Take a name out when it is in no circle any more.
CIRCLES = [
    ["context/guard", "context/hung_work", "context/tenant_identity"],
    ["gate/caller", "gate/code_map", "gate/gated_tenant", "gate/rule"],
    ["gate/give_back", "gate/held", "gate/use"],
    ["gate/library/gate", "gate/library/parts"],
    ["ledger/give_back", "ledger/ledger"],
    ["module/module_service", "module/module_set"],
    ["observe/crash_report", "observe/running"],
    ["plugin/broker_impl", "plugin/host_call", "plugin/host_side", "plugin/instance",
     "plugin/loaded_library", "plugin/loss", "plugin/tenant_impl"],
    ["worker/graph_served", "worker/shared_devices"],
    # The driver's state (process.hpp) holds one of each, and each finds the others through it.
    ["software_device/api/array", "software_device/api/call_count", "software_device/api/capture",
     "software_device/api/context", "software_device/api/context_table", "software_device/api/device",
     "software_device/api/entry", "software_device/api/event",
     "software_device/api/fault_text", "software_device/api/function_settings",
     "software_device/api/graph", "software_device/api/graph_memory", "software_device/api/jit",
     "software_device/api/launch", "software_device/api/library", "software_device/api/link",
     "software_device/api/logs", "software_device/api/memory_pool",
     "software_device/api/memory_registry", "software_device/api/module",
     "software_device/api/process", "software_device/api/settings",
     "software_device/api/shared_record", "software_device/api/stream",
     "software_device/api/user_object", "software_device/api/virtual_memory"],
    # The grammar is recursive: a function has instructions, which have constants and names.
    ["software_device/ptx/constant", "software_device/ptx/context", "software_device/ptx/declaration",
     "software_device/ptx/function", "software_device/ptx/instruction", "software_device/ptx/names",
     "software_device/ptx/parser", "software_device/ptx/token_stream"],
]

TABLES = "tests/scripts/include_arrows.py"
FOLDERS = ["broker", "plugin_sdk", "sample_host", "sample_plugins", "tests"]
SOURCE = re.compile(r"\.(c|cc|cpp|cu|cuh|def|h|hpp|inc|S)(\.in)?$")
sys.setrecursionlimit(10_000)  # circles() goes as deep as includes do
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
DEVICE = "broker/software_device"


def is_in(path, folder):
    return path.startswith(folder + "/")


def closure(rooms):
    """Room to all that it may use. Ends the script when the table itself has a circle."""
    found = {}

    def visit(room, on_the_way):
        if room in on_the_way:
            sys.exit(f"{TABLES}: its table of rooms has a circle: {' -> '.join([*on_the_way, room])}")
        if room not in found:
            uses = [visit(used, [*on_the_way, room]) | {used} for used in rooms[room]]
            found[room] = set().union(*uses)
        return found[room]

    for room in rooms:
        visit(room, [])
    return found


def room_of(path):
    """The folder and room of a file: ("broker/src", "gate"). None for a file that is in no room."""
    for folder, place in ((PRIVATE, PRIVATE), (SHARED, PRIVATE), (DEVICE, DEVICE)):
        if is_in(path, folder) and not any(is_in(path, public) for public in PUBLIC):
            parts = path[len(folder) + 1:].split("/")
            return (place, parts[0]) if len(parts) > 1 else None
    return None


def module_of(path):
    """NAME.hpp and NAME.cpp are one module, in broker/src and broker/shared alike."""
    for folder in (PRIVATE, SHARED, "broker"):
        if is_in(path, folder):
            return SOURCE.sub("", path[len(folder) + 1:])
    return SOURCE.sub("", path)


class Tree:
    def __init__(self, root):
        self.files = {}  # path to its text
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                if SOURCE.search(path.name) and path.is_file():
                    name = path.relative_to(root).as_posix()
                    self.files[name] = path.read_text(encoding="utf-8", errors="replace")
        self.names = set(self.files) | {name[:-3] for name in self.files if name.endswith(".in")}
        self.problems = []
        self.includes = [(source, line, text, target) for source in self.files
                         for line, text, target in self.includes_of(source)]

    def includes_of(self, source):
        """The line, the text and the file of each include of a file of this checkout."""
        text = self.files[source]
        for match in INCLUDE.finditer(text):
            target = self.resolve(source, match.group(1))
            if target is not None:
                yield text.count("\n", 0, match.start()) + 1, match.group(1), target

    def resolve(self, source, text):
        # Own files come first, as for the compiler. PRIVATE is tried for everybody, to be refused.
        own = [folder for folder in [PRIVATE, *OUTSIDE, "plugin_sdk/validate"] if is_in(source, folder)]
        for folder in [posixpath.dirname(source), *own, SHARED, *PUBLIC, PRIVATE]:
            path = posixpath.normpath(posixpath.join(folder, text))
            if path in self.names:
                return path
        return None

    def report(self, source, line, wrong, why, do):
        self.problems.append(f"{source}:{line}: {wrong}\n    why: {why}\n    do:  {do}")

    # ---- Rooms

    def check_rooms(self):
        for place, rooms in ((PRIVATE, ROOMS), (DEVICE, DEVICE_ROOMS)):
            allowed = closure(rooms)
            unknown = {}
            for path in self.files:
                room = room_of(path)
                if room and room[0] == place and room[1] not in rooms:
                    unknown.setdefault(room[1], path)
            for room, path in unknown.items():
                self.report(path, 1, f"the room {room} is unknown",
                            "a room is a folder whose place among the others is decided",
                            f"move its files to one of {', '.join(rooms)}, or write the new room "
                            f"into the table in {TABLES} and into docs/how_it_works.md")
            for source, line, text, target in self.includes:
                user, used = room_of(source), room_of(target)
                if not user or not used or user[0] != place or used[0] != place:
                    continue
                user, used = user[1], used[1]
                if user == used or user not in rooms or used not in rooms or used in allowed[user]:
                    continue
                if user in allowed[used]:
                    why = f"{used} uses {user}, so this leads back: dependencies point one way"
                else:
                    may = ", ".join(sorted(allowed[user])) or "no other room"
                    why = f"{user} uses {may}"
                self.report(source, line, f'"{text}" is not for the room {user}', why,
                            f"move what both need to {user} or to a room below it, or let a room above "
                            f"hand it in; a new arrow is a decision, and stands in {TABLES} and in "
                            "docs/how_it_works.md")

    # ---- Folders

    def check_folders(self):
        looked_inside = set()
        for source, line, text, target in self.includes:
            if any(is_in(source, folder) for folder in PUBLIC):
                if not any(is_in(target, folder) for folder in PUBLIC):
                    self.report(source, line, f'"{text}" is no public header',
                                "hosts get the public headers alone, so this one could not be compiled",
                                "declare here what is needed, or make that header public")
                continue
            if is_in(source, "tests"):
                if is_in(target, PRIVATE):
                    named = [name for name in WHITE_BOX if source.startswith(name)]
                    looked_inside.update(named)
                    if not named:
                        self.report(source, line, f'"{text}" is a header of {PRIVATE}',
                                    "a test is a host and sees what a host sees, unless it is named",
                                    "test through the public headers, or write the file and a reason "
                                    f"into WHITE_BOX in {TABLES}")
                continue
            home = next(folder for folder in [SHARED, PRIVATE, *OUTSIDE, "broker"]
                        if is_in(source, folder))
            if any(is_in(target, folder) for folder in [home, SHARED, *PUBLIC]):
                continue
            if is_in(target, PRIVATE):
                self.report(source, line, f'"{text}" is a header of {PRIVATE}',
                            f"{home} is not a part of the broker and sees {SHARED} and the public headers",
                            f"use a public header, or give what is needed a small header in {SHARED}")
            else:
                self.report(source, line, f'"{text}" belongs to {posixpath.dirname(target)}',
                            f"{home} sees itself, {SHARED} and the public headers",
                            f"give what both need a small header in {SHARED}")
        for name in WHITE_BOX:
            if name not in looked_inside:
                self.report(TABLES, 1, f"WHITE_BOX names {name}, which includes nothing of {PRIVATE}",
                            "a list of exceptions is as short as it can be", "take it out of WHITE_BOX")

    # ---- Circles

    def check_circles(self):
        headers, modules = {}, {}
        for source, line, text, target in self.includes:
            if not room_of(source) or not room_of(target):
                continue
            step = (source, line)
            if not source.endswith((".c", ".cpp", ".S")) and source != target:
                headers.setdefault(source, {}).setdefault(target, step)
            user, used = module_of(source), module_of(target)
            if user != used:
                modules.setdefault(user, {}).setdefault(used, step)
        for circle in circles(headers):
            self.report_circle(headers, circle, "these headers include each other",
                               "#pragma once then hides one of them from the other")
        in_a_circle = set()
        for circle in circles(modules):
            in_a_circle |= circle
            known = next((set(names) for names in CIRCLES if circle & set(names)), set())
            new = circle - known
            if new:
                self.report_circle(modules, circle, "these modules include each other, and "
                                   f"{', '.join(sorted(new))} is new among them",
                                   "neither can be understood, tested or moved without the other")
        for name in (name for names in CIRCLES for name in names):
            if name not in in_a_circle:
                self.report(TABLES, 1, f"CIRCLES names {name}, which is in no circle",
                            "the list of circles only gets shorter", "take it out of CIRCLES")

    def report_circle(self, graph, circle, wrong, why):
        way = one_way_round(graph, circle)
        steps = [graph[user][used] for user, used in zip(way, way[1:])]
        shown = "".join(f"\n    {source}:{line} includes {used}"
                        for (source, line), used in zip(steps, way[1:]))
        self.report(*steps[0], wrong + shown, why,
                    "cut one of these includes: declare only the name, or move what both need into a "
                    "third file")


def circles(graph):
    """The sets of nodes that reach each other (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, {}):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def one_way_round(graph, circle):
    """A shortest way from some node of a circle back to it."""
    best = None
    for start in sorted(circle):
        ways = [[start]]
        seen = set()
        while ways and (best is None or len(ways[0]) < len(best)):
            way = ways.pop(0)
            for other in sorted(graph.get(way[-1], {})):
                if other == start:
                    best, ways = [*way, start], []
                    break
                if other in circle and other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
    return best


def check(root):
    tree = Tree(root)
    if not tree.includes:
        sys.exit(f"{root} has no sources of this project")
    tree.check_rooms()
    tree.check_folders()
    tree.check_circles()
    return tree.problems


# ---- The positive control: each tree breaks one rule, and the report has to name it.

SOUND = {
    "broker/include/ctxbroker/lease.hpp": "",
    "broker/shared/json/document.hpp": "",
    "broker/src/observe/span.hpp": '#include "ctxbroker/lease.hpp"\n',
    "broker/src/driver/driver.hpp": '#include "observe/span.hpp"\n',
    "broker/src/gate/gate.hpp": '#include "driver/driver.hpp"\n',
    "broker/src/gate/gate.cpp": '#include "gate/gate.hpp"\n',
    "broker/src/plugin/plugin.cpp": '#include "gate/gate.hpp"\n#include "json/document.hpp"\n',
    "broker/src/graph/graph.hpp": "",
    "broker/src/scan/scan.hpp": "",
    "broker/software_device/ptx/parser.hpp": "",
    "broker/software_device/exec/execute.hpp": '#include "ptx/parser.hpp"\n',
    "plugin_sdk/include/ctxbroker/plugin.h": "",
    "plugin_sdk/validate/main.cpp": '#include "json/document.hpp"\n#include <ctxbroker/plugin.h>\n',
    "sample_host/main.cpp": '#include "ctxbroker/lease.hpp"\n#include <vector>\n',
    "sample_plugins/blur.cpp": '#include <ctxbroker/plugin.h>\n',
    "tests/contract/host_test.cpp": '#include "ctxbroker/lease.hpp"\n',
    "tests/unit/gate_test.cpp": '#include "gate/gate.hpp"\n',
}
# The file that changes, its text, and what the report says of it.
BROKEN = [
    ("broker/src/observe/span.hpp", '\n#include "driver/driver.hpp"\n',
     'broker/src/observe/span.hpp:2: "driver/driver.hpp" is not for the room observe'),
    ("broker/src/plugin/access.hpp", '#include "graph/graph.hpp"\n', "dependencies point one way"),
    ("broker/src/worker/client.cpp", '#include "scan/scan.hpp"\n', "worker uses context, driver"),
    ("broker/shared/json/document.hpp", '#include "gate/gate.hpp"\n',
     'document.hpp:1: "gate/gate.hpp" is a header of broker/src'),
    ("broker/src/odds/ends.hpp", "", "the room odds is unknown"),
    ("broker/src/gate/gate.cpp", '#include "../../software_device/ptx/parser.hpp"\n',
     "belongs to broker/software_device/ptx"),
    ("sample_host/main.cpp", '#  include "gate/gate.hpp"\n', "sample_host is not a part of the broker"),
    ("sample_plugins/blur.cpp", "#include <gate/gate.hpp>\n", "sample_plugins is not a part"),
    ("plugin_sdk/validate/main.cpp", '#include "../../broker/src/gate/gate.hpp"\n',
     "is a header of broker/src"),
    ("broker/software_device/exec/execute.hpp", '#include "gate/gate.hpp"\n',
     "broker/software_device is not a part of the broker"),
    ("broker/software_device/ptx/parser.hpp", '#include "exec/execute.hpp"\n',
     "is not for the room ptx"),
    ("broker/include/ctxbroker/lease.hpp", '#include "json/document.hpp"\n', "is no public header"),
    ("tests/contract/host_test.cpp", '#include "gate/gate.hpp"\n', "sees what a host sees"),
    ("broker/src/driver/driver.hpp", '#include "driver/file.hpp"\n#include "observe/span.hpp"\n',
     "these headers include each other", ("broker/src/driver/file.hpp", '#include "driver/driver.hpp"\n')),
    ("broker/src/driver/driver.hpp", '#include "driver/file.hpp"\n#include "observe/span.hpp"\n',
     "driver/driver, driver/file is new among them",
     ("broker/src/driver/file.hpp", ""),
     ("broker/src/driver/file.cpp", '#include "driver/driver.hpp"\n')),
]


def try_tree(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        # The lists of exceptions name files that these small trees do not have.
        return [problem for problem in check(root) if not problem.startswith(TABLES)]


def self_test():
    failed = 0
    problems = try_tree(SOUND)
    if problems:
        failed += 1
        print("the sound tree has problems:", *problems, sep="\n")
    for name, text, expected, *more in BROKEN:
        problems = try_tree({**SOUND, name: text, **dict(more)})
        if not any(expected in problem for problem in problems):
            failed += 1
            print(f"{name} with {text!r}: expected {expected!r}, found", *problems or ["nothing"],
                  sep="\n")
    print(f"{len(BROKEN) + 1 - failed} of {len(BROKEN) + 1} trees are judged as they should be")
    return failed == 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 0 if self_test() else 1
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    problems = check(pathlib.Path(sys.argv[1]))
    print(*problems, sep="\n")
    print(f"{len(problems)} problems with includes" if problems else "every include is allowed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
