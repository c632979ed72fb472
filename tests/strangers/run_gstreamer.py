#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GStreamer's cudaupload ! cudadownload in gst-launch-1.0, alone and under ctxb-run, beside resets of the device.

    run_gstreamer.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. GStreamer makes a context of its own, which a reset does not end, so the
control shows no damage. Without NVIDIA's video decoder, its plug-in offers no element; then a stand-in takes the
decoder's name. Status 0: everything is as it should be.
"""
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import sys

import strangers

PLUG_INS = ("nvcodec", "coreelements", "videotestsrc")
ARCHITECTURES = ("x86_64-linux-gnu", "aarch64-linux-gnu")
SYSTEM = [pathlib.Path("/usr") / one for one in (*(f"lib/{name}" for name in ARCHITECTURES), "lib64", "lib")]
STAND_IN = strangers.SOURCE / "tests/contract/foreign/no_decoder.c"


@dataclasses.dataclass
class GStreamer(strangers.Program):
    buffers: int = 1500
    size: str = "320x240"
    decoder: str = ""  # the folder of a stand-in for libnvcuvid.so.1

    def add_options(self, parser):
        parser.add_argument("--buffers", type=int, default=self.buffers, help="frames of each run")
        parser.add_argument("--size", default=self.size, help="of a frame, WIDTHxHEIGHT")
        parser.add_argument("--decoder", default=self.decoder, help="the folder of a stand-in for libnvcuvid.so.1")

    def take_options(self, options):
        self.buffers, self.size = options.buffers, options.size
        self.decoder = os.path.abspath(options.decoder) if options.decoder else ""

    def is_installed(self):
        return bool(shutil.which("gst-launch-1.0")) and all(
            any((one / f"gstreamer-1.0/libgst{name}.so").exists() for one in SYSTEM) for name in PLUG_INS)

    def prepare(self, place):
        if not self.program(place):
            raise strangers.Skipped("there is no gst-launch-1.0")
        folder = place.build / "gstreamer-plug-ins"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in PLUG_INS:
            found = next((one / f"gstreamer-1.0/libgst{name}.so" for one in self.libraries(place)
                          if (one / f"gstreamer-1.0/libgst{name}.so").exists()), None)
            if found is None:
                raise strangers.Skipped(f"GStreamer's plug-in {name} is missing")
            (folder / found.name).symlink_to(found)
        if not self.decoder and not strangers.can_load("libnvcuvid.so.1"):
            to = place.build / "no_decoder"
            to.mkdir(exist_ok=True)
            strangers.compile_c(place, STAND_IN, to / "libnvcuvid.so.1")
            self.decoder = str(to)

    def libraries(self, place):
        return [*self.fetched(place), *SYSTEM]

    def fetched(self, place):
        return [one for one in (place.root / f"usr/lib/{name}" for name in ARCHITECTURES) if one.exists()]

    def program(self, place):
        fetched = place.root / "usr/bin/gst-launch-1.0"
        return str(fetched) if fetched.exists() else shutil.which("gst-launch-1.0")

    def command(self, place, folder):
        width, height = self.size.split("x")
        form = f"video/x-raw,format=RGBA,width={width},height={height},framerate=30/1"
        pipeline = (f"videotestsrc num-buffers={self.buffers} pattern=ball ! {form} ! "
                    f"cudaupload ! cudadownload ! filesink location={folder / 'frames'}")
        return [self.program(place), "--no-position", *pipeline.split()]

    def environment(self, place, folder):
        paths = [self.decoder, *map(str, self.fetched(place)), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "GST_REGISTRY": str(folder / "registry"),
                "GST_REGISTRY_FORK": "no", "GST_PLUGIN_SYSTEM_PATH_1_0": str(place.build / "gstreamer-plug-ins"),
                "CTXB_NEIGHBOUR_BEGIN": str(folder / "frames")}

    def result(self, place, folder, output):
        time = re.search(r"Execution ended after (\d+):(\d+):([0-9.]+)", output)
        if time is None or not (folder / "frames").exists():
            return None
        total = hashlib.sha256()
        with open(folder / "frames", "rb") as file:
            while part := file.read(1 << 20):
                total.update(part)
        width, height = (int(one) for one in self.size.split("x"))
        frames = (folder / "frames").stat().st_size / (4 * width * height)
        (folder / "frames").unlink()
        if frames != self.buffers:
            return None
        seconds = int(time[1]) * 3600 + int(time[2]) * 60 + float(time[3])
        return {"work": f"{self.buffers} frames", "rate": self.buffers / seconds, "unit": "frames/s",
                "values": {"frames": total.hexdigest()[:12]}}


# With what they need that a system without a desktop has not.
PACKAGES = """gstreamer1.0-tools gstreamer1.0-plugins-bad gstreamer1.0-plugins-base libgstreamer-plugins-bad1.0-0
libgstreamer-plugins-base1.0-0 libgstreamer1.0-0 libgstreamer-gl1.0-0 liborc-0.4-0 libglib2.0-0 libgudev-1.0-0 libdw1
libelf1 libunwind8 libffi8 libpcre2-8-0 libdrm2 libgbm1 libegl1 libgl1 libglx0 libglvnd0 libwayland-client0
libwayland-cursor0 libwayland-egl1 libwayland-server0 libx11-6 libx11-xcb1 libxcb1 libxau6 libxdmcp6 libbsd0 libmd0
libexpat1 libudev1 libbz2-1.0 liblzma5 zlib1g""".split()

PROGRAM = GStreamer(
    name="gstreamer", title="GStreamer: cudaupload ! cudadownload", debs=tuple(PACKAGES), preload=True,
    process="gst-launch", is_harmed=False, why_unharmed="it made a context of its own",
    tenants={"org.gstreamer": ("*/libgstcuda-1.0.so*", "*/libgstnvcodec.so")})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
