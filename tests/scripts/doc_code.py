#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++, C and CUDA C++ that the documentation shows, as C++17 and C11, and runs what can run.

    doc_code.py SOURCE_FOLDER CXX CC [-Ifolder ...] [--run BUILD_FOLDER CMAKE NVCC]

A block that is no whole file stands in `contexts` with what a reader has around it. A line "..." in a
block is left out. A block without a language is an error. doc_pages.py runs the blocks of shell, and
checks JSON and CMake.

With --run, doc_code/host.cpp is linked with the blocks of `host_pages`, and calls each function that they
define. It runs on the software device, with the build's sample plug-ins and with the plug-ins that the
pages show: each FILE.cpp that has a FILE.cu. A block with a main becomes a program of its own, PAGE_program,
which host.cpp starts. It compiles the other blocks of CUDA C++ with nvcc.
doc_pages.py and tests/consumer build and run the other blocks that have a file's name.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from doc_blocks import blocks

here = pathlib.Path(__file__).parent / "doc_code"
host_pages = ("README.md", "docs/discovery.md", "docs/embedding.md", "docs/graphs.md", "docs/how_to.md",
              "docs/kernels_in_your_plugin.md")

host = ("#include <ctxbroker/broker.hpp>\n"
        "void f(ctxbroker::BrokerOptions& options, ctxbroker::Broker& broker) {\n"
        "(void)options, (void)broker;\n", "}")
module = """
#include <ctxbroker/plugin.hpp>
using namespace ctxbroker::sdk;
namespace blur_kernels {
constexpr ctxb_module blur{};
constexpr const char* file_options[] = {nullptr};
}
"""
plugin = """
#include <ctxbroker/plugin.hpp>
using namespace ctxbroker::sdk;
class Blur : public Plugin {
  using Plugin::Plugin;
  Kernel blur_;
  DeviceBuffer<float> out, in;
  unsigned count = 1;
  bool warm_ = true;
"""
# What ctxb_add_plugin generates; the block's own #include of it is taken out.
generated = """
#include <ctxbroker/plugin.h>
namespace %s_kernels { constexpr ctxb_module modules[1]{}; }
"""
whole_plugin = (plugin, "};")
job_only = (plugin + "void activate(const Activation&) override {}\n"
            "Outcome process(const Job&) override { return warm_ ? Outcome::done : Outcome::bypass; }\n",
            "};")
fixture = """
#include <ctxbroker/plugin.h>
struct Gpu { ctxb_status (*release)(const ctxb_host*, unsigned long long); };
struct Object { const ctxb_host* host; };
const Gpu& gpu(Object&);
ctxb_status release_in_process(Object& object, const ctxb_job&);
struct Row { const char* id; ctxb_status (*activate)(Object&); ctxb_status (*process)(Object&, const ctxb_job&); };
struct Breach { const char *plugin, *text; };
"""
texts = 'constexpr char tone_text[] = "", rows_ptx[] = "";\n'

# (document, a text in the block): what comes before, and after
contexts = {
    ("docs/embedding.md", "options.ready.green = 4"): host,
    ("docs/embedding.md", "broker.start_timeline();"): host,
    ("docs/kernels_in_your_plugin.md", "blur_.launch(job"): whole_plugin,
    ("docs/kernels_in_your_plugin.md", "linked("): (module + texts, ""),
    ("docs/kernels_in_your_plugin.md", "blur.fatbin"): (module, ""),
    ("docs/kernels_in_your_plugin.md", "filters/blur.cu"): (module, ""),
    ("docs/writing_plugins.md", "void context_lost"): job_only,
    ("tests/README.md", "release_in_process(Object"): (fixture, ""),
    ("tests/README.md", '{"com.example.test.process_releases"'): (fixture + "const Row rows[] = {", "};"),
    ("tests/README.md", 'Breach{"process_releases"'): (fixture + "const Breach rows[] = {", "};"),
}


def call(command, **more):
    """Runs a command. What it wrote is shown if it failed."""
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if run.returncode != 0:
        print(run.stdout, run.stderr, sep="")
    return run


def build_plugins(files, source, folder, cmake, nvcc):
    """Builds the pages' plug-ins, and grade. Returns whether that worked."""
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(pages LANGUAGES CXX)",
             "find_package(ctxbroker_plugin_sdk REQUIRED)",
             f'ctxb_add_plugin(grade SOURCES "{here}/grade.cpp")']
    for name, text in files.items():
        (folder / name).write_text(text)
        stem = name.removesuffix(".cu")
        if name.endswith(".cu") and stem + ".cpp" in files:
            lines.append(f"ctxb_add_plugin({stem} SOURCES {stem}.cpp KERNELS {name})")
    (folder / "CMakeLists.txt").write_text("\n".join(lines))
    configure = [cmake, "-S", folder, "-B", folder, "-G", "Ninja", f"-DCTXB_NVCC={nvcc}",
                 "-DCMAKE_BUILD_TYPE=Release", f"-Dctxbroker_plugin_sdk_DIR={source}/plugin_sdk/cmake"]
    return (call(configure).returncode == 0 and
            call([cmake, "--build", folder]).returncode == 0)


