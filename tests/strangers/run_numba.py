#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of Numba on two threads, alone and under ctxb-run, beside resets of the device.

    run_numba.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import sys

import strangers

PROGRAM = strangers.Program(
    name="numba", title="Numba: kernels on two threads", script="numba_kernels.py",
    modules=(("numba.cuda", "numba-cuda[cu13]"), ("numpy", "numpy")),
    # It calls the driver through cuda-python where that is installed, and else through ctypes.
    tenants={"org.numba": ("*/cuda/bindings/*.so*", "*/cuda/core/*.so*", "*/_ctypes.*.so", "*/libffi*.so*")})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
