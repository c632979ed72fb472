#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time that a program takes from its start to its end, alone and under ctxb-run, by turns.

    start_up.py [--ctxb-run FILE] [--runs 30] [--driver NAME] [--alone-library-path FOLDER]

The programs do nothing else: one is /bin/true, one is Python, and one makes a context and ends. Status 0: all ran.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import strangers

MAKES_A_CONTEXT = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
"""
PROGRAMS = {"/bin/true": ["/bin/true"], "Python": [sys.executable, "-c", "pass"],
            "Python that makes a context": [sys.executable, "-c", MAKES_A_CONTEXT]}


def milliseconds(command, variables):
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
    return 1000 * (time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ctxb-run", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=30, help="of each program in each way")
    parser.add_argument("--driver", help="as ctxb-run's own option")
    parser.add_argument("--alone-library-path", help="where the program alone finds this driver")
    options = parser.parse_args()
    options.ctxb_run = strangers.find_ctxb_run(options)
    driver = ["--driver", options.driver] if options.driver else []
    ways = {"alone": [], "shield": [options.ctxb_run, *driver], "each": [options.ctxb_run, *driver, "--each"]}
    alone = dict(os.environ)
    if options.alone_library_path:
        alone["LD_LIBRARY_PATH"] = os.path.abspath(options.alone_library_path)
    print("| program | alone, ms | with the shield, ms | with `--each`, ms |\n|---|---|---|---|")
    for name, program in PROGRAMS.items():
        times = {way: [] for way in ways}
        for _ in range(options.runs):
            for way, launcher in ways.items():
                times[way].append(milliseconds(launcher + program, dict(os.environ) if launcher else alone))
        medians = {way: statistics.median(taken) for way, taken in times.items()}
        row = [f"{medians['alone']:.1f}"] + [f"{medians[way]:.1f} ({medians[way] / medians['alone']:.2f})"
                                             for way in ("shield", "each")]
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