def symbols(nm_options, file):
    """Returns the names of functions in an object file, without weak ones."""
    lines = subprocess.run(["nm", *nm_options, file], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines() if line.split()[-2] in "TU"}


def run_host(objects, programs, flags, folder, build, cxx):
    """Links and runs doc_code/host.cpp. Returns whether all is as it says."""
    host, program = folder / "host.o", folder / "host"
    libraries = build / "lib"
    gate = libraries / "ctxbroker" / "ctxbroker_gate_link.so"
    if call([*flags, "-c", "-o", host, here / "host.cpp"]).returncode != 0:
        return False
    called = symbols(["-u"], host)
    forgotten = set().union(*(symbols(["--defined-only"], file) for file in objects)) - called
    if forgotten:
        print(f"doc_code/host.cpp does not call {sorted(forgotten)}")
        return False
    link = ["-Wl,--no-as-needed", gate, libraries / "libctxbroker.so", f"-Wl,-rpath,{libraries}:{gate.parent}",
            "-ldl"]
    environment = {"CTXBROKER_DRIVER": "software", "CTXBROKER_PLUGIN_PATH": str(folder / "plugins"),
                   "XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config")}
    return (all(call([cxx, "-o", one.with_suffix(""), one, *link]).returncode == 0 for one in programs) and
            call([cxx, "-o", program, host, *objects, *link]).returncode == 0 and
            call([program, folder], cwd=folder, env={**os.environ, **environment}).returncode == 0)


def main():
    arguments, run = sys.argv[1:], []
    if "--run" in arguments:
        at = arguments.index("--run")
        arguments, run = arguments[:at], arguments[at + 1:]
    source, cxx, cc = pathlib.Path(arguments[0]).resolve(), arguments[1], arguments[2]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", *arguments[3:]]
    commands = {"cpp": [cxx, "-std=c++17", *warnings, "-xc++"], "c": [cc, "-std=c11", *warnings, "-xc"]}
    unused, compilations, files, objects = dict(contexts), [], {}, []
    programs = []
    scratch = tempfile.TemporaryDirectory()
    folder = pathlib.Path(scratch.name)
    all_blocks, wrong_form = blocks(source)
    for block in all_blocks:
        if block.file:
            files[block.file] = block.text
        if block.language not in commands:
            continue
        code = re.sub(r'^(\.\.\.|#include "\w+_kernels.hpp".*)$', "", block.text, flags=re.M)
        before, after = "", ""
        if made := re.search(r'^#include "(\w+)_kernels.hpp"', block.text, re.M):
            before = generated % made.group(1)
        for key, context in contexts.items():
            if key[0] == block.page and key[1] in code:
                before, after = context
                unused.pop(key, None)
        is_called = run and block.page in host_pages and not block.file and not before
        page = pathlib.Path(block.page).stem
        is_program = is_called and re.search(r"^int main\(", code, re.MULTILINE)
        object_file = folder / (f"{page}_program.o" if is_program else f"{block.line}_{page}.o")
        result = ["-c", "-o", object_file] if is_called else ["-fsyntax-only"]
        unit = f'{before}\n#line {block.line} "{block.page}"\n{code}\n{after}\n'
        compilations.append(([*commands[block.language], *result, "-"], unit))
        if is_called:
            (programs if is_program else objects).append(object_file)
    if run:
        built = {name.removesuffix(".cpp") for name in files if name.endswith(".cpp")}
        for block in all_blocks:
            if block.language == "cuda" and block.file.removesuffix(".cu") not in built:
                file = folder / f"{block.line}_{block.file or 'block.cu'}"
                file.write_text(f'#line {block.line} "{block.page}"\n{block.text}')
                compilations.append(([run[2], "-ptx", "-std=c++17", "-Werror=all-warnings", f"-ccbin={cxx}",
                                      "-allow-unsupported-compiler",
                                      f"-I{source}/plugin_sdk/include", "-o", folder / "out.ptx", file], ""))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda one: call(one[0], input=one[1]), compilations))
    compiled, failed = len(runs), sum(one.returncode != 0 for one in runs)
    for key in unused:
        print(f"doc_code.py has a context for a block that is not there: {key}")
    for one in wrong_form:
        print(one)
    print(f"{compiled} blocks, {failed} do not compile, {len(objects) + len(programs)} run")
    if failed or unused or wrong_form or compiled < 8:
        return 1
    if run:
        build = pathlib.Path(run[0]).resolve()
        (folder / "plugins").symlink_to(build / "plugins")
        if not (build_plugins(files, source, folder, run[1], run[2]) and
                run_host(objects, programs, commands["cpp"], folder, build, cxx)):
            return 1
    return 0


sys.exit(main())
