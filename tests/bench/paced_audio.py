#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does sound come in time beside a neighbour that allocates, pins memory, loads modules and computes?

    paced_audio.py [--only NAME ...] [--memory driver pool] [--seconds S] [--block FRAMES] [--lease KIND]
                   [--neighbour-lease KIND] [--json FILE] [--list]

Stands in bin/ of a build or a bundle. Plays a sound with sample_host audio --pace, alone and beside each neighbour, and
prints a table: the missed deadlines, how long blocks took (microseconds), and the calls that held up other tenants. The
neighbour is a library in the same process (qos/neighbour_library.cpp), a tenant by a pattern of the policy. --memory says
where the tenants' memory comes from. Status 1: a run failed. Missed deadlines are no failure. CTXBROKER_DRIVER chooses
the driver.
"""
import argparse
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import wave

BIN = pathlib.Path(__file__).resolve().parent
LIBRARY = BIN.parent / "test_plugins" / "bench" / "neighbour.so"
TENANT, PLUGIN = "bench.neighbour", "org.ctxbroker.sample.gain"
RATE = 48000  # Hz
SLACK = 2     # seconds: the neighbour begins while the plug-in is activated, and may take longer for that
# Names, and the loads of bench_qos that they are. Each load has a thread of its own.
NEIGHBOURS = {
    "none": (),
    "allocation": ("allocation",),   # cuMemAlloc and cuMemFree of 1 MiB
    "pinned": ("pinned",),           # 64 KiB of pinned memory, allocated and freed
    "module": ("module",),           # loaded and unloaded
    "compute": ("hog_100us",),       # launches of 1 ms
    "all": ("allocation", "pinned", "module", "hog_100us"),
}


class Failed(Exception):
    """A run that says nothing, and why."""


def write_sound(path):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        samples = (round(8000 * math.sin(2 * math.pi * 440 * frame / RATE)) for frame in range(RATE))
        file.writeframes(b"".join(struct.pack("<hh", sample, sample) for sample in samples))


def policy(options, memory, has_neighbour):
    text = {"schema": "ctxbroker.policy/1", "by_id": {PLUGIN: {"lease": options.lease, "memory": memory}}}
    if has_neighbour:
        text["by_id"][TENANT] = {"lease": options.neighbour_lease, "memory": memory}
        text["libraries"] = [{"match": "*/" + "/".join(LIBRARY.parts[-3:]), "tenant": TENANT}]
    return json.dumps(text)


def play(options, memory, loads, folder):
    """One run: its report, and the lines that the neighbour wrote."""
    sound, output, begin, done = (folder / name for name in ("in.wav", "out.wav", "begin", "done"))
    write_sound(sound)
    (folder / "policy.json").write_text(policy(options, memory, bool(loads)))
    environment = dict(os.environ)
    if loads:
        environment.update(LD_PRELOAD=str(LIBRARY), CTXB_LOADS=",".join(loads), CTXB_LOADS_BEGIN=str(begin),
                           CTXB_LOADS_DONE=str(done))
    command = [BIN / "sample_host", "audio", sound, "-o", output, "--plugin", "gain", "--block", str(options.block),
               "--pace", "--seconds", str(options.seconds), "--policy", folder / "policy.json",
               "--json", folder / "report.json", "--quiet"]
    deadline = time.monotonic() + options.seconds + 120
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as process:
        # sample_host opens its output after the broker, so that what the neighbour then makes is the tenant's.
        while process.poll() is None and not list(folder.glob("out.wav.*.part")):
            time.sleep(0.001)
        begin.touch()
        try:
            errors = process.communicate(timeout=max(1, deadline - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed("sample_host did not end") from None
    if process.returncode != 0:
        raise Failed(f"sample_host ended with {process.returncode}: {errors.strip()}")
    lines = done.read_text().splitlines() if done.exists() else []
    return json.loads((folder / "report.json").read_text()), [line.split(" ", 3) for line in lines]


def result_of(options, report, lines, loads):
    """The row's facts. A neighbour that stopped before the sound did would make them look good."""
    tenants = {tenant["name"]: tenant for tenant in report["metrics"]["tenants"]}
    did = {}
    for name, rounds, seconds, why in lines:
        if float(seconds) < options.seconds - SLACK or int(rounds) == 0:
            raise Failed(f"the neighbour's {name} ended after {seconds} s and {rounds} rounds: {why}")
        did[name] = int(rounds)
    if set(did) != set(loads):
        raise Failed("the neighbour did not begin")
    if loads and not tenants.get(TENANT, {}).get("leases"):
        raise Failed("the neighbour's work was not the tenant's; is the gate in force?")
    calls = report["audio"]["realtime_calls"]
    return {**report["audio"]["pace"], "memory": tenants[TENANT if loads else "gain"]["memory"], "neighbour_did": did,
            "held_up": {"calls": sum(call["count"] for call in calls),
                        "longest_us": 1e6 * max((call["longest_seconds"] for call in calls), default=0)},
            "realtime_calls": calls,
            "leases": {lease["tenant"]: lease["granted"] for lease in report["leases"]},
            "device": report["device"]["name"], "driver": report["driver"]["path"]}


HEAD = ("neighbour", "memory", "blocks", "missed", "latest", "p50", "p99", "p99.9", "worst", "neighbour did",
        "calls that held up", "longest")


def row(name, result):
    did = ", ".join(f"{rounds} {load}" for load, rounds in result["neighbour_did"].items())
    times = [f"{result[key]:.1f}" for key in ("latest_us", "p50_us", "p99_us", "p999_us", "worst_us")]
    return (name, result["memory"], result["blocks"], result["missed_deadlines"], *times, did or "-",
            result["held_up"]["calls"], f"{result['held_up']['longest_us']:.1f}")


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(NEIGHBOURS), default=list(NEIGHBOURS), metavar="NAME")
    parser.add_argument("--memory", nargs="+", choices=["driver", "pool"], default=["driver", "pool"])
    parser.add_argument("--seconds", type=float, default=60, help="of sound in each run")
    parser.add_argument("--block", type=int, default=64, help="frames")
    parser.add_argument("--lease", default="green:16", help="of the plug-in that plays")
    parser.add_argument("--neighbour-lease", default="green:64")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    parser.add_argument("--list", action="store_true", help="print the names of the neighbours and run none")
    options = parser.parse_args()
    if options.seconds <= 0:
        parser.error("--seconds: write a number above 0")
    return options


def main():
    options = arguments()
    if options.list:
        print("\n".join(NEIGHBOURS))
        return 0
    results, is_good = [], True
    for name in options.only:
        for memory in options.memory:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    loads = NEIGHBOURS[name]
                    result = result_of(options, *play(options, memory, loads, pathlib.Path(folder)), loads)
            except Failed as failure:
                is_good = False
                print(f"{name}, {memory}: {failure}", file=sys.stderr, flush=True)
                continue
            if not results:
                print(f"{result['device']}, driver {result['driver']}; times in us\n\n{line(HEAD)}\n"
                      f"|{'---|' * len(HEAD)}")
            results.append({"neighbour": name, **result})
            print(line(row(name, result)), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"seconds": options.seconds, "block_frames": options.block, "rate": RATE,
                                            "runs": results}, indent=2) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
