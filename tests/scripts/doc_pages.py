#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the documentation as a reader does, with ctxbroker installed into an empty home.

    doc_pages.py SOURCE_FOLDER BUILD_FOLDER CMAKE NVCC CXX [--slow]

- Each page has a folder of its own, with the files that the page shows, a picture IN.png and a recording
  IN.wav. Its blocks of shell run there, in order. A block that names build/release runs in a folder that
  looks like the repository. The blocks of `not_run` do not run, for the reason that stands there.
- A text block behind a block of shell is what that writes. A block may fail only if "error" is shown.
- Every text block of docs/troubleshooting.md is among what doc_code/messages.sh writes.
- What a reader installs is what tools/demo has built.
- JSON is checked against the schema that it names. A graph is one of docs/examples.
- A block of CMake that is no whole file is configured, with files for those that it names.

Without --slow, pages that build something and blocks of CMake are left to `tools/test --all`.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import wave

import jsonschema

from doc_blocks import blocks, matches

troubleshooting = "docs/troubleshooting.md"
builds = "builds ctxbroker, as this test's caller did"
strangers = "needs a GPU and other people's packages"
measures = "repeats a measurement, on a GPU or for minutes"
oracle = "scripts.graph_oracle runs these graphs, on files that it makes"

# (page, a text in the block or ""): why it does not run
not_run = {
    ("README.md", "tools/demo"): builds,
    ("docs/installing.md", "tools/demo"): builds,
    ("docs/python.md", "tools/wheel"): builds,
    ("tests/README.md", ""): builds,
    ("CONTRIBUTING.md", ""): builds,
    ("docs/any_program.md", "~/vs/bin"): strangers,
    ("docs/any_program.md", "train.py"): strangers,
    ("tests/strangers/README.md", ""): strangers,
    ("plugin_sdk/template/README.md", ""): "tests/consumer/template_test.sh does what this page says",
    ("docs/embedding.md", "halfwhite.c"): "tests/consumer builds and runs painter, without a toolkit's library of the driver",
    ("docs/runtime_functions.md", ""): "needs a GPU, and writes that page",
    ("docs/workers.md", "nvidia-cuda-mps-control"): "needs a GPU and NVIDIA's program",
    ("docs/validator.md", "gdb"): "a debugger waits for a person",
    ("tests/fuzz/README.md", ""): "needs a build of its own, with clang",
    ("assets/LICENSES.md", ""): "downloads the originals of the bundled files",
    ("docs/running_sample_host.md", "compositing.json"): oracle,
    ("docs/running_sample_host.md", "mixing.json"): oracle,
    **{(f"docs/measurements/{name}.md", ""): measures
       for name in ("facts", "gate", "leases", "modules", "neighbours", "software_device")},
}

# A page that goes on where another one has ended, in its folder.
continues = {"docs/validator.md": "docs/writing_plugins.md", "docs/memory_checker.md": "docs/writing_plugins.md"}

# (page, a text in the block): text behind a block of shell that is not what that writes.
other_text = {("docs/validator.md", "process.output_written"), ("docs/memory_checker.md", "0 bytes past the end")}


