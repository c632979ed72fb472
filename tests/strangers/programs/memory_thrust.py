# SPDX-License-Identifier: Apache-2.0
"""Takes and gives back memory with the runtime library, and sorts with Thrust. The library thrust_sort.cu does both."""
import argparse
import ctypes

from marks import Rounds, begin, expect, finish, times_by_size

COUNT = 1 << 20


class Sorter:
    def __init__(self, file):
        self.library = ctypes.CDLL(file)
        for name in ("take_device", "take_pinned"):
            getattr(self.library, name).argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        for name in ("give_device", "give_pinned"):
            getattr(self.library, name).argtypes = [ctypes.c_void_p]

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        expect(status == 0, f"{name} returned {status}")

    def taker(self, kind):
        def take(size):
            memory = ctypes.c_void_p()
            self.call(f"take_{kind}", size, ctypes.byref(memory))
            return memory
        return take

    def giver(self, kind):
        return lambda memory: self.call(f"give_{kind}", memory)

    def free_memory(self):
        free = ctypes.c_size_t()
        self.call("free_memory", ctypes.byref(free))
        return free.value

    def sort(self, seed):
        total = ctypes.c_ulonglong()
        self.call("sort_keys", COUNT, seed, ctypes.byref(total))
        return total.value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--library", required=True)
    options = parser.parse_args()
    sorter = Sorter(options.library)
    total = sorter.sort(7)
    before = sorter.free_memory()
    begin()
    times = {}
    for kind in ("device", "pinned"):
        times.update(times_by_size(kind, sorter.taker(kind), sorter.giver(kind), options.seconds))
    rounds = Rounds(options.seconds)
    for seed in rounds:
        sorter.sort(seed)
    finish(version="Thrust", work=f"{rounds.count} sorts", rate=rounds.rate, unit="sorts/s", values={"sum": total},
           times=times, missing=before - sorter.free_memory())


main()
