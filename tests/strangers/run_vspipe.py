#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Five CUDA plug-ins of VapourSynth in one vspipe, alone and under ctxb-run, beside resets of the device.

    run_vspipe.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Status 0: everything is as it should be.
"""
import dataclasses
import hashlib
import re
import sys

import strangers
import vapoursynth_packages

PICTURE = 640 * 12 * 4  # of each filter in a frame, in bytes; see programs/filters.vpy


@dataclasses.dataclass
class Vspipe(strangers.Program):
    frames: int = 1000

    def prepare(self, place):
        vapoursynth_packages.prepare(place)
        vapoursynth_packages.configure(place)

    def command(self, place, folder):
        return [place.site / "vapoursynth/vspipe", "-a", f"frames={self.frames}", strangers.PROGRAMS / "filters.vpy",
                folder / "frames"]

    def result(self, place, folder, output):
        seconds = re.search(r"Output (\d+) frames in ([0-9.]+) seconds", output)
        filters = re.findall(r"^FILTER (\S+)", output, re.M)
        if seconds is None or not filters:
            return None
        hashes = {name: hashlib.sha256() for name in filters}
        with open(folder / "frames", "rb") as file:
            while picture := file.read(PICTURE):
                hashes[filters[(file.tell() // PICTURE - 1) % len(filters)]].update(picture)
        (folder / "frames").unlink()
        values = {name: one.hexdigest()[:12] for name, one in hashes.items()}
        values.update({name: "left out: " + why for name, why in re.findall(r"^LEFT OUT (\S+) (.*)", output, re.M)})
        frames = int(seconds[1])
        return {"work": f"{frames} frames", "rate": frames / float(seconds[2]), "unit": "frames/s", "values": values,
                "version": "VapourSynth R79"}


PROGRAM = Vspipe(**vapoursynth_packages.program(name="vspipe", title="VapourSynth, five CUDA plug-ins, vspipe",
                                                preload=True, process="vspipe"))

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
