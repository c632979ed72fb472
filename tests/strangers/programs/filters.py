# SPDX-License-Identifier: Apache-2.0
"""The filters of five CUDA plug-ins of VapourSynth, on one clip of noise in four frames that repeat."""
import array
import ctypes
import math
import random

import vapoursynth as vs
from vapoursynth import core

WIDTH, HEIGHT = 640, 360

def source(length):
    generator = random.Random(7)
    pictures = [array.array("f", (0.2 + 0.6 * x / WIDTH + 0.1 * generator.random()
                                  for _ in range(HEIGHT) for x in range(WIDTH))) for _ in range(4)]

    def paint(n, f):
        frame = f.copy()
        to, stride, row = frame.get_write_ptr(0), frame.get_stride(0), 4 * WIDTH
        there = to if isinstance(to, int) else to.value
        here = pictures[n % 4].buffer_info()[0]
        for y in range(HEIGHT):
            ctypes.memmove(there + y * stride, here + y * row, row)
        return frame

    blank = core.std.BlankClip(width=WIDTH, height=HEIGHT, format=vs.GRAYS, length=4)
    painted = core.std.ModifyFrame(blank, blank, paint)
    core.std.SetVideoCache(painted, mode=1, fixedsize=8)
    return core.std.Loop(painted, times=max(1, length // 4))


def transforms():
    """The window and the strengths that dfttest2 wants, for blocks of 16 with steps of 4."""
    one = [math.sin(math.pi * (x + 0.5) / 16) / math.sqrt(2) / 4 for x in range(16)]
    return {"window": [a * b for a in one for b in one], "sigma": [0.001] * (16 * 9), "sigma2": 0.001, "pmin": 0.0,
            "pmax": 500.0, "filter_type": 0, "radius": 0, "block_size": 16, "block_step": 4, "zero_mean": 0}


def makers(clip):
    """What makes each plug-in's clip. BM3D adds in an order that changes, unless extractor_exp asks for a fixed one."""
    return {
        "bm3dcuda": lambda: core.bm3dcuda.BM3D(clip, sigma=[3.0], radius=0, extractor_exp=6),
        "nlm_cuda": lambda: core.nlm_cuda.NLMeans(clip, d=1, a=2, s=4, h=1.2),
        "dfttest2_cuda": lambda: core.dfttest2_cuda.DFTTest(clip, **transforms()),
        "dfttest2_nvrtc": lambda: core.dfttest2_nvrtc.DFTTest(clip, **transforms()),
        "vszipcu": lambda: core.vszipcu.NLMeans(core.vszipcu.BM3Dv2(clip, sigma=[3.0], extractor_exp=6), d=1, h=1.2),
    }


def filtered(clip):
    """Each plug-in's clip by its name, and why some plug-ins have none."""
    clips, left_out = {}, {}
    for name, make in makers(clip).items():
        try:
            clips[name] = make()
            core.std.SetVideoCache(clips[name], mode=0)
        except (vs.Error, AttributeError) as error:
            left_out[name] = " ".join(str(error).split())
    if not clips:
        raise SystemExit(f"no plug-in works here: {left_out}")
    return clips, left_out
