#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads and runs the kernels of other people's repositories on several drivers, and compares.

    public_kernels.py compile FOLDER REPOSITORY... [--nvcc NVCC]
    public_kernels.py run FOLDER DRIVER [DRIVER] [--jobs N]

compile gives each .cu file below the REPOSITORY folders to nvcc, and puts the PTX into FOLDER. run
loads the PTX files of FOLDER on a DRIVER, which is the path of a libcuda.so.1, and launches each
kernel with arguments of the script's own: buffers of small integers and of floats, and small
numbers. Many kernels go wrong with such arguments. FOLDER/went_well.json then has the launches that
did not.

With two DRIVERs, run does these launches alone on both, and compares what is in the buffers
afterwards, because a fault would end CUDA for the process. The script prints what was noteworthy,
and how many of how many. Files that need textures or tensor cores are counted apart. Status 1: a
result differs.
"""
import argparse
import array
import collections
import concurrent.futures
import ctypes
import glob
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading

TARGET = "compute_75"
INCLUDES = ["", "include", "inc", "common", "common/inc", "src", "Common", "../include",
            "../common"]
# What the software device is not made for.
APART = {"textures": r"^\s*(@!?%p\d+ )?(tex|tld4|txq|suld|sust|sured|suq)\.|"
                     r"\.(tex|surf|sampler)ref",
         "tensor cores": r"^\s*(@!?%p\d+ )?(wmma|mma|ldmatrix|stmatrix)\."}

MEBI = 1 << 20
MARGIN = 4 * MEBI  # on both sides of the buffers, because of threads that go beyond theirs
BUFFERS, BUFFER = 16, MEBI // 4
NUMBER = 64  # each integer argument
DYNAMIC_SHARED = 16384
SECONDS = 5  # for one launch on all drivers
LOADING_SECONDS = 60


def to_ptx(job):
    nvcc, repository, path, folder = job
    name = os.path.relpath(path, os.path.dirname(repository)).replace("/", "__")
    target = os.path.join(folder, name + ".ptx")
    if os.path.exists(target) or os.path.exists(target + ".error"):
        return
    here = os.path.dirname(path)
    places = [os.path.join(base, sub) for base in (here, os.path.dirname(here), repository)
              for sub in INCLUDES]
    command = [nvcc, "-w", "--ptx", "-std=c++17", "-arch=" + TARGET, "-o", target, path]
    command.append("-DcudaThreadSynchronize=cudaDeviceSynchronize")  # CUDA 13 has lost the old name
    command += ["-I" + place for place in dict.fromkeys(places) if os.path.isdir(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        error = done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired:
        error = "no end within 300 s"
    if error:
        with open(target + ".error", "w", encoding="utf-8") as file:
            file.write(error)


def compile_all(nvcc, folder, repositories):
    os.makedirs(folder, exist_ok=True)
    jobs = [(nvcc, repository.rstrip("/"), path, folder) for repository in repositories
            for path in sorted(glob.glob(repository + "/**/*.cu", recursive=True))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(to_ptx, jobs))
    done = len(glob.glob(folder + "/*.ptx"))
    print(f"{len(jobs)} files, {done} compiled to PTX")
    return 0 if done else 1


class Kernel:
    """What the text of an entry says about how it can be launched."""

    def __init__(self, match, text):
        self.name = match[1]
        self.parameters = re.findall(r"\.param\s+([^,()]+)", match[2] or "")
        end = text.find("\n}\n", match.end())
        head_and_body = text[match.end():end if end >= 0 else len(text)]
        # nvcc converts what it uses as a pointer to an address of global memory.
        loads = dict(re.findall(r"ld\.param\.[bu]64\s+(%rd\d+), \[([\w$]+)\]", head_and_body))
        self.pointers = {loads[register] for register in
                         re.findall(r"cvta\.to\.global\.u64\s+%rd\d+, (%rd\d+)", head_and_body)
                         if register in loads}
        # A kernel that does not read %ctaid.y would do everything twice in a grid of two rows.
        self.grid = (2, 2) if "%ctaid.y" in head_and_body else (4, 1)
        self.block = (16, 16, 1) if "%tid.y" in head_and_body else (256, 1, 1)
        for which in ("reqntid", "maxntid"):
            given = re.match(rf"[^{{]*\.{which} ([\d, ]+)", head_and_body)
            if given:
                sizes = [int(size) for size in given[1].split(",")] + [1, 1]
                if which == "reqntid" or sizes[0] * sizes[1] * sizes[2] < 256:
                    self.block = tuple(sizes[:3])

    def arguments(self, buffers):
        """Each argument's bytes, for buffers that begin at that address."""
        values, pointers = [], 0
        for parameter in self.parameters:
            array_of = re.search(r"\[(\d+)\]", parameter)
            if array_of:
                values.append(bytes(int(array_of[1])))
            elif parameter.split()[-1] in self.pointers:
                values.append(struct.pack("<Q", buffers + pointers % BUFFERS * BUFFER))
                pointers += 1
            elif ".f32" in parameter:
                values.append(struct.pack("<f", 1.5))
            elif ".f64" in parameter:
                values.append(struct.pack("<d", 1.5))
            else:
                size = int(re.match(r"\.[busf](\d+)", parameter)[1]) // 8
                values.append(struct.pack("<Q", NUMBER)[:size])
        return values


