# SPDX-License-Identifier: Apache-2.0
"""VapourSynth and five of its CUDA plug-ins, for run_vspipe.py and run_vapoursynth.py."""
import os
import pathlib
import subprocess

import strangers

# bm3dcuda and nlm_cuda bring a static runtime library. dfttest2_cuda calls the driver and cuFFT, dfttest2_nvrtc and
# vszipcu call the driver and NVRTC.
PLUG_INS = {
    "com.vapoursynth.bm3dcuda": ("*/libbm3dcuda.so",),
    "com.vapoursynth.nlm-cuda": ("*/libvsnlm_cuda.so",),
    "com.vapoursynth.dfttest2-cuda": ("*/libdfttest2_cuda.so",),
    "com.vapoursynth.dfttest2-nvrtc": ("*/libdfttest2_nvrtc.so",),
    "com.vapoursynth.vszipcu": ("*/libvszipcu.so",),
}
WHEELS = ("vapoursynth==79", "vapoursynth-bm3dcuda==2.17", "vapoursynth-nlm-cuda==5",
          "vapoursynth-dfttest2-cuda==11.1.0", "vapoursynth-dfttest2-nvrtc==11.1.0", "vapoursynth-vszipcu==1.2.0")


def program(**more):
    return dict(tenants=PLUG_INS, python=(3, 12), wheels=WHEELS, site="vapoursynth", **more)


def prepare(place):
    strangers.give_nvidias_libraries(place, ("libcufft.so.12", "libnvrtc.so.13"))


def configure(place):
    """Tells vspipe where its Python is, as `vapoursynth config` does."""
    config = place.build / "config/vapoursynth/vapoursynth.toml"
    config.unlink(missing_ok=True)
    variables = place.environment(place.build)
    subprocess.run([place.python, "-m", "vapoursynth", "config"], env=variables, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
    if config.exists() and "vapoursynth" in config.read_text():
        return
    name = f"libpython{'.'.join(map(str, place.version))}.so*"
    found = [place.options.libpython] if place.options.libpython else sorted(place.packages.glob(name))
    if not found:
        raise strangers.Skipped(f"{place.python} has no shared library, which vspipe needs; name one with --libpython")
    config.parent.mkdir(parents=True, exist_ok=True)
    key = str(place.site / "vapoursynth/libvsscript.so").replace("/lib64/", "/lib/")
    library, changed = pathlib.Path(found[0]).resolve(), int(os.stat(place.python).st_mtime)
    config.write_text(f'"{key}" = ["{place.python}","{library}","{changed}"]\n')
