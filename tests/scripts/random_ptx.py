#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random PTX programs on several drivers, and compares what they compute, bit by bit.

    random_ptx.py [--programs N] [--seed S] [--reduce] DRIVER DRIVER...
    random_ptx.py --show SEED

DRIVER is the path of a libcuda.so.1. For the software device, :baseline, :avx2 or :avx512 behind it
limits the instruction set. The first driver is the reference. A program is made from its seed alone:
straight code, branches and loops that diverge, integers of all widths, float, double, half and pairs
of them, carry chains, shuffles and votes. It uses exact operations only, and every NaN of float and
double counts as the same, because PTX leaves their bits open. The script names each program whose
results differ, and ends with status 1. --reduce also prints the lines of it that matter. --show
prints a program.
"""
import argparse
import ctypes
import os
import random
import struct
import sys

from random_program import BLOCKS, THREADS, WORDS, Program, head

BATCH = 25  # programs in a module


class Driver:
    """One driver in this process, with a context."""

    def __init__(self, name):
        self.name = name
        path, _, self.cpu = name.partition(":")
        self.library = ctypes.CDLL(path, os.RTLD_LOCAL | os.RTLD_NOW)
        self.context = ctypes.c_void_p()
        device = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.size = 8 * WORDS * THREADS * BLOCKS
        self.source, self.target = ctypes.c_uint64(), ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(self.source), ctypes.c_size_t(self.size))
        self.call("cuMemAlloc_v2", ctypes.byref(self.target), ctypes.c_size_t(self.size))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} of {self.name} answers {status}")

    def results(self, text, seeds, given):
        """What each program of the module leaves, for its input."""
        if self.cpu:
            os.environ["CTXBROKER_SOFTWARE_CPU"] = self.cpu
        self.call("cuCtxSetCurrent", self.context)
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER, its size, and CU_JIT_OPTIMIZATION_LEVEL 0, because ptxas optimises
        # some programs wrongly that no compiler writes. With CUDA 13.0, a loop with mad.hi.s32 a, b,
        # c, a adds half as often as it should, and sub.sat.s32 of (a + b) and b gives a.
        options = (ctypes.c_int * 3)(5, 6, 7)
        values = (ctypes.c_void_p * 3)(ctypes.cast(log, ctypes.c_void_p), 8192, 0)
        status = self.library.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 3, options,
                                                 values)
        if status != 0:
            raise RuntimeError(f"{self.name} does not load programs {seeds[0]} to {seeds[-1]} "
                               f"({status}): {log.value.decode()}")
        outputs = []
        for seed in seeds:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, f"k{seed}".encode())
            self.call("cuMemcpyHtoD_v2", self.source, given[seed], ctypes.c_size_t(self.size))
            self.call("cuMemsetD8_v2", self.target, 0, ctypes.c_size_t(self.size))
            arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self.source),
                                              ctypes.addressof(self.target))
            self.call("cuLaunchKernel", function, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, arguments,
                      None)
            self.call("cuCtxSynchronize")
            output = ctypes.create_string_buffer(self.size)
            self.call("cuMemcpyDtoH_v2", output, self.target, ctypes.c_size_t(self.size))
            outputs.append(output.raw)
        self.call("cuModuleUnload", module)
        return outputs


def numbers(seed):
    """The input: numbers of all sizes, so that half and float find finite ones, zeros and NaNs."""
    draw = random.Random(~seed)
    words = []
    for _ in range(WORDS * THREADS * BLOCKS):
        words.append(draw.choice([
            lambda: draw.getrandbits(64),
            lambda: draw.getrandbits(8),
            lambda: struct.unpack("Q", struct.pack("d", draw.gauss(0, 100)))[0],
            lambda: struct.unpack("Q", struct.pack("ff", draw.gauss(0, 3), draw.gauss(0, 3)))[0],
            lambda: struct.unpack("Q", struct.pack("eeee", *(draw.gauss(0, 2) for _ in range(4))))[0],
        ])())
    return struct.pack(f"{len(words)}Q", *words)


def reduced(program, drivers, given):
    """The lines that make the drivers differ. Those that steer stay, because lanes wait for lanes."""
    lines = program.lines
    steers = lambda line: any(word in line for word in ("bra ", "$", ".sync", "%q", "%m", "%c", "%n", ".cc.",
                                                   "addc", "subc", "madc"))

    def differ(tried):
        text = head() + program.with_lines(tried)
        try:
            right, *others = [d.results(text, [program.seed], given)[0] for d in drivers]
        except RuntimeError:
            return False
        return any(other != right for other in others)

    for at in reversed(range(len(lines))):
        if not steers(lines[at]) and differ(lines[:at] + lines[at + 1:]):
            lines = lines[:at] + lines[at + 1:]
    tried = head() + program.with_lines(lines)
    return lines + [first_difference(*(d.results(tried, [program.seed], given)[0] for d in drivers[:2]))]


def first_difference(right, left):
    at = next((i for i in range(0, len(right), 4) if right[i:i + 4] != left[i:i + 4]), 0)
    thread, offset = divmod(at, 8 * WORDS)
    return (f"thread {thread} has 0x{right[at:at + 4][::-1].hex()} at byte {offset}, or "
            f"0x{left[at:at + 4][::-1].hex()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("drivers", nargs="*", metavar="DRIVER")
    arguments = parser.parse_args()
    if arguments.show is not None:
        print(head() + Program(arguments.show).text())
        return 0
    if len(arguments.drivers) < 2:
        parser.error("name two drivers or more")
    drivers = [Driver(name) for name in arguments.drivers]
    different = 0
    for first in range(arguments.seed, arguments.seed + arguments.programs, BATCH):
        seeds = range(first, min(first + BATCH, arguments.seed + arguments.programs))
        programs = {seed: Program(seed) for seed in seeds}
        given = {seed: numbers(seed) for seed in seeds}
        text = head() + "\n".join(program.text() for program in programs.values())
        expected, *others = [driver.results(text, seeds, given) for driver in drivers]
        for driver, found in zip(drivers[1:], others):
            wrong = [case for case in zip(seeds, expected, found) if case[1] != case[2]]
            different += len(wrong)
            for seed, right, left in wrong:
                print(f"program {seed}: {first_difference(right, left)} with {driver.name}")
                if arguments.reduce:
                    print("\n".join("    " + line for line in reduced(programs[seed], drivers, given)))
    print(f"{arguments.programs} programs, {len(drivers)} drivers, {different} results differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
