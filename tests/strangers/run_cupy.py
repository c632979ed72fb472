#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels, products, transforms and sorts with CuPy, alone and under ctxb-run, beside resets of the device.

    run_cupy.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import sys

import strangers

PROGRAM = strangers.Program(
    name="cupy", title="CuPy: kernels, products, transforms, sorts", script="cupy_rounds.py",
    modules=(("cupy", "cupy-cuda13x[ctk]"), ("numpy", "numpy")), tenants={"dev.cupy": ("*/cupy*/*.so*",)})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
