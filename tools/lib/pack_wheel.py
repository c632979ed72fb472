#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a folder into a wheel, and prints the wheel's path. tools/wheel uses it.

    pack_wheel.py FOLDER VERSION README LICENSES OUT

FOLDER holds the package ctxbroker/ as it will lie in site-packages. The platform tag is measured: the oldest glibc that
has what the files need. A file that needs a library which neither the wheel nor every Linux has is an error, and so is
a library of NVIDIA.
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

# What every system has that a manylinux tag names. libcuda.so.1 is the driver, or the gate in its place.
OF_THE_SYSTEM = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|libcuda)\.so\.\d+")
OF_NVIDIA = re.compile(r"lib(cudart|cublas|cublasLt|cufft|nvrtc|nvJitLink|nvidia)[-_.]")
# With which glibc the distributions came that have this libstdc++, as auditwheel has it.
GLIBC_OF_GLIBCXX = {28: 31, 29: 34, 30: 35, 31: 38, 32: 38, 33: 39}

METADATA = """Metadata-Version: 2.1
Name: ctxbroker
Version: {version}
Summary: CUDA plug-ins of people who never met, in one process
License: Apache-2.0
Keywords: cuda,gpu,plug-ins,isolation
Classifier: Development Status :: 3 - Alpha
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{readme}"""


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def readelf(option, file):
    return subprocess.run(["readelf", "-W", option, str(file)], capture_output=True, text=True, check=True).stdout


def measured_glibc(folder):
    """Returns N of glibc 2.N. Ends the program where a file needs what is not there."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and is_elf(file)]
    names = {file.name for file in files}
    # What a library is called: its SONAME.
    names |= {name for file in files for name in re.findall(r"SONAME.*\[(.*)\]", readelf("-d", file))}
    newest, wrong = 17, []
    for file in files:
        where = file.relative_to(folder)
        if OF_NVIDIA.match(file.name):
            wrong.append(f"{where} is NVIDIA's")
        for needed in re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", file)):
            if OF_NVIDIA.match(needed) or not (needed in names or OF_THE_SYSTEM.fullmatch(needed)):
                wrong.append(f"{where} needs {needed}, which the wheel does not hold")
        versions = readelf("-V", file)
        newest = max(newest, *(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", versions)), 0)
        for minor in re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", versions):
            if int(minor) > max(GLIBC_OF_GLIBCXX):
                wrong.append(f"{where} needs GLIBCXX_3.4.{minor}, which this script does not know")
            newest = max(newest, GLIBC_OF_GLIBCXX.get(int(minor), 17))
    for one in wrong:
        print(f"pack_wheel.py: {one}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    return newest


def main():
    folder, version, readme, licenses, out = (pathlib.Path(word) for word in sys.argv[1:])
    tag = f"py3-none-manylinux_2_{measured_glibc(folder)}_x86_64"
    info = f"ctxbroker-{version}.dist-info"
    contents = {
        f"{info}/METADATA": METADATA.format(version=version, readme=readme.read_text()).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tools/wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nctxb-run = ctxbroker._programs:ctxb_run\n",
        f"{info}/top_level.txt": b"ctxbroker\n",
    }
    for file in sorted(licenses.iterdir()):
        contents[f"{info}/licenses/{file.name}"] = file.read_bytes()
    programs = set()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            contents[name] = file.read_bytes()
            if os.access(file, os.X_OK) and is_elf(file):
                programs.add(name)
    record = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    contents[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"ctxbroker-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same files give the same wheel
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    print(wheel)


main()
