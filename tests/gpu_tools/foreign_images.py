#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a kernel with Triton and lets the broker load and launch what came out: PTX, and machine
code. For a machine with a GPU, PyTorch and Triton; without them it says so and succeeds.

    foreign_images.py [BIN]     BIN holds broker_contract_test; default: where this script lies
"""
import os
import pathlib
import subprocess
import sys
import tempfile

VALUES = 256  # of one block


def triton_images():
    import torch

    # Triton reads a kernel's source from its file.
    text = '''
import triton
import triton.language as tl

@triton.jit
def twice_and_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * 2 + 1, mask=at < n)
'''
    folder = tempfile.mkdtemp()
    path = pathlib.Path(folder) / "triton_kernel.py"
    path.write_text(text)
    sys.path.insert(0, folder)
    from triton_kernel import twice_and_one

    # 1000 is no multiple of 16, so that nothing is assumed of `n`.
    x = torch.zeros(1000, device="cuda")
    out = torch.empty_like(x)
    made = twice_and_one[(4,)](x, out, 1000 - 1, BLOCK=VALUES)
    about = made.metadata if isinstance(made.metadata, dict) else made.metadata._asdict()
    common = {"kernel": about["name"], "threads": 32 * about["num_warps"],
              "shared": about["shared"]}
    yield "triton ptx", made.asm["ptx"].encode(), common
    yield "triton cubin", made.asm["cubin"], common


def check(program, name, image, about):
    with tempfile.NamedTemporaryFile(suffix=".image") as file:
        file.write(image)
        file.flush()
        variables = {"CTXB_FOREIGN_IMAGE": file.name, "CTXB_FOREIGN_KERNEL": about["kernel"],
                     "CTXB_FOREIGN_THREADS": about["threads"],
                     "CTXB_FOREIGN_SHARED": about["shared"], "CTXB_FOREIGN_VALUES": VALUES}
        done = subprocess.run(
            [program, "--gtest_filter=BrokerLaunchTest.ImageOfAnotherLanguageRuns"], timeout=120,
            env={**os.environ, **{k: str(v) for k, v in variables.items()}}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        good = done.returncode == 0 and "[       OK ]" in done.stdout
        print(f"{name}: {'as expected' if good else 'FAILED'} ({len(image)} bytes, kernel "
              f"{about['kernel']}, {about['threads']} threads)")
        if not good:
            print(done.stdout)
        return good


def main():
    here = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    program = (here if here.is_dir() else here.parent) / "broker_contract_test"
    try:
        images = list(triton_images())
    except ImportError as error:
        print(f"skipped: {error}")
        return 0
    return 0 if all([check(program, *image) for image in images]) else 1


sys.exit(main())
