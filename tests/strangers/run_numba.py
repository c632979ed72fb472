#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of Numba on two threads, alone and under ctxb-run, beside resets of the device.

    run_numba.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import subprocess
import sys

import strangers

# Numba reads these when it compiles its first kernel. They name functions of NumPy that newer ones have not.
USES_NUMPY = """
import importlib, numpy
print(numpy.__version__)
for name in ("numba.np.arrayobj", "numba.cuda.np.arrayobj"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        pass
"""


class Numba(strangers.Program):
    def prepare(self, place):
        done = subprocess.run([place.python, "-c", USES_NUMPY], env=place.environment(place.build), check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0 and "numpy" in done.stderr.splitlines()[-1].lower():
            raise strangers.Skipped(f"NumPy {done.stdout.strip()} is too new for this Numba")


PROGRAM = Numba(
    name="numba", title="Numba: kernels on two threads", script="numba_kernels.py",
    modules=(("numba.cuda", "numba-cuda[cu13]"), ("numpy", "numpy")), pins=("numpy<2.5",),  # which has np.row_stack
    # It calls the driver through cuda-python where that is installed, and else through ctypes.
    tenants={"org.numba": ("*/cuda/bindings/*.so*", "*/cuda/core/*.so*", "*/_ctypes.*.so", "*/libffi*.so*")})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
