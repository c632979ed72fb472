#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do profilers, checkers and debuggers work beside the gate, and does it still protect?

    tools_beside_gate.py [--only NAME ...] [--logs FOLDER] [--seconds S] [--list]

Stands in bin/ of a build or a bundle. Runs, under each tool that is installed here (ncu,
compute-sanitizer, cuda-gdb, nsys) and under two tools of ours:

  host    a program that links the driver, beside an attacker: the gate is there before the driver,
          and what the attacker frees and resets does no harm
  image   sample_host, with a kernel on an image: the same bytes as without a tool
  soak    many plug-ins that misbehave, each output checked

Beside a tool whose library answers to the driver's name (ncu) the gate stands aside: then it has to
say so, the attacker does its harm, and there is no soak.

and prints what came of each, and which names the driver exports that the gate does not. A tool that
is not installed is skipped, and so said. Ends with 1 when anything went wrong. The driver is what
CTXBROKER_DRIVER says, as ever.
"""
import argparse
import glob
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(__file__).resolve().parent
ROOT = BIN.parent
# In a bundle; in a source folder with its build in it.
PICTURE = next((one for one in (ROOT / "assets/flower.png", ROOT.parent.parent / "assets/flower.png") if one.exists()),
               ROOT / "assets/flower.png")
SOFTWARE = os.environ.get("CTXBROKER_DRIVER") == "software"


def find_tool(name):
    """NVIDIA's tools are often not on PATH."""
    found = shutil.which(name)
    places = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*",
              "/opt/nvidia/nsight-systems/*/bin", "/usr/lib/nsight-*", "/usr/local/cuda*/nsight-*/bin",
              "/usr/local/cuda*/nsight-compute-*")
    for place in places if found is None else ():
        hits = sorted(glob.glob(os.path.join(place, name)))
        found = hits[-1] if hits else found
    return found


class Tool:
    def __init__(self, name, command=(), environment=None, missing="", shows="", gate_stands_aside=""):
        self.name = name
        self.gate_stands_aside = gate_stands_aside  # what the broker says then
        self.command = list(command)  # what stands in front of the program
        self.environment = environment or {}
        self.missing = missing  # why it cannot be tried
        self.shows = shows  # what the program's or the tool's own words must contain


