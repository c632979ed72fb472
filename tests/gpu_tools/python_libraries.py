#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Numba, CuPy and NVIDIA's cuda-python as tenants, each in every kind of lease, beside resets
of the device. For a machine with a GPU; a library that is missing is skipped by name.

    python_libraries.py [--seconds 2] [--only numba cupy cuda_python]

Each library in each lease is a process of its own. The library is imported inside its tenant's guard
and works there on two threads, while a neighbour resets the device over and over. Results are
compared with NumPy's. Then the tenant closes, and must have no strike. The arrangement "none" is the
control: the same without a broker. Its work has to fail, or its process to end.

Stands in bin/, beside lib/ and test_plugins/. Status 0: every arrangement did what it should.
"""
import argparse
import faulthandler
import importlib.util
import os
import subprocess
import sys
import threading
import time

import numpy

from python_host import Broker, Nowhere, Tenant
from torch_beside_resets import Resetter, attack_until, expect

LEASES = ("shared", "private", "green", "auto", "none")
COUNT = 1 << 16
SAXPY = r'''
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}'''


class Numba:
    """Retains the primary context, keeps its handle, and compares it with the current one."""

    module = "numba.cuda"

    def __init__(self):
        from numba import cuda

        @cuda.jit
        def saxpy(a, x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] += a * x[i]

        self.cuda, self.kernel = cuda, saxpy

    def saxpy(self, a, x, y):
        there = self.cuda.to_device(y)
        self.kernel[(COUNT + 255) // 256, 256](a, self.cuda.to_device(x), there)
        return there.copy_to_host()

    def close(self):
        self.cuda.close()  # pops contexts until none is current


class CuPy:
    """Works through the runtime library, and compiles with NVRTC."""

    module = "cupy"

    def __init__(self):
        import cupy
        self.cupy = cupy
        self.kernel = cupy.RawKernel(SAXPY, "saxpy")

    def saxpy(self, a, x, y):
        there = self.cupy.asarray(y)
        self.kernel(((COUNT + 255) // 256,), (256,),
                    (self.cupy.float32(a), self.cupy.asarray(x), there, self.cupy.uint64(COUNT)))
        expect(abs(float(self.cupy.fft.fft(there)[0].real) - float(there.sum())) < 1, "the FFT")
        return self.cupy.asnumpy(there)

    def close(self):
        # Frees what the library keeps, which the process's end would free after the tenant's close.
        self.kernel = None
        self.cupy.fft.config.get_plan_cache().clear()
        self.cupy.clear_memo()
        self.cupy.get_default_memory_pool().free_all_blocks()
        self.cupy.get_default_pinned_memory_pool().free_all_blocks()


class CudaPython:
    """Makes each call itself: the driver's functions, and NVRTC's."""

    module = "cuda.bindings"

    def __init__(self):
        from cuda.bindings import driver, nvrtc
        self.driver = driver
        self.call(driver.cuInit(0))
        device = self.call(driver.cuDeviceGet(0))
        kind = driver.CUdevice_attribute
        major, minor = (self.call(driver.cuDeviceGetAttribute(one, device)) for one in (
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
        program = self.call(nvrtc.nvrtcCreateProgram(SAXPY.encode(), b"saxpy.cu", 0, [], []))
        self.call(nvrtc.nvrtcCompileProgram(program, 1, [f"-arch=compute_{major}{minor}".encode()]))
        image = b" " * self.call(nvrtc.nvrtcGetPTXSize(program))
        self.call(nvrtc.nvrtcGetPTX(program, image))
        self.primary = self.call(driver.cuDevicePrimaryCtxRetain(device))
        self.device = device
        self.enter()
        self.image = self.call(driver.cuModuleLoadData(image))
        self.kernel = self.call(driver.cuModuleGetFunction(self.image, b"saxpy"))
        self.leave()

    @staticmethod
    def call(answer):
        status, *values = answer
        if int(status) != 0:
            raise RuntimeError(str(status))
        return values[0] if len(values) == 1 else values

    def enter(self):
        self.call(self.driver.cuCtxPushCurrent(self.primary))
        current = self.call(self.driver.cuCtxGetCurrent())
        expect(int(current) == int(self.primary), "the current context is not the one just pushed")

    def leave(self):
        popped = self.call(self.driver.cuCtxPopCurrent())
        expect(int(popped) == int(self.primary), "another context was popped than was pushed")

    def saxpy(self, a, x, y):
        driver = self.driver
        self.enter()
        size = 4 * COUNT
        on_device = [self.call(driver.cuMemAlloc(size)) for _ in range(2)]
        for there, here in zip(on_device, (x, y)):
            self.call(driver.cuMemcpyHtoD(there, here.ctypes.data, size))
        arguments = [numpy.array([a], dtype=numpy.float32)] + [
            numpy.array([int(one)], dtype=numpy.uint64) for one in on_device] + [
            numpy.array([COUNT], dtype=numpy.uint64)]
        pointers = numpy.array([one.ctypes.data for one in arguments], dtype=numpy.uint64)
        self.call(driver.cuLaunchKernel(self.kernel, (COUNT + 255) // 256, 1, 1, 256, 1, 1, 0, 0,
                                        pointers.ctypes.data, 0))
        out = numpy.empty_like(y)
        self.call(driver.cuMemcpyDtoH(out.ctypes.data, on_device[1], size))
        for one in on_device:
            self.call(driver.cuMemFree(one))
        self.leave()
        return out

    def close(self):
        self.enter()
        self.call(self.driver.cuModuleUnload(self.image))
        self.leave()
        self.call(self.driver.cuDevicePrimaryCtxRelease(self.device))


LIBRARIES = {"numba": Numba, "cupy": CuPy, "cuda_python": CudaPython}


def rounds(library, inside, seconds):
    """How often the library computed rightly."""
    random = numpy.random.default_rng(7)
    begin, count = time.monotonic(), 0
    with inside():
        while count == 0 or time.monotonic() - begin < seconds:
            x, y = random.random((2, COUNT), dtype=numpy.float32)
            got = library.saxpy(2.5, x, y)
            expect(numpy.allclose(got, numpy.float32(2.5) * x + y, rtol=1e-5), "a wrong result")
            count += 1
    return count


def work_beside_resets(library, inside, resetter, seconds):
    stop, failures, counts = threading.Event(), [], []
    attacker = threading.Thread(target=attack_until, args=(stop, resetter, failures))

    def on_another_thread():
        try:
            counts.append(rounds(library, inside, seconds))
        except Exception as error:
            failures.append(f"on another thread: {error}")

    counts.append(rounds(library, inside, 0))
    print("\nBEGUN", flush=True)
    resetter.attack()
    attacker.start()
    other = threading.Thread(target=on_another_thread)
    other.start()
    try:
        counts.append(rounds(library, inside, seconds))
    finally:
        other.join()
        stop.set()
        attacker.join()
    expect(not failures, "; ".join(failures))
    return sum(counts)


def run_arrangement(name, lease, seconds):
    faulthandler.enable()
    faulthandler.dump_traceback_later(90, exit=True)
    broker = None
    if lease == "none":
        tenant, neighbour = Nowhere(), Nowhere()
    else:
        broker = Broker("python_libraries", True)
        tenant = Tenant(broker, name, lease)
        neighbour = Tenant(broker, "resetter", "auto")
    with tenant.inside("import"):
        library = LIBRARIES[name]()
    resetter = Resetter(neighbour, True)
    count = work_beside_resets(library, lambda: tenant.inside("work"), resetter, seconds)
    if broker is not None:
        expect(tenant.strikes() == 0, f"{tenant.strikes()} strikes")
    with tenant.inside("close"):
        library.close()
    if broker is not None:
        expect(tenant.strikes() == 0, f"{tenant.strikes()} strikes at the end")
        expect(neighbour.strikes() > 0, "no reset reached the gate")
        neighbour.close()
        tenant.close()
        broker.close()
    print(f"\nRIGHT {count} rounds beside {resetter.count} resets", flush=True)
    if broker is not None:
        # The libraries stay in the process. Their destructors would end things that are gone.
        sys.stderr.flush()
        os._exit(0)


def run_child(name, lease, seconds):
    """What came of it, in words, and whether it should."""
    command = [sys.executable, __file__, "--arrangement", name, lease, "--seconds", str(seconds)]
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", timeout=100, check=False)
        status, output = child.returncode, child.stdout
    except subprocess.TimeoutExpired as expired:
        status, output = "timeout", (expired.stdout or b"").decode(errors="replace")
    right = [line[6:] for line in output.splitlines() if line.startswith("RIGHT ")]
    words = [line for line in output.splitlines() if line.strip() and "ATTACK" not in line]
    if lease == "none":
        if right and status == 0:
            return "no damage to be seen", False
        if "BEGUN" not in words:
            return "\n    ".join(["it failed before the first reset"] + words[-20:]), False
        return f"damage, as it must be: {words[-1] if words else status}", True
    if right and status == 0:
        return right[0], True
    return "\n    ".join([f"WRONG (status {status})"] + words[-20:]), False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrangement", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    options = parser.parse_args()
    if options.arrangement:
        run_arrangement(*options.arrangement, options.seconds)
        return 0
    all_good = True
    for name in options.only:
        if not importlib.util.find_spec(LIBRARIES[name].module.split(".")[0]):
            print(f"{name}: skipped, {LIBRARIES[name].module} is not installed")
            continue
        for lease in LEASES:
            words, good = run_child(name, lease, options.seconds)
            all_good = all_good and good
            print(f"{name}, {lease}: {words}", flush=True)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
