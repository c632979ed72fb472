#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/contract/gate/handle_parameters.inc: each handle that a guarded function of the
driver is given, as a parameter or inside a structure that a parameter points to. Run it by hand, with
the folder of a CUDA Toolkit's headers. handle_parameters_test.cpp passes a neighbour's handle in each
of these places.

    handle_parameters.py INCLUDE            such as /usr/local/cuda/include
    handle_parameters.py --check INCLUDE    writes nothing. If the file lacks a place, it names that
                                            and ends with status 1
"""
import argparse
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "broker" / "shared" / "driver"))
import make_function_table  # noqa: E402

table_file = root / "tests" / "contract" / "gate" / "handle_parameters.inc"

# The handles whose holder the ledger knows. A node is its graph's.
kinds = {
    "CUarray": "array", "CUcontext": "context", "CUevent": "event",
    "CUexternalMemory": "external_memory", "CUexternalSemaphore": "external_semaphore",
    "CUgraph": "graph", "CUgraphExec": "graph_exec", "CUgraphNode": "graph",
    "CUgraphicsResource": "graphics_resource", "CUgreenCtx": "green_context",
    "CUlibrary": "library", "CUlinkState": "link", "CUmemGenericAllocationHandle": "physical",
    "CUmemoryPool": "pool", "CUmipmappedArray": "mipmapped_array", "CUmodule": "module",
    "CUstream": "stream", "CUsurfObject": "surface", "CUtexObject": "texture",
    "CUuserObject": "user_object",
}
# These arrays are read, although they are not declared const.
read_arrays = ("cuGraphicsMapResources", "cuGraphicsUnmapResources")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def split_members(body):
    """Splits the body of a structure into its members, without entering the inner ones."""
    member, depth = "", 0
    for character in body:
        depth += (character == "{") - (character == "}")
        if character == ";" and depth == 0:
            yield member.strip()
            member = ""
        else:
            member += character


class Types:
    def __init__(self, text):
        self.bodies, self.aliases = {}, {}
        for match in re.finditer(r"\btypedef\s+(?:struct|union)\s*\w*\s*\{", text):
            end, depth = match.end(), 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            name = re.match(r"\s*(\w+)\s*;", text[end:])
            if name:
                self.bodies[name[1]] = text[match.end():end - 1]
        for old, new in re.findall(r"\btypedef\s+(?:struct\s+)?(\w+)\s+(\w+)\s*;", text):
            self.aliases[new] = old

    def kind(self, name):
        """The kind of handle that the type is, by its name in any version; None: it is none."""
        base = re.sub(r"_v\d+$", "", name)
        return base if base in kinds else None

    def body(self, name):
        while name not in self.bodies and name in self.aliases:
            name = self.aliases[name]
        return self.bodies.get(name)

    def inside(self, name):
        """Yields the path and the type of each handle in it, and whether it is in an array."""
        body = self.body(name)
        if body is not None:
            yield from self.in_members(body)

    def in_members(self, body):
        for member in split_members(body):
            nested = re.fullmatch(r"(?:struct|union)\s*\w*\s*\{(.*)\}\s*(\w*)\s*(?:\[.*\])?", member,
                                  re.S)
            if nested:
                for path, handle, is_array in self.in_members(nested[1]):
                    yield (nested[2] + "." if nested[2] else "") + path, handle, is_array
                continue
            plain = re.fullmatch(r"(?:const\s+)?(?:struct\s+)?(\w+)\s*(?:const)?\s*(\**)\s*(?:const\s*)?"
                                 r"(\w+)\s*(?:\[.*\])?", member)
            if plain is None:
                continue
            kind, stars, its_name = self.kind(plain[1]), plain[2], plain[3]
            if kind:
                yield its_name, kind, bool(stars)
            elif not stars:
                for path, handle, is_array in self.inside(plain[1]):
                    yield its_name + "." + path, handle, is_array


def places(include):
    """Yields a row for each handle: the macro's name and its arguments."""
    read = lambda name: without_comments((include / name).read_text())
    types = Types(read("cuda.h"))
    forms = "".join(read(name) for name in (
        "cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"))
    _, functions = make_function_table.functions_of_table()
    symbols = {}
    for one, rule in make_function_table.classify(functions):
        suffix = re.search(r"_(ptsz|ptds)$", one.symbol)
        if rule.kind != "pass":
            symbols[one.base, one.version, suffix[1] if suffix else ""] = one.symbol
    pattern = r"\*PFN_(cu(?!WGL)\w+?)_v(\d+)(?:_(ptsz|ptds))?\)\s*\(([^;]*)\)\s*;"
    for base, version, suffix, text in re.findall(pattern, forms):
        symbol = symbols.get((base, int(version), suffix))
        if symbol is None:
            continue
        parameters = [re.fullmatch(r"\s*(const\s+)?(?:struct\s+)?(\w+)\s*(\**)\s*(?:const\s*)?\w*\s*"
                                   r"(?:\[.*\])?\s*", one) for one in text.split(",")]
        shape = "".join("p" if re.search(r"[*\[]", one) else
                        "d" if re.search(r"\bCUdevice(_v1)? ", one) else "n"
                        for one in text.split(","))
        for position, one in enumerate(parameters):
            if one is None:
                continue
            constant, name, stars = one.groups()
            kind = types.kind(name)
            row = f'{symbol}, "{shape}", {position}, '
            if kind and not stars:
                yield f"CTXB_HANDLE({row}{kinds[kind]})"
            elif kind and stars == "*" and (constant or base in read_arrays):
                yield f"CTXB_HANDLES({row}{kinds[kind]})"
            elif not kind and stars == "*" and "Get" not in base:
                for path, handle, is_array in set(types.inside(name)):
                    macro = "CTXB_HANDLES_IN" if is_array else "CTXB_HANDLE_IN"
                    yield f"{macro}({row}{kinds[handle]}, {name}, {path})"


def text_of(rows):
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            "/* Written by tests/scripts/handle_parameters.py, for each guarded function:\n"
            " * CTXB_HANDLE(function, its parameters, position of the handle, its kind), where the\n"
            " * parameters are (p)ointers, (d)evices and (n)umbers. CTXB_HANDLE_IN(..., structure, member)\n"
            " * is for a handle in what the parameter points to. CTXB_HANDLES and CTXB_HANDLES_IN: the\n"
            " * parameter or the member points to an array of handles. */\n"
            + "".join(row + "\n" for row in sorted(set(rows))))


def places_of(text):
    """The function, the position and the member of each row."""
    return set(re.findall(r"^CTXB_\w+\((\w+), \"\w+\", (\d+), \w+(?:, \w+, ([\w.]+))?\)", text, re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("include", type=pathlib.Path)
    arguments = parser.parse_args()
    text = text_of(places(arguments.include))
    if not arguments.check:
        table_file.write_text(text)
        return
    # An older toolkit has fewer, and may have other names for the structures.
    missing = places_of(text) - places_of(table_file.read_text())
    if missing:
        sys.exit(f"{table_file.name} lacks these; see {pathlib.Path(__file__).name}:\n" +
                 "\n".join(", ".join(one) for one in sorted(missing)))


if __name__ == "__main__":
    main()