class Reader:
    def __init__(self, source, build, cmake, nvcc, cxx, scratch):
        self.source, self.build, self.cmake, self.scratch = source, build, cmake, scratch
        self.home = scratch / "home"
        self.prefix = self.home / "ctxbroker"
        self.environment = {**os.environ, "HOME": str(self.home), "CTXBROKER_DRIVER": "software", "CXX": cxx,
                            "CUDACXX": nvcc, "LC_ALL": "C",
                            "PATH": f"{self.prefix}/bin:{pathlib.Path(nvcc).parent}:{os.environ['PATH']}",
                            # The Python package, with the installation's files in place of a wheel's.
                            "PYTHONPATH": str(source / "python"), "CTXBROKER_HOME": str(self.prefix)}
        # A line of Python's output that is written in pieces may have records between them.
        for name in ("CTXBROKER_PLUGIN_PATH", "CTXB_NVCC", "CMAKE_GENERATOR", "PYTHONUNBUFFERED"):
            self.environment.pop(name, None)
        self.repository = scratch / "repository"
        self.repository.mkdir()
        for name in ("assets", "docs", "tests", "tools"):
            (self.repository / name).symlink_to(source / name)
        (self.repository / "build").mkdir()
        (self.repository / "build" / "release").symlink_to(build)
        self.give_media(self.repository)

    def give_media(self, folder):
        subprocess.run([sys.executable, self.source / "tests/scripts/doc_code/picture.py", folder / "IN.png"], check=True)
        with wave.open(str(folder / "IN.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(48000)
            file.writeframes(bytes(range(256)) * 375)

    def folder_of(self, block):
        if "build/release" in block.text:
            return self.repository
        page = continues.get(block.page, block.page)
        folder = self.scratch / "pages" / page.replace("/", "_")
        if not folder.exists():
            folder.mkdir(parents=True)
            self.give_media(folder)
        return folder

    def shell(self, text, folder):
        """Returns the status, and all that was written."""
        run = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=self.environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=300)
        return run.returncode, run.stdout


def reason_not_to_run(block, unused, nvcc):
    toolkit = pathlib.Path(nvcc).resolve().parent.parent
    if block.page == "docs/driver_plugins.md" and not list(toolkit.glob("**/stubs/libcuda.so")):
        return "this toolkit has no library of the driver to link with"
    for (page, text), reason in not_run.items():
        if page == block.page and text in block.text:
            unused.discard((page, text))
            return reason
    return None


def run_pages(reader, all_blocks, slow):
    """Runs shell and Python. Returns what is wrong."""
    wrong, counts, unused = [], {}, set(not_run)
    for number, block in enumerate(all_blocks):
        if block.file:
            (reader.folder_of(block) / block.file).write_text(block.text)
    # A page that builds is slow as a whole, because its blocks need each other.
    slow_pages = {block.page for block in all_blocks if block.language == "sh" and "cmake" in block.text}
    slow_pages -= {page for page, text in not_run if not text}
    slow_pages |= {page for page, before in continues.items() if before in slow_pages}
    # The pages that go on come last.
    all_blocks = sorted(all_blocks, key=lambda block: block.page in continues)
    for number, block in enumerate(all_blocks):
        if block.language == "python" and not block.file:
            wrong.append(f"{block}: a block of Python needs a file's name, and a block of shell that runs it")
        if block.language != "sh":
            continue
        reason = reason_not_to_run(block, unused, reader.environment["CUDACXX"])
        if not reason and block.page in slow_pages and not slow:
            reason = "takes long: tools/test --all runs it"
        if reason:
            counts[reason] = counts.get(reason, 0) + 1
            continue
        status, written = reader.shell(block.text, reader.folder_of(block))
        counts["run"] = counts.get("run", 0) + 1
        follower = all_blocks[number + 1] if number + 1 < len(all_blocks) else None
        shown = follower.text if follower and follower.language == "text" and not follower.file and (
            follower.page == block.page) else ""
        if any(page == block.page and text in shown for page, text in other_text):
            shown = ""
        if status != 0 and "error" not in shown:
            wrong.append(f"{block}: ended with {status}:\n{written}")
        elif not matches(shown, written):
            wrong.append(f"{follower}: this is not what the block before it writes:\n{written}")
    wrong += [f"not_run names a block that is not there: {one}" for one in unused]
    for reason, count in sorted(counts.items()):
        print(f"{count} blocks of shell: {reason}")
    return wrong


def check_demo(build):
    """tools/demo builds the target demo, and then a reader installs. Returns what that would not find."""
    def ninja(*words):
        return subprocess.run(["ninja", "-C", str(build), "-t", *words], text=True, capture_output=True, check=True).stdout
    made = {line.rpartition(": ")[0] for line in ninja("targets", "all").splitlines()}
    by_demo = set(re.findall(r" -o (\S+)", ninja("commands", "demo")))
    installed = set()
    for script in build.glob("**/cmake_install.cmake"):
        installed |= set(re.findall(rf'"{re.escape(str(build))}/((?:bin|lib|plugins)/[^"]+)"', script.read_text()))
    return [f"tools/demo does not build {one}, which cmake --install wants"
            for one in sorted(installed & made)
            if not any(built == one or built.startswith(one + ".") for built in by_demo)]  # links to libx.so.0.1.0


def check_messages(reader, all_blocks):
    script = reader.source / "tests/scripts/doc_code/messages.sh"
    _, written = reader.shell(f". {script} {reader.build} {reader.source}", reader.folder_of(
        next(block for block in all_blocks if block.page == troubleshooting)))
    # A message may stand anywhere, so each block is looked for from the start.
    texts = [block for block in all_blocks if block.page == troubleshooting and block.language == "text"]
    print(f"{len(texts)} blocks of messages")
    wrong = [f"{block}: messages.sh writes no such message:\n{block.text}" for block in texts
             if not all(matches(line, written) for line in block.text.splitlines())]
    return [*wrong, f"what messages.sh writes:\n{written}"] if wrong else []


def check_json(source, all_blocks):
    schemas = {}
    for file in source.glob("docs/*.schema.json"):
        schema = json.loads(file.read_text())
        name = schema["properties"]["schema"]
        schemas[name.get("const") or name["enum"][0]] = schema
    examples = [json.loads(file.read_text()) for file in source.glob("docs/examples/*.json")]
    wrong, count = [], 0
    for block in all_blocks:
        if block.language != "json":
            continue
        count += 1
        try:
            document = json.loads(block.text)
            jsonschema.validate(document, schemas[document["schema"]])
        except (ValueError, KeyError, jsonschema.ValidationError) as error:
            wrong.append(f"{block}: {error!r}")
            continue
        if document["schema"].startswith("ctxbroker.graph/") and document not in examples:
            wrong.append(f"{block}: no file of docs/examples has this graph")
    print(f"{count} blocks of JSON")
    return wrong


def configure_fragments(reader, all_blocks):
    wrong, count = [], 0
    for block in all_blocks:
        if block.language != "cmake" or block.file:
            continue
        count += 1
        folder = reader.scratch / "cmake" / str(count)
        folder.mkdir(parents=True)
        head = "cmake_minimum_required(VERSION 3.25)\nproject(fragment LANGUAGES C CXX)\n"
        if "find_package" not in block.text:
            head += "find_package(ctxbroker REQUIRED)\n"
        for name in re.findall(r"[\w/]+\.(?:cpp|cu|c)\b", block.text):
            (folder / name).write_text("CTXB_EXPORT_PLUGINS(One)\n")  # what CMake looks for
        for name in re.findall(r"target_link_libraries\((\w+)", block.text):
            (folder / "main.cpp").write_text("int main() {}\n")
            head += f"add_executable({name} main.cpp)\n"
        (folder / "CMakeLists.txt").write_text(head + block.text)
        status, written = reader.shell("cmake -B build -DCMAKE_PREFIX_PATH=~/ctxbroker", folder)
        if status != 0:
            wrong.append(f"{block}: cannot be configured:\n{written}")
    print(f"{count} blocks of CMake configured")
    return wrong


def main():
    slow = "--slow" in sys.argv
    source, build, cmake, nvcc, cxx = (one for one in sys.argv[1:] if one != "--slow")
    source, build = pathlib.Path(source).resolve(), pathlib.Path(build).resolve()
    all_blocks, wrong = blocks(source)
    with tempfile.TemporaryDirectory() as scratch:
        reader = Reader(source, build, cmake, nvcc, cxx, pathlib.Path(scratch))
        subprocess.run([cmake, "--install", build, "--prefix", reader.prefix], check=True, stdout=subprocess.DEVNULL)
        wrong += check_demo(build)
        wrong += check_json(source, all_blocks)
        wrong += check_messages(reader, all_blocks)
        wrong += run_pages(reader, all_blocks, slow)
        if slow:
            wrong += configure_fragments(reader, all_blocks)
    for one in wrong:
        print(one)
    return 1 if wrong else 0


sys.exit(main())
