# SPDX-License-Identifier: Apache-2.0
"""Computes with Numba's kernels on two threads. Each round is compared with NumPy."""
import argparse
import threading
from importlib import metadata

import numpy
from numba import cuda

from marks import Rounds, begin, expect, finish

COUNT = 1 << 16


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def sums(x, out):
    """The sum of each block's part, in shared memory."""
    part = cuda.shared.array(256, numpy.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    part[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


class Work:
    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def round(self):
        x, y = self.random.random((2, COUNT), dtype=numpy.float32)
        there, out = cuda.to_device(y), cuda.device_array(COUNT // 256, numpy.float32)
        saxpy[COUNT // 256, 256](2.5, cuda.to_device(x), there)
        sums[COUNT // 256, 256](there, out)
        wanted = numpy.float32(2.5) * x + y
        expect(numpy.allclose(there.copy_to_host(), wanted, rtol=1e-5), "saxpy with Numba")
        total = float(out.copy_to_host().sum())
        expect(abs(total - float(wanted.sum(dtype=numpy.float64))) < 1e-3 * total, "the sum with Numba")
        return total


def version():
    for name in ("numba-cuda", "numba"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            pass
    return "unknown"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    total = Work(7).round()
    failures, counts = [], []

    def on_another_thread():
        rounds = Rounds(options.seconds)
        try:
            work = Work(8)
            for _ in rounds:
                work.round()
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(str(error))
        counts.append(rounds)

    begin()
    other = threading.Thread(target=on_another_thread)
    other.start()
    here = Rounds(options.seconds)
    work = Work(7)
    for _ in here:
        work.round()
    other.join()
    expect(not failures, "on another thread: " + "; ".join(failures))
    finish(version=version(), work=f"{here.count + counts[0].count} rounds", rate=here.rate + counts[0].rate,
           unit="rounds/s", values={"sum": round(total, 1)})


main()
