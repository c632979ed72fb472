#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes entry_points.inc from a CUDA Toolkit: which names the driver exports (from the toolkit's
driver stub, and for OpenGL, EGL and VDPAU, which that leaves out, from their own headers) and which
of them cuGetProcAddress returns for a base name from which CUDA version on (from cudaTypedefs.h).
Run by hand when a newer toolkit is to be followed; the build never runs it.

    make_entry_points.py TOOLKIT_FOLDER > entry_points.inc
"""
import collections
import glob
import re
import subprocess
import sys


def interop_names(root):
    """The rows that the stub lacks. Their headers name each form with the version it came with; the
    second form is _v2, and a form for the per-thread default stream is of the newest before it."""
    forms = collections.defaultdict(list)
    for header in ("cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"):
        text = open(f"{root}/include/{header}", encoding="utf-8").read()
        for base, version, suffix in set(re.findall(
                r"\*PFN_(cu(?!WGL)\w+?)_v(\d+)(?:_(ptsz|ptds))?\)", text)):
            forms[base].append((int(version), suffix))
    rows = {}
    for base, found in forms.items():
        count = 0
        for version, suffix in sorted(found):
            count += not suffix
            symbol = base + (f"_v{count}" if count > 1 else "") + (f"_{suffix}" if suffix else "")
            rows[symbol] = (base, version, 1 if suffix else 0)
    return rows


def main() -> None:
    root = sys.argv[1]
    stub = glob.glob(root + "/lib64/stubs/libcuda.so")[0]
    listing = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, text=True,
                             capture_output=True).stdout
    exported = sorted(line.split()[2] for line in listing.splitlines()
                      if re.search(r" T cu[A-Z]", line))

    versions = collections.defaultdict(set)  # (base, suffix) -> versions
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        text = open(f"{root}/include/{header}", encoding="utf-8").read()
        for base, version, suffix in re.findall(
                r"\*PFN_(cu\w+?)_v(\d+)(?:_(pts[z]|ptds))?\)", text):
            versions[base, "pt" if suffix else ""].add(int(version))

    # The exported names of a base, oldest first: cuMemAlloc, cuMemAlloc_v2, ...
    names = collections.defaultdict(list)
    for symbol in exported:
        match = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(?:_(ptsz|ptds))?", symbol)
        names[match[1], "pt" if match[3] else ""].append((int(match[2] or 1), symbol))

    rows = {}
    for (base, suffix), found in names.items():
        found.sort()
        known = sorted(versions.get((base, suffix), ()))
        if len(known) < len(found):
            print(f"{base} {suffix}: names {found}, versions {known}", file=sys.stderr)
        # Newest with newest; what the header no longer names is as old as can be.
        known = [0] * (len(found) - len(known)) + known[len(known) - len(found):]
        for (_, symbol), version in zip(found, known):
            rows[symbol] = (base, version, 1 if suffix else 0)

    rows.update(interop_names(root))
    print("// SPDX-License-Identifier: Apache-2.0\n// Written by make_entry_points.py: CTXB_ENTRY(exported symbol, name that")
    print("// cuGetProcAddress knows it by, first CUDA version, per-thread default stream).")
    for symbol in sorted(rows):
        base, version, per_thread = rows[symbol]
        print(f"CTXB_ENTRY({symbol}, {base}, {version}, {per_thread})")


main()
