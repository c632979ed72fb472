#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All programs: first each one's rates, alone on the machine, then the runs beside resets, several at once.

    run_all.py [--only NAME ...] [--jobs 4] [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

Each run_NAME.py runs one of them. Status 0: everything is as it should be.
"""
import concurrent.futures
import sys
import time

import strangers
from run_cupy import PROGRAM as cupy
from run_gstreamer import PROGRAM as gstreamer
from run_jax import PROGRAM as jax
from run_numba import PROGRAM as numba
from run_partitions import PROGRAM as partitions
from run_pytorch import PROGRAM as pytorch
from run_pytorch_ipc import PROGRAM as pytorch_ipc
from run_vapoursynth import PROGRAM as vapoursynth
from run_vspipe import PROGRAM as vspipe

ALL = {one.name: one for one in (vspipe, vapoursynth, pytorch, pytorch_ipc, cupy, jax, numba, partitions, gstreamer)}


def main():
    parser = strangers.parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--jobs", type=int, default=4, help="runs beside resets at once")
    options = parser.parse_args()
    report, begun = strangers.Report(options), time.monotonic()
    places = {name: strangers.start(ALL[name], options, report) for name in options.only}
    places = {name: place for name, place in places.items() if place is not None}
    runs, more, is_good = {}, {}, True
    for name, place in places.items():
        runs[name] = strangers.rate_runs(place)
        more[name] = ALL[name].more(place) if runs[name][0].is_right else ([], True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        started = {name: [pool.submit(strangers.run_once, place, one)
                          for one in (strangers.reset_arrangements(place) if runs[name][0].is_right else [])]
                   for name, place in places.items()}
        for name, place in places.items():
            runs[name] += [one.result() for one in started[name]]
            lines, good_too = more[name]
            is_good = strangers.conclude(place, report, runs[name], lines) and good_too and is_good
    if not places:
        return 77  # all are skipped
    report.say("", f"{time.monotonic() - begun:.0f} s, {options.jobs} runs beside resets at once.")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
