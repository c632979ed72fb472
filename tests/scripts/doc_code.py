#!/usr/bin/env python3
"""Compiles the C++ and C that the documentation shows, as C++17 and C11.

    doc_code.py SOURCE_FOLDER CXX CC [-Ifolder ...]

A block that is no whole file stands in `contexts` with what a reader has around it. A line "..." in a
block is left out. install_test.sh builds the blocks with a file's name, device code included, as plug-ins.
"""
import pathlib
import re
import subprocess
import sys

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
namespace vignette_kernels { constexpr ctxb_module modules[1]{}; }
"""
whole_plugin = (plugin, "};")
job_only = (plugin + "void activate(const Activation&) override {}\n"
            "Outcome process(const Job&) override { return warm_ ? Outcome::done : Outcome::bypass; }\n",
            "};")
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
    ("docs/writing_plugins.md", "class Vignette"): (generated, ""),
}


def main():
    source, cxx, cc = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    commands = {"cpp": [cxx, "-std=c++17", "-xc++"], "c": [cc, "-std=c11", "-xc"]}
    unused, compiled, failed = dict(contexts), 0, 0
    for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
        name, text = page.relative_to(source).as_posix(), page.read_text()
        for block in re.finditer(r"^```(cpp|c)\b[^\n]*\n(.*?)^```", text, re.S | re.M):
            line = text.count("\n", 0, block.start()) + 2
            code = re.sub(r'^(\.\.\.|#include "\w+_kernels.hpp".*)$', "", block[2], flags=re.M)
            before, after = "", ""
            for key, context in contexts.items():
                if key[0] == name and key[1] in code:
                    before, after = context
                    unused.pop(key, None)
            unit = f'{before}\n#line {line} "{name}"\n{code}\n{after}\n'
            run = subprocess.run([*commands[block[1]], "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                  "-Wno-unused-variable", *sys.argv[4:], "-"],
                                 input=unit, capture_output=True, text=True)
            compiled += 1
            if run.returncode != 0:
                failed += 1
                print(run.stderr)
    for key in unused:
        print(f"doc_code.py has a context for a block that is not there: {key}")
    print(f"{compiled} blocks, {failed} do not compile")
    return 1 if failed or unused or compiled < 8 else 0


sys.exit(main())
