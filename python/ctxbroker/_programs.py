# SPDX-License-Identifier: Apache-2.0
"""`python -m ctxbroker`: run, doctor, list."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import platform
import sys
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

from . import _api, _broker, _files
from ._errors import Error, MissingFileError

#: As env, nice and timeout: the program that was to be started did not start.
NOT_STARTED = 125

# Options of ctxb-run that take the next word, and those that do not.
_WITH_VALUE = {"--policy", "--tenant", "--report", "--trace", "--log", "--driver", "--children"}

USAGE = """usage: python -m ctxbroker run [OPTIONS] SCRIPT [ARGUMENTS]
       python -m ctxbroker run [OPTIONS] -m MODULE [ARGUMENTS]
       python -m ctxbroker doctor [--driver NAME] [--json]
       python -m ctxbroker list [--plugin-path FOLDER] [--json]

run     starts this Python under ctxb-run, which keeps the script's libraries from harming each other on a CUDA device.
        `run --help` shows the options.
doctor  says which driver and which devices there are, and what protects libraries from one another.
list    lists the ctxbroker plug-ins that are found on this machine."""


def _start_ctxb_run(arguments: Sequence[str]) -> NoReturn:
    try:
        program = str(_files.find("bin", "ctxb-run"))
    except MissingFileError as error:
        print(f"ctxbroker: error: {error}", file=sys.stderr)
        sys.exit(NOT_STARTED)
    sys.stdout.flush()
    try:
        os.execv(program, [program, *arguments])
    except OSError as error:
        print(f"ctxbroker: error: {program} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


def ctxb_run() -> NoReturn:
    """The console script ctxb-run: the program of that name that the package brings."""
    _start_ctxb_run(sys.argv[1:])


def split(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Returns the options of ctxb-run, and the words for Python."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if len(word) < 2 or not word.startswith("-") or word in ("-m", "-c"):
            break
        at += 2 if word in _WITH_VALUE else 1
    return list(words[:at]), list(words[at:])


def run(words: Sequence[str]) -> NoReturn:
    options, script = split(words)
    if not script:
        _start_ctxb_run(options if options else ["--help"])
    _start_ctxb_run([*options, "--", sys.executable, *script])


# ---- doctor ------------------------------------------------------------------------------------


def _findings(driver: Optional[str]) -> Dict[str, Any]:
    """What there is, as JSON may show it."""
    found: Dict[str, Any] = {
        "schema": "ctxbroker.python_doctor/1",
        "version": _broker.version(),
        "python": platform.python_version(),
        "files": str(_files.home()),
        "ctxb_run": None,
        "driver": None,
        "gate": None,
        "devices": [],
        "problems": [],
    }
    try:
        found["ctxb_run"] = str(_files.find("bin", "ctxb-run"))
    except MissingFileError as error:
        found["problems"].append(str(error))
    try:
        broker = _broker.open(driver=driver, host_name="doctor", logger=None)
    except Error as error:
        found["problems"].append(f"no broker can be opened: {error}")
        return found
    with broker:
        found["driver"] = dataclasses.asdict(broker.driver)
        found["gate"] = dataclasses.asdict(broker.gate)
        if not broker.gate.in_force:
            found["problems"].append(f"the gate is not in force: {broker.gate.reason}")
        for device in broker.devices:
            try:
                broker.use_device(device.device)  # raises the shield
            except Error as error:
                found["problems"].append(f"device {device.device} cannot be used: {error}")
        found["devices"] = [dataclasses.asdict(device) for device in broker.devices]
        found["problems"] += [
            f"device {device.device} has no shield, because its driver is older than CUDA 12.4"
            for device in broker.devices
            if device.in_use and not device.shielded
        ]
        found["problems"] += [
            f"device {device.device} has no memory pools, so a library that frees device memory waits for the work of all "
            "its neighbours"
            for device in broker.devices
            if not device.memory_pools
        ]
        found["problems"] += [
            f"device {device.device} has no pools of pinned memory, so a library that allocates or frees pinned memory "
            "holds up all its neighbours"
            for device in broker.devices
            if not device.pinned_pools
        ]
    return found


def _print_findings(found: Dict[str, Any]) -> None:
    print(f"ctxbroker {found['version']} on Python {found['python']}, from {found['files']}")
    driver, gate = found["driver"], found["gate"]
    if driver is not None:
        major, minor = driver["version"] // 1000, driver["version"] % 1000 // 10
        print(f"driver    {driver['kind']}, CUDA {major}.{minor}, {driver['path']}: {driver['reason']}")
    if gate is not None:
        print(f"gate      {'in force' if gate['in_force'] else 'not in force'}: {gate['reason']}")
        for tool in gate["tools"]:
            print(f"tool      {tool}")
    for device in found["devices"]:
        capability = ".".join(str(number) for number in device["compute_capability"])
        print(
            f"device {device['device']}  {device['name']}, compute capability {capability}, "
            f"{device['multiprocessors']} multiprocessors, {device['memory_bytes'] / 2**30:.1f} GiB, "
            f"{'shielded' if device['shielded'] else 'not shielded'}"
        )
    for problem in found["problems"]:
        print(f"problem   {problem}")


def doctor(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ctxbroker doctor")
    parser.add_argument("--driver", choices=["auto", "nvidia", "software"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    found = _findings(given.driver)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        _print_findings(found)
    return 1 if found["driver"] is None else 0


# ---- list --------------------------------------------------------------------------------------


def _texts(texts: Sequence[str]) -> Any:
    """A list for C, which ends with null."""
    return (c_char_p * (len(texts) + 1))(*(os.fsencode(text) for text in texts), None)


def scanned(folders: Sequence[str] = ()) -> Dict[str, Any]:
    """Looks for plug-ins without loading one. Returns a document by the schema "ctxbroker.scan/1"."""
    library = _api.load()
    options = _api.sized(
        _api.ScanOptions,
        first=_texts(folders),
        beside=_texts([str(folder) for folder in _files.plugin_folders()]),
    )
    scan = c_void_p()
    _api.check(library.ctxb_scan_run(byref(options), byref(scan)))
    try:
        text = _api.written(lambda take: library.ctxb_scan_write(scan, take, None))
    finally:
        library.ctxb_scan_end(scan)
    document: Dict[str, Any] = json.loads(text)
    return document


def list_plugins(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ctxbroker list")
    parser.add_argument("--plugin-path", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    document = scanned(given.plugin_path)
    if given.json:
        print(json.dumps(document, indent=2))
        return 0
    for library in document["libraries"]:
        if library["state"] != "enabled":
            print(f"{library['path']}: {library['state']}: {library['reason']}")
        for plugin in library.get("plugins", []):
            print(f"{plugin['id']:40} {plugin['name']:24} {library['path']}")
    return 0


def main(words: Optional[Sequence[str]] = None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    logging.basicConfig(format="ctxbroker: %(levelname)s: %(message)s")
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if given else 2
    if given[0] == "--version":
        print(f"ctxbroker {_broker.version()}")
        return 0
    if given[0] == "run":
        run(given[1:])
    try:
        if given[0] == "doctor":
            return doctor(given[1:])
        if given[0] == "list":
            return list_plugins(given[1:])
    except Error as error:
        print(f"ctxbroker: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    print(f'ctxbroker: error: there is no command "{given[0]}"\n{USAGE}', file=sys.stderr)
    return 2
