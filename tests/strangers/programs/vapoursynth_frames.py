# SPDX-License-Identifier: Apache-2.0
"""A Python program that asks VapourSynth for frames, one thread for each of five plug-ins, and adds their bytes up.
Each pass must come to the same hash as the first one."""
import argparse
import functools
import hashlib

import vapoursynth as vs

import filters
from marks import begin, expect, finish, side_by_side

FRAMES = 40


def hash_of(clip):
    total = hashlib.sha256()
    for frame in clip.frames(prefetch=4, close=True):
        total.update(bytes(frame[0]))
    return total.hexdigest()[:12]


def check(name, clip, wanted):
    got = hash_of(clip)
    expect(got == wanted, f"{name}: the frames are {got}, and were {wanted} before")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    vs.core.num_threads = 8
    clips, left_out = filters.filtered(filters.source(FRAMES))
    first = {name: hash_of(clip) for name, clip in clips.items()}
    begin()
    results = side_by_side({name: functools.partial(check, name, clip, first[name]) for name, clip in clips.items()},
                           options.seconds)
    finish(version=f"R{vs.__version__.release_major}",
           work=f"{FRAMES * sum(one.count for one in results.values())} frames",
           rate=FRAMES * sum(one.rate for one in results.values()), unit="frames/s",
           values={**first, **{name: "left out: " + why for name, why in left_out.items()}})


main()
