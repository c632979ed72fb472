#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Five CUDA plug-ins of VapourSynth in one Python program, alone and under ctxb-run, beside resets of the device.

    run_vapoursynth.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import dataclasses
import sys

import strangers
import vapoursynth_packages


@dataclasses.dataclass
class VapourSynth(strangers.Program):
    def prepare(self, place):
        vapoursynth_packages.prepare(place)


PROGRAM = VapourSynth(**vapoursynth_packages.program(
    name="vapoursynth", title="VapourSynth, five CUDA plug-ins, Python", script="vapoursynth_frames.py"))

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
