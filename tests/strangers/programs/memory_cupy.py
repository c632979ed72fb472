# SPDX-License-Identifier: Apache-2.0
"""Takes and gives back memory with CuPy's runtime functions. Then it sorts in rounds, without CuPy's own cache."""
import argparse

import cupy

from marks import Rounds, begin, expect, finish, times_by_size

COUNT = 1 << 20


def take_pinned(size):
    return cupy.cuda.runtime.hostAlloc(size, 0)


def work(numbers):
    ordered = cupy.sort(numbers)
    expect(int(ordered[0]) == 0 and int(ordered[-1]) == COUNT - 1, "a sort with CuPy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    runtime = cupy.cuda.runtime
    cupy.cuda.set_allocator(None)  # each array is a cudaMalloc
    numbers = cupy.arange(COUNT, dtype=cupy.int32)[::-1].copy()
    work(numbers)
    before = runtime.memGetInfo()[0]
    begin()
    times = times_by_size("device", runtime.malloc, runtime.free, options.seconds)
    times.update(times_by_size("pinned", take_pinned, runtime.freeHost, options.seconds))
    rounds = Rounds(options.seconds)
    for _ in rounds:
        work(numbers)
    finish(version=f"CuPy {cupy.__version__}", work=f"{rounds.count} sorts", rate=rounds.rate, unit="sorts/s",
           values={"sum": int(numbers.sum())}, times=times, missing=before - runtime.memGetInfo()[0])


main()
