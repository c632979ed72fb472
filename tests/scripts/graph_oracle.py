#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the example graphs in sample_host and compares what they write with NumPy.

    graph_oracle.py SAMPLE_HOST EXAMPLES [--frames 100] [--size 960x540] [--seconds 60] [--jobs 1,2,4]
                    [--keep FOLDER]

EXAMPLES is docs/examples. Nothing of the project computes here: pictures and sounds are made, read and
processed by this file and graph_reference.py alone. Each count of jobs has to give the same bytes. Prints
the frames per second and the factor of real time for each. --keep keeps all files.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True  # nothing appears in the source
import graph_reference as reference  # noqa: E402
import media_files as files  # noqa: E402

rate = 48000
tracks = ("drums", "bass", "keys", "vocal")


def make_pictures(folder, frames, width, height):
    """A plate that drifts, an actor with a soft edge that walks, and a mask."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    for frame in range(1, frames + 1):
        drift = (columns + 3 * frame) / 40
        plate = np.stack([0.4 + 0.4 * np.sin(drift), 0.3 + rows / height * 0.5,
                          0.5 + 0.5 * np.cos(drift * 0.7 + rows / 25)], axis=2)
        plate[height // 4, ::7] = 6.0  # lights, beyond 1
        files.write_exr(folder / f"plate.{frame:04d}.exr", plate.astype(np.float16), "RGB")
        centre = (frame * width / (frames + 1), height / 2)
        distance = np.hypot(columns - centre[0], rows - centre[1])
        alpha = np.clip((height / 3 - distance) / 8 + 0.5, 0, 1)
        actor = np.stack([0.5 + 0.5 * np.sin(distance / 5), rows / height, columns / width, alpha], axis=2)
        files.write_png(folder / f"actor.{frame:04d}.png", np.round(actor * 255).astype(np.uint8))
        mask = np.clip(columns / width * 1.5 - 0.2, 0, 1)
        files.write_exr(folder / f"mask.{frame:04d}.exr", mask[:, :, None].astype(np.float32), "Y")


def make_sounds(folder, seconds):
    """Four tracks of different lengths, two channels each."""
    noise = np.random.default_rng(7)
    for number, name in enumerate(tracks):
        count = int(rate * seconds) - number * 1000
        t = np.arange(count) / rate
        if name == "drums":
            one = noise.standard_normal(count) * np.exp(-(t % 0.5) * 18) * 0.4
        elif name == "bass":
            one = 0.5 * np.sin(2 * np.pi * 55 * t) * (0.6 + 0.4 * np.sin(2 * np.pi * 0.5 * t))
        elif name == "keys":
            one = sum(0.12 * np.sin(2 * np.pi * f * t) for f in (220, 277.2, 329.6)) * np.exp(-(t % 1) * 2)
        else:
            one = 0.3 * np.sin(2 * np.pi * 440 * t + 3 * np.sin(2 * np.pi * 5 * t)) + 0.1 * np.sin(
                2 * np.pi * 30 * t)
        other = np.roll(one, 37) * 0.8
        files.write_wav(folder / f"{name}.wav", np.stack([one, other], axis=1).astype(np.float32), rate)


def run(arguments, report):
    environment = {"CTXBROKER_DRIVER": "software", **os.environ}
    subprocess.run([*arguments, "-q", "--json", str(report)], check=True, env=environment)
    return json.loads(report.read_text())


def close(name, got, wanted, absolute, relative):
    difference = np.abs(got.astype(np.float64) - wanted)
    allowed = absolute + relative * np.abs(wanted)
    worst = np.unravel_index(np.argmax(difference - allowed), difference.shape)
    if not np.all(difference <= allowed):
        sys.exit(f"{name}: at {worst} it is {got[worst]}, and NumPy has {wanted[worst]}")
    return float(difference.max())


def same_files(folder, pattern, kept):
    """Whether every file is as it was in the first run, which `kept` remembers."""
    for path in sorted(folder.glob(pattern)):
        if kept.setdefault(path.name, path.read_bytes()) != path.read_bytes():
            sys.exit(f"{path.name}: other bytes with another count of jobs")


def compositing(host, graph, folder, options):
    width, height = (int(number) for number in options.size.split("x"))
    make_pictures(folder, options.frames, width, height)
    kept = {}
    for jobs in options.jobs:
        report = run([host, "image", "--graph", str(graph), "--frames", f"1-{options.frames}", "--jobs",
                      str(jobs)], folder / "report.json")
        assert report["frames"]["written"] == options.frames
        same_files(folder, "comp.*.exr", kept)
        same_files(folder, "preview.*.png", kept)
        print(f"compositing: {options.frames} frames of {options.size}, --jobs {jobs}: "
              f"{options.frames / report['wall_seconds']:.1f} frames/s")
    worst = 0
    # Every frame of a short run. Of a long one, every tenth and the last.
    for frame in sorted({*range(1, options.frames + 1, 10 if options.frames > 20 else 1), options.frames}):
        wanted = reference.compositing(files.read_exr(folder / f"plate.{frame:04d}.exr"),
                                       files.read_png(folder / f"actor.{frame:04d}.png"),
                                       files.read_exr(folder / f"mask.{frame:04d}.exr"), json.loads(
                                           graph.read_text())["nodes"])
        comp = files.read_exr(folder / f"comp.{frame:04d}.exr")
        worst = max(worst, close(f"comp {frame}", comp, wanted, 1e-5, 2**-11 + 1e-5))
        codes = files.read_png(folder / f"preview.{frame:04d}.png")
        exact = reference.encode_srgb(np.clip(wanted, 0, 1)) * 255
        close(f"preview {frame}", codes, exact, 0.5 + 0.02, 0)
    print(f"compositing: as NumPy says; the largest difference is {worst:.2g}, of halves up to 6")


def mixing(host, graph, folder, options):
    make_sounds(folder, options.seconds)
    kept = {}
    for jobs in options.jobs:
        report = run([host, "audio", "--graph", str(graph), "--jobs", str(jobs), "--block", "512", "--tail", "1"],
                     folder / "report.json")
        same_files(folder, "mix.wav", kept)
        same_files(folder, "echoes.wav", kept)
        print(f"mixing: {options.seconds:g} s, --jobs {jobs}: "
              f"{options.seconds / report['wall_seconds']:.1f} times real time, "
              f"{report['audio']['latency_frames']} frames late")
    assert report["audio"]["latency_frames"] > 0
    run([host, "audio", "--graph", str(graph), "--block", "300", "--tail", "1"], folder / "report.json")
    sounds = {name: files.read_wav(folder / f"{name}.wav") for name in tracks}
    longest = max(len(sound) for sound in sounds.values()) + rate
    sounds = {name: np.pad(sound.astype(np.float64), ((0, longest - len(sound)), (0, 0)))
              for name, sound in sounds.items()}
    nodes = json.loads(graph.read_text())["nodes"]
    mix, echoes = reference.mixing(sounds, nodes, graph.with_suffix(".csv").read_text(), rate)
    difference = max(close("mix", files.read_wav(folder / "mix.wav"), mix, 2e-5, 0),
                     close("echoes", files.read_wav(folder / "echoes.wav"), echoes, 2e-5, 0))
    print(f"mixing: as NumPy says; the largest difference is {difference:.2g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("examples", type=pathlib.Path)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--size", default="960x540")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for example in options.examples.iterdir():
            shutil.copy(example, folder)
        compositing(options.host, folder / "compositing.json", folder, options)
        mixing(options.host, folder / "mixing.json", folder, options)


if __name__ == "__main__":
    main()
