# SPDX-License-Identifier: Apache-2.0
"""PyTorch and CuPy at once, each on a thread of its own: products and sorts, compared with the first ones. Each waits
for its work every time, so that its rate shows what its neighbours do."""
import argparse
import functools

import cupy
import torch

from marks import begin, expect, finish, side_by_side

SIZE = 1024


class WithTorch:
    def __init__(self):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.manual_seed(7)
        self.a = torch.randn(SIZE, SIZE, device="cuda")
        self.x = torch.randn(1 << 18, device="cuda")
        self.first = self.compute()

    def compute(self):
        return [float((self.a @ self.a).double().sum()), float(self.x.sort().values[: 1 << 17].double().sum())]


class WithCuPy:
    def __init__(self):
        cupy.random.seed(7)
        self.a = cupy.random.standard_normal((SIZE, SIZE), dtype=cupy.float32)
        self.x = cupy.random.standard_normal(1 << 18, dtype=cupy.float32)
        self.first = self.compute()

    def compute(self):
        with cupy.cuda.Device(0):
            return [float((self.a @ self.a).sum(dtype=cupy.float64)),
                    float(cupy.sort(self.x)[: 1 << 17].sum(dtype=cupy.float64))]


def round_of(name, work):
    got = work.compute()
    expect(all(abs(a - b) <= 1e-4 * max(abs(b), 1) for a, b in zip(got, work.first)),
           f"{name}: {got} after {work.first} before")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    works = {"PyTorch": WithTorch(), "CuPy": WithCuPy()}
    begin()
    results = side_by_side({name: functools.partial(round_of, name, work) for name, work in works.items()},
                           options.seconds)
    rates = {name: results[name].rate for name in works}
    finish(version=f"{torch.__version__} and {cupy.__version__}",
           work=", ".join(f"{name} {results[name].count}" for name in works), rate=sum(rates.values()), rates=rates,
           unit="rounds/s", values={name: round(work.first[0], 3) for name, work in works.items()})


main()
