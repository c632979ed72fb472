# SPDX-License-Identifier: Apache-2.0
"""Computes with CuPy: a kernel of its own, a product, a Fourier transform, a sort. NumPy checks each round."""
import argparse

import cupy
import numpy

from marks import Rounds, begin, expect, finish

COUNT = 1 << 18
SAXPY = r'''
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}'''


class Work:
    def __init__(self):
        random = numpy.random.default_rng(7)
        self.x, self.y = random.random((2, COUNT), dtype=numpy.float32)
        self.a = random.random((512, 512), dtype=numpy.float32)
        self.kernel = cupy.RawKernel(SAXPY, "saxpy")
        self.saxpy = numpy.float32(2.5) * self.x + self.y
        self.product = self.a @ self.a
        self.sorted = numpy.sort(self.x)
        self.spectrum = numpy.fft.rfft(self.x)

    def round(self):
        x, there = cupy.asarray(self.x), cupy.asarray(self.y)
        self.kernel(((COUNT + 255) // 256,), (256,), (cupy.float32(2.5), x, there, cupy.uint64(COUNT)))
        a = cupy.asarray(self.a)
        results = {"saxpy": (there, self.saxpy, 1e-5), "product": (a @ a, self.product, 1e-3),
                   "sort": (cupy.sort(x), self.sorted, 0), "FFT": (cupy.fft.rfft(x), self.spectrum, 1e-2)}
        for name, (got, wanted, tolerance) in results.items():
            expect(numpy.allclose(cupy.asnumpy(got), wanted, rtol=tolerance, atol=tolerance), f"{name} with CuPy")
        return float(results["saxpy"][0].sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    work = Work()
    work.round()
    total = work.round()
    begin()
    rounds = Rounds(options.seconds)
    for index in rounds:
        work.round()
        if index % 50 == 49:
            cupy.get_default_memory_pool().free_all_blocks()
    finish(version=cupy.__version__, work=f"{rounds.count} rounds", rate=rounds.rate, unit="rounds/s",
           values={"sum": round(total, 3)})


main()
