#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What memory costs PyTorch, CuPy and a sort with Thrust: alone, and as tenants with memory of the driver and of pools.

    memory_costs.py [--only NAME ...] [--seconds 3] [--repeat 3] [--quiet-lease green] [--ctxb-run FILE] [--out FILE]

The three arrangements take turns. Each table has the time of an allocation and of its free by size and kind, the rate
of the program's work, the memory that the tenants' pools kept at the end, and the memory that the program missed at its
end, after it had freed all of its own. Status 0: all results are right; 1: one is wrong; 77: no program can run here.
"""
import glob
import pathlib
import statistics
import sys

import strangers


class Thrust(strangers.Program):
    file = None  # a built library

    def add_options(self, parser):
        parser.add_argument("--thrust-library", type=pathlib.Path, help="a built one; default: built here by nvcc")

    def take_options(self, options):
        self.file = options.thrust_library.resolve() if options.thrust_library else None

    def prepare(self, place):
        if self.file:
            return
        nvcc = strangers.find_nvcc()
        if not nvcc:
            raise strangers.Skipped("there is no nvcc for thrust_sort.cu; name a built library with --thrust-library")
        folders = [pathlib.Path(nvcc).resolve().parent.parent / one for one in ("lib64", "lib")]
        folders += [pathlib.Path(one) for one in sorted(glob.glob("/usr/local/cuda*/lib64"), reverse=True)]
        paths = [word for one in folders if one.exists() for word in ("-Xlinker", f"-rpath={one}")]
        file = place.build / "libthrust_sort.so"
        part = file.with_suffix(".part")
        strangers.run_quietly([nvcc, "-shared", "-O2", "-arch=native", "-Xcompiler", "-fPIC", "-cudart", "shared",
                               *paths, "-o", part, strangers.PROGRAMS / "thrust_sort.cu"])
        part.replace(file)
        self.file = file

    def command(self, place, folder):
        return [*super().command(place, folder), "--library", str(self.file)]


PYTORCH = strangers.Program(
    name="memory_pytorch", title="Memory with PyTorch", script="memory_pytorch.py", modules=(("torch", "torch"),),
    tenants={"org.pytorch": ("*/torch/lib/*.so*",)}, beside_resets=False)
CUPY = strangers.Program(
    name="memory_cupy", title="Memory with CuPy", script="memory_cupy.py", modules=(("cupy", "cupy-cuda13x[ctk]"),),
    tenants={"dev.cupy": ("*/cupy*/*.so*",)}, beside_resets=False)
THRUST = Thrust(
    name="memory_thrust", title="Memory with a sort by Thrust", script="memory_thrust.py",
    tenants={"test.thrust": ("*thrust_sort*.so",)}, beside_resets=False)
ALL = {"pytorch": PYTORCH, "cupy": CUPY, "thrust": THRUST}


def arrangements(place):
    if not place.ctxb_run:
        return [strangers.ALONE]
    return [strangers.ALONE] + [strangers.Arrangement(memory, lease=place.options.quiet_lease, memory=memory)
                                for memory in ("driver", "pool")]


def run_in_turns(place):
    runs = {one.name: [] for one in arrangements(place)}
    for number in range(place.options.repeat):
        for one in arrangements(place):
            runs[one.name].append(strangers.run_once(place, one, number))
        if not runs["alone"][0].is_right:
            break  # what does not work alone shows nothing
    return runs


def median(runs, figure):
    return statistics.median(figure(one.result) for one in runs)


def rows_of(runs):
    """A row for each figure: the arrangements' values, and their multiples of the run alone."""
    others = [name for name in runs if name != "alone"]
    rows = [["", *runs, *(f"{name} / alone" for name in others)]]
    first = runs["alone"][0].result
    for measure in first["times"]:
        halves = {name: [median(some, lambda result, half=half: result["times"][measure][half]) for half in (0, 1)]
                  for name, some in runs.items()}
        rows.append([f"{measure}: alloc + free, us", *(f"{take:.1f} + {give:.1f}" for take, give in halves.values()),
                     *(f"{sum(halves[name]) / sum(halves['alone']):.2f}" for name in others)])
    rates = {name: median(some, lambda result: result["rate"]) for name, some in runs.items()}
    rows.append([first["unit"], *(f"{one:.1f}" for one in rates.values()),
                 *(f"{rates[name] / rates['alone']:.2f}" if rates["alone"] else "-" for name in others)])
    rows.append(["kept by the pools at the end, MiB",
                 *("-" if name == "alone" else f"{max(one.unused for one in some) / 2**20:.1f}"
                   for name, some in runs.items()), *("" for _ in others)])
    rows.append(["missing at the end, MiB", *(f"{median(some, lambda result: result['missing']) / 2**20:.1f}"
                                              for some in runs.values()), *("" for _ in others)])
    return rows


def conclude(place, report, runs):
    """Prints the table. Returns whether all results are right."""
    program, alone = place.program, runs["alone"][0]
    wrong = []
    for name, some in runs.items():
        for one in some:
            words, is_good = strangers.judge(program, one, alone)
            if not is_good:
                wrong += [f"{name}: {words}", *("    " + line[:200] for line in one.last_words)]
    good = {name: [one for one in some if one.is_right] for name, some in runs.items()}
    good = {name: some for name, some in good.items() if some}
    report.say("", f"## {program.title}", "")
    if "alone" in good:
        report.say(f"{good['alone'][0].result['version']}, {len(good['alone'])} runs of each in turns, medians", "",
                   *strangers.table(rows_of(good)))
    report.say(*wrong)
    return not wrong


def main():
    parser = strangers.parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    for one in ALL.values():
        one.add_options(parser)
    parser.set_defaults(repeat=3)
    options = parser.parse_args()
    report, is_good, ran = strangers.Report(options), True, False
    for name in options.only:
        ALL[name].take_options(options)
        place = strangers.start(ALL[name], options, report)
        if place is not None:
            ran = True
            is_good = conclude(place, report, run_in_turns(place)) and is_good
    if not ran:
        return 0 if options.fetch_only and not report.skipped else strangers.SKIPPED
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
