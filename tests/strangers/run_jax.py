#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training with JAX, alone and under ctxb-run, beside resets of the device.

    run_jax.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import sys

import strangers

PROGRAM = strangers.Program(
    name="jax", title="JAX: training", script="jax_training.py", modules=(("jax", "jax[cuda13]"),),
    tenants={"dev.jax": ("*/jax*/*.so*",)})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