def kernels_of(text):
    return [Kernel(match, text)
            for match in re.finditer(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", text)]


def fills():
    """What is in the buffers before a launch: small integers, then floats from 0.5 to 2."""
    words = BUFFER // 4
    integers = array.array("I", ((7 * i) % 64 for i in range(words)))
    floats = array.array("f", (0.5 + (i * 37 % 1024) / 1024 * 1.5 for i in range(words)))
    return [("integers", integers.tobytes()), ("floats", floats.tobytes())]


class Driver:
    def __init__(self, path):
        self.library = ctypes.CDLL(path, os.RTLD_LOCAL | os.RTLD_NOW)
        self.context = ctypes.c_void_p()
        self.memory = ctypes.c_uint64()
        self.size = 2 * MARGIN + BUFFERS * BUFFER
        self.need("cuInit", 0)
        self.need("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.need("cuCtxSetCurrent", self.context)
        self.need("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(self.size))

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def need(self, name, *arguments):
        status = self.call(name, *arguments)
        if status != 0:
            raise RuntimeError(f"{name} answers {status}")

    def load(self, text):
        """A module and an empty text, or none and why."""
        self.need("cuCtxSetCurrent", self.context)
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), 8192)
        status = self.call("cuModuleLoadDataEx", ctypes.byref(module), text.encode() + b"\0", 2,
                           options, values)
        if status == 0:
            return module, ""
        return None, log.value.decode(errors="replace").strip().split("\n")[0] or f"status {status}"

    def launch(self, module, kernel, fill):
        """The status, and what is in the buffers afterwards."""
        self.need("cuCtxSetCurrent", self.context)
        self.need("cuMemsetD8_v2", self.memory, 0, ctypes.c_size_t(self.size))
        first = self.memory.value + MARGIN
        for index in range(BUFFERS):
            self.need("cuMemcpyHtoD_v2", ctypes.c_uint64(first + index * BUFFER), fill,
                      ctypes.c_size_t(BUFFER))
        function = ctypes.c_void_p()
        self.need("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
        values = [ctypes.create_string_buffer(value, len(value))
                  for value in kernel.arguments(first)]
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *[ctypes.cast(value, ctypes.c_void_p) for value in values])
        for shared in (DYNAMIC_SHARED, 0):  # none where the kernel's own leaves too little
            status = self.call("cuLaunchKernel", function, *kernel.grid, 1, *kernel.block, shared,
                               None, pointers, None)
            if status != 1:
                break
        if status == 0:
            status = self.call("cuCtxSynchronize")
        after = ctypes.create_string_buffer(BUFFERS * BUFFER)
        if status == 0:
            status = self.call("cuMemcpyDtoH_v2", after, ctypes.c_uint64(first),
                               ctypes.c_size_t(BUFFERS * BUFFER))
        return status, after.raw


def near(left, right):
    """Whether all words that differ are floats, or doubles, of nearly the same value."""
    for code, tolerance in (("f", 1e-3), ("d", 1e-9)):
        one, two = array.array(code, left), array.array(code, right)
        if all(a == b or abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-3) or (a != a and b != b)
               for a, b in zip(one, two)):
            return True
    return False


def compare(first, second):
    if first == second:
        return "same bits"
    for at in range(0, len(first), 65536):
        left, right = first[at:at + 65536], second[at:at + 65536]
        if left != right and not near(left, right):
            return "different"
    return "nearly the same"


def went_well(folder):
    """The launches of an earlier run on one driver: file, kernel and fill."""
    with open(os.path.join(folder, "went_well.json"), encoding="ascii") as file:
        return {tuple(launch) for launch in json.load(file)}


def work(path, skip, driver_paths):
    """In a child process: a file's launches from number `skip` on. Tells before and after each."""
    chosen = went_well(os.path.dirname(path)) if len(driver_paths) > 1 else None
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    given = fills()
    launches = [(kernel, fill) for kernel in kernels_of(text) for fill in given
                if chosen is None or (os.path.basename(path), kernel.name, fill[0]) in chosen]
    if skip >= len(launches):
        return
    tell({"next": len(launches), "kernel": "", "fill": "loading"})
    drivers = [Driver(path) for path in driver_paths]
    loaded = [driver.load(text) for driver in drivers]
    refused = [why for _, why in loaded]
    if any(refused):
        tell({"next": len(launches), "refused": refused})
        return
    for number, (kernel, (name, fill)) in list(enumerate(launches))[skip:]:
        line = {"next": number + 1, "kernel": kernel.name, "fill": name}
        tell(line)
        runs = [driver.launch(module, kernel, fill) for driver, (module, _) in zip(drivers, loaded)]
        line["status"] = [status for status, _ in runs]
        if line["status"] == [0, 0]:
            line["result"] = compare(runs[0][1], runs[1][1])
            again = 3 if line["result"] != "same bits" else 0  # it may race with itself
            for driver, (module, _), (_, before) in again * list(zip(drivers, loaded, runs)):
                if driver.launch(module, kernel, fill)[1] != before:
                    line["result"] = "not the same twice"
        tell(line)
        if any(status not in (0, 1, 701) for status in line["status"]):
            return  # CUDA has ended for this process


def tell(line):
    """To the parent; stdout is what kernels print to."""
    print(json.dumps(line), file=sys.stderr, flush=True)


def lines_of(child):
    """What a child tells, line by line. It is killed when it takes too long."""
    seconds = LOADING_SECONDS
    while True:
        timer = threading.Timer(seconds, child.kill)
        timer.start()
        raw = child.stderr.readline()
        timer.cancel()
        if not raw:
            return
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # a driver's message
        seconds = LOADING_SECONDS if line.get("fill") == "loading" else SECONDS
        yield line


def run_file(path, driver_paths):
    """What became of each launch of a file. A child that ends early is followed by another."""
    lines, skip = [], 0
    while True:
        command = [sys.executable, __file__, "work", path, str(skip), json.dumps(driver_paths)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        last = None
        for last in lines_of(child):
            if "status" in last or "refused" in last:
                lines.append(last)
        code = child.wait()
        if last is None and code != 0:
            raise RuntimeError(f"{path}: a child ended with {code} before it began")
        if last is None:
            return lines
        if last not in lines:
            ended = "no end" if code == -signal.SIGKILL else f"ended {code}"
            lines.append({**last, "result": ended})
        skip = last["next"]


def outcome(line):
    if "refused" in line:
        return "refused"
    status = line.get("status", [])
    if "result" in line:
        return line["result"]
    if len(status) == 1:
        return f"status {status[0]}"
    return "the same error" if status[0] == status[1] else "different errors"


def run(folder, driver_paths, jobs):
    apart, paths = collections.Counter(), []
    for path in sorted(glob.glob(folder + "/*.ptx")):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        why = [name for name, what in APART.items() if re.search(what, text, re.MULTILINE)]
        if why:
            apart[why[0]] += 1
        elif ".entry" in text:
            paths.append(path)
    outcomes, well, refused = collections.Counter(), [], 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, lines in zip(paths, pool.map(lambda path: run_file(path, driver_paths), paths)):
            for line in lines:
                what, name = outcome(line), os.path.basename(path)
                if what == "refused":
                    refused += 1
                    print("refused", name, line["refused"], flush=True)
                    continue
                outcomes[what] += 1
                if what == "status 0":
                    well.append((name, line["kernel"], line["fill"]))
                elif what not in ("same bits", "nearly the same"):
                    print(what, name, line["kernel"], line["fill"], line.get("status", ""),
                          flush=True)
    if len(driver_paths) == 1:
        with open(os.path.join(folder, "went_well.json"), "w", encoding="ascii") as file:
            json.dump(sorted(well), file, indent=0)
        print(f"{len(paths)} files, {len(paths) - refused} loaded, {refused} refused; "
              f"apart: {dict(apart)}")
    print(f"{sum(outcomes.values())} launches: {dict(outcomes.most_common())}")
    return 1 if outcomes["different"] or outcomes["different errors"] else 0


def main():
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["compile", "run"])
    parser.add_argument("folder")
    parser.add_argument("others", nargs="+", metavar="REPOSITORY or DRIVER")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.command == "compile":
        return compile_all(options.nvcc, options.folder, options.others)
    return run(options.folder, options.others, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