def tools(scratch):
    def nvidias(name, arguments, shows="", **more):
        file = find_tool(name)
        return Tool(name, [file, *arguments] if file else (), shows=shows,
                    missing="" if file else "not installed", **more)

    fixtures = ROOT / "test_plugins"
    return [
        Tool("none"),
        Tool("interposer", environment={"LD_PRELOAD": str(fixtures / "tool_interposer.so")}, shows="interposer: "),
        Tool("injected", environment={"CUDA_INJECTION64_PATH": str(fixtures / "tool_injected.so")},
             shows="injected: works"),
        nvidias("ncu", ["--clock-control", "none", "--launch-count", "3", "--section", "LaunchStats"], "==PROF==",
                gate_stands_aside="gate: none (it stands aside for Nsight Compute"),
        nvidias("compute-sanitizer", ["--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "86"], "COMPUTE-SANITIZER"),
        nvidias("cuda-gdb", ["-batch", "-ex", "run", "--args"], "Thread debugging"),
        nvidias("nsys", ["profile", "--trace", "cuda,nvtx", "--force-overwrite", "true", "--output",
                         str(scratch / "report")], "report"),
    ]


class Run:
    def __init__(self, tool, program, logs, seconds):
        environment = dict(os.environ, **tool.environment)
        if SOFTWARE:  # who asks for the driver finds it there, as on any machine with NVIDIA's
            environment["LD_LIBRARY_PATH"] = str(ROOT / "lib/ctxbroker/software_device")
        command = [*tool.command, *map(str, program)]
        log = logs / f"{tool.name}_{pathlib.Path(program[0]).name}.txt"
        with open(log, "w") as file:
            try:
                self.status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment,
                                             stdin=subprocess.DEVNULL, timeout=seconds).returncode
            except subprocess.TimeoutExpired:
                self.status = f"nothing after {seconds} s"
        self.output = log.read_text(errors="replace")

    def lacks(self, *words):
        return [f"does not say \"{word}\"" for word in words if word not in self.output]


def try_host(tool, _scratch, logs, _seconds):
    run = Run(tool, [BIN / "host_with_driver_first"], logs, 300)
    expected = ([tool.gate_stands_aside, "the host's memory: DAMAGED"] if tool.gate_stands_aside else
                ["gate: before_driver", "the host's memory: whole"])
    wrong = run.lacks(*expected, tool.shows)
    seen = [line for line in run.output.splitlines() if line.startswith("tool: ")]
    return wrong + ([f"ended with {run.status}"] if run.status != 0 else []), seen


def try_image(tool, scratch, logs, _seconds):
    out = scratch / f"{tool.name}.png"
    run = Run(tool, [BIN / "sample_host", "image", PICTURE, "-o", out, "--plugin",
                     "exposure:stops=0.7"], logs, 300)
    wrong = [f"ended with {run.status}"] if run.status != 0 else []
    expected = scratch / "none.png"
    if not out.exists():
        wrong.append("wrote nothing")
    elif expected.exists() and out.read_bytes() != expected.read_bytes():
        wrong.append("another picture than without the tool")
    return wrong, []


def try_soak(tool, _scratch, logs, seconds):
    if tool.gate_stands_aside:
        return [], ["left out: plug-ins that misbehave need the gate"]
    run = Run(tool, [BIN / "soak", "--plugins", "6", "--seconds", seconds, "--patience", "200"], logs, 400)
    # A tool has memory and descriptors of its own.
    counts = [line.split() for line in run.output.partition("unexpected:\n")[2].partition("the broker said:")[0]
              .splitlines() if " x " in line]
    only_more_is_there = counts and all(" ".join(words[2:]) == "not given back" for words in counts)
    if run.status != 0 and not (tool.command and only_more_is_there):
        words = [" ".join(line) for line in counts] or run.output.strip().splitlines()[-3:]
        return [f"ended with {run.status}: {'; '.join(words)}"], []
    return [], []


PROGRAMS = {"host": try_host, "image": try_image, "soak": try_soak}


def exported_names(file):
    """The functions in a library's own table, as the loader reads it."""
    data = pathlib.Path(file).read_bytes()
    section_at, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_at + i * size) for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        text = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, index = struct.unpack_from("<IBBH", data, at)
            if index != 0 and info >> 4 in (1, 2):
                names.add(data[text + name:data.index(b"\0", text + name)].decode())
    return names


def show_exports():
    out = subprocess.run([BIN / "host_with_driver_first"], capture_output=True, text=True, env=dict(
        os.environ, **({"LD_LIBRARY_PATH": str(ROOT / "lib/ctxbroker/software_device")} if SOFTWARE else {}))).stdout
    file = next((line[len("driver: "):] for line in out.splitlines() if line.startswith("driver: ")), None)
    if file is None:
        return
    missing = exported_names(file) - exported_names(ROOT / "lib" / "ctxbroker" / "ctxbroker_gate.so")
    print(f"{file} exports {len(missing)} names that the gate does not:")
    print("  " + (" ".join(sorted(missing)) or "none"))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="*", help="these tools (none is always run)")
    arguments.add_argument("--logs", default=None, help="a folder for what each run said")
    arguments.add_argument("--seconds", type=float, default=10, help="of the soak")
    arguments.add_argument("--list", action="store_true", help="say which tools are here, and run nothing")
    given = arguments.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        logs = pathlib.Path(given.logs) if given.logs else scratch
        logs.mkdir(parents=True, exist_ok=True)
        for tool in tools(scratch):
            if given.only and tool.name != "none" and tool.name not in given.only:
                continue
            if tool.missing or given.list:
                print(f"{tool.name:18} {'skipped: ' + tool.missing if tool.missing else 'here'}")
                continue
            for name, attempt in PROGRAMS.items():
                wrong, seen = attempt(tool, scratch, logs, given.seconds)
                print(f"{tool.name:18} {name:6} {'ok' if not wrong else 'FAILED: ' + '; '.join(wrong)}", flush=True)
                for line in seen:
                    print(f"{'':18} {'':6} {line}")
                failures += bool(wrong)
        if not given.list:
            show_exports()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
