#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training with PyTorch, as a CUDA graph and through torch.compile, alone and under ctxb-run, beside resets.

    run_pytorch.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import sys

import strangers

PROGRAM = strangers.Program(
    name="pytorch", title="PyTorch: training as a CUDA graph and through torch.compile", script="torch_training.py",
    modules=(("torch", "torch"), ("numpy", "numpy")),
    # torch.compile makes libraries of its own, which launch what Triton compiled.
    tenants={"org.pytorch": ("*/torch/lib/*.so*", "*/triton/*.so*")})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
