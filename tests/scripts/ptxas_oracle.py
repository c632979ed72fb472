#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives every form of plain instructions to ptxas and to the software device, and compares what they
take.

    ptxas_oracle.py PTXAS LIBRARY [--page FILE | --write-page FILE | --list]

PTXAS is the assembler of a CUDA Toolkit, and LIBRARY is the software device's libcuda.so.1. The forms
combine opcodes, types and modifiers, and most of them do not exist. Each is tried for sm_75 and for
sm_90. The script prints each form that only one of the two takes, and ends with status 1 when KNOWN
does not have it. --write-page writes the list of what the software device has, for docs/. --page
compares that list, and ends with status 1 when FILE is another. --list prints the forms and ends.
"""
import ctypes
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TARGETS = {75: "7.5", 90: "9.0"}
REGISTERS = {1: "%p", 2: "%h", 4: "%r", 8: "%d"}
TYPES = {"pred": 1, "b8": 2, "u8": 2, "s8": 2, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
         "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
         "b64": 8, "u64": 8, "s64": 8, "f64": 8}
NUMBERS = "b16 u16 s16 f16 bf16 b32 u32 s32 f32 f16x2 bf16x2 b64 u64 s64 f64".split()
ROUND = ",rn,rz,rm,rp"
# What only ptxas takes. No compiler writes it.
KNOWN = re.compile(r"(addc|subc)\.[us]16 |madc\.(lo|hi)\.[us]16 |mad24\.hi\.sat\.s32 |"
                   r"rcp\.r[nzmp]\.ftz\.f64 |cvta\.(to\.)?\w+\.u32 ")
COMPARE = "eq,ne,lt,le,gt,ge,lo,ls,hi,hs,equ,neu,ltu,leu,gtu,geu,num,nan"
WORD = "u32,s32"
SPACES = ",global,shared,local,param,const"

# Opcode, then groups of modifiers (T: every type, S: a second type), then operands: T and S registers
# of these types, W twice as wide as T, a number for a register of so many bytes, p a predicate, q a
# pair of predicates, @ an address, others as they stand.
FORMS = [
    f"add {ROUND} ,ftz ,sat ,cc T | T T T",
    f"sub {ROUND} ,ftz ,sat ,cc T | T T T",
    "addc ,cc T | T T T",
    "subc ,cc T | T T T",
    f"mul ,lo,hi,wide {ROUND} ,ftz ,sat T | T T T",
    "mul wide T | W T T",
    f"mad ,lo,hi,wide {ROUND} ,ftz ,sat ,cc T | T T T T",
    "mad wide T | W T T W",
    "madc ,lo,hi ,cc T | T T T T",
    f"fma {ROUND} ,ftz ,sat ,relu T | T T T T",
    "mul24 ,lo,hi T | T T T",
    "mad24 ,lo,hi ,sat T | T T T T",
    f"div ,approx,full {ROUND} ,ftz T | T T T",
    "rem T | T T T",
    "min ,ftz ,NaN ,xorsign.abs T | T T T",
    "max ,ftz ,NaN ,xorsign.abs T | T T T",
    "abs ,ftz T | T T",
    "neg ,ftz T | T T",
    f"sqrt ,approx {ROUND} ,ftz T | T T",
    f"rcp ,approx {ROUND} ,ftz T | T T",
    "rsqrt ,approx ,ftz T | T T",
    "sin ,approx ,ftz T | T T",
    "cos ,approx ,ftz T | T T",
    "lg2 ,approx ,ftz T | T T",
    "ex2 ,approx ,ftz T | T T",
    "tanh ,approx ,ftz T | T T",
    "copysign T | T T T",
    "testp finite,infinite,number,notanumber,normal,subnormal T | p T",
    "sad T | T T T T",
    "dp4a T S | 4 4 4 4",
    "dp2a ,lo,hi T S | 4 4 4 4",
    "and T | T T T", "or T | T T T", "xor T | T T T", "not T | T T", "cnot T | T T",
    "shl T | T T 4", "shr T | T T 4",
    "shf ,l,r ,wrap,clamp T | T T T 4",
    "popc T | 4 T", "clz T | 4 T", "brev T | T T", "bfind ,shiftamt T | 4 T",
    "bfe T | T T 4 4", "bfi T | T T T 4 4", "bfe T | T T 255 256", "bfe T | T T -1 3",
    "bfe T | T T 0 255", "bfi T | T T T 256 4", "bfi T | T T T 4 256", "bfi T | T T T 255 255",
    "bmsk ,wrap,clamp T | T T 4", "szext ,wrap,clamp T | T T 4",
    "prmt T ,f4e,b4e,rc8,ecl,ecr,rc16 | T T T 4",
    "lop3 T | T T T T 5", "lop3 T | T T T T 4", "lop3 T | T T T T 256",
    f"setp {COMPARE} ,ftz T | p T T",
    f"setp {COMPARE} T | q T T",
    "setp lt,geu and,or,xor ,ftz T | p T T p",
    f"set {COMPARE} ,ftz u32 T | 4 T T",
    "set lt ,ftz T S | T S S",
    "set lt and,or,xor T S | T S S p",
    "selp T | T T T p",
    "slct ,ftz T S | T T T S",
    "mov T | T T",
    "cvt ,rn,rz,rm,rp,rni,rzi,rmi,rpi ,ftz ,sat T S | T S",
    "cvt rn,rz ,relu T S | T S",
    "cvt rn,rz ,relu T f32 | T 4 4",
    "cvt ,rna ,satfinite ,relu ,sat ,ftz tf32 f32 | 4 4",
    "cvta ,to ,global,shared,local,const,param T | T T",
    f"ld {SPACES} ,v2,v4 T | @",
    "ld ,global ,nc T | T @",
    "ld relaxed,acquire cta,gpu,sys ,global,shared T | T @",
    "ld volatile ,global,shared T | T @",
    "st ,global,shared,local T | @ T",
    "st relaxed,release cta,gpu,sys ,global,shared T | @ T",
    "st volatile ,global,shared T | @ T",
    "atom ,global,shared add,exch,min,max,and,or,xor,inc,dec ,noftz T | T @ T",
    "atom ,relaxed,acquire,release,acq_rel ,cta,gpu,sys ,global,shared add T | T @ T",
    "atom ,global,shared cas T | T @ T T",
    "red ,global,shared add,min,max,and,or,xor,inc,dec ,noftz T | @ T",
    *[f"{name} {WORD} {WORD} {WORD} ,sat ,add,min,max | 4 4 4 4"
      for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")],
    f"vshl {WORD} {WORD} {WORD} ,sat ,clamp,wrap ,add,min,max | 4 4 4 4",
    f"vshr {WORD} {WORD} {WORD} ,sat ,clamp,wrap ,add,min,max | 4 4 4 4",
    f"vset ,u32 {WORD} {WORD} ,eq,ne,lt,le,gt,ge,lo ,sat ,add,min,max | 4 4 4 4",
    f"vmad ,u32,s32 {WORD} {WORD} ,po ,sat ,shr7,shr15 ,add | 4 4 4 4",
    "vmad u32 s32 u32 ,po ,sat | 4 -%r1 -%r2 4", "vmad u32 u32 u32 ,po | 4 4 -%r2.b0 4",
    "vmad u32 u32 u32 ,po | 4 4 4 -%r3", "vmad u32 u32 u32 | 4 -%r1 4 -%r3",
    "vmad u32 u32 u32 | 4 4 -7 -9", "vmad u32 u32 u32 | %r1.b0 4 4 4",
    *[f"vadd u32 s32 u32 ,sat ,add | {operands}" for operands in (
        "4 4 4", "4 4 7", "4 -7 4", "4 7 7 4", "4 4 4 7", "_ 4 4", "4 8 4", "4 %laneid 4",
        "4 -%r1 4", "%r1.b0 4 4", "%r1.b3 4 4 4", "%r1.h1 4 4 4", "%r1.h2 4 4 4", "%r1.h10 4 4 4",
        "4 %r2.b2 %r3.h0", "4 %r2.b4 4", "4 4 %r3.h10", "4 4 4 %r4.b0")],
    *[f"{name} {WORD} {WORD} {WORD} ,sat ,add,min | 4 4 4 4"
      for name in [*(f"{name}{parts}" for parts in "24" for name in (
          "vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")), "vavrg", "vshl2"]],
    f"vset2 ,u32 {WORD} {WORD} ,eq,ne,lt,le,gt,ge,lo ,sat ,add,max | 4 4 4 4",
    f"vset4 ,u32 {WORD} {WORD} ,eq,ne,lt,le,gt,ge,lo ,sat ,add,max | 4 4 4 4",
    *[f"vadd2 u32 u32 u32 | {operands}" for operands in (
        "4 4 4", "4 4 7 4", "4 4 4 7", "%r1.h10 4 4 4", "%r1.h1 4 4 4", "%r1.h01 4 4 4",
        "%r1.h2 4 4 4", "4 %r2.h33 %r3.h02 4", "4 %r2.h40 4 4", "4 %r2.h2 4 4", "4 %r2.b10 4 4",
        "4 4 4 %r4.h10")],
    *[f"vadd4 u32 u32 u32 | {operands}" for operands in (
        "%r1.b3210 4 4 4", "%r1.b20 4 4 4", "%r1.b02 4 4 4", "%r1.b11 4 4 4", "%r1.h1 4 4 4",
        "4 %r2.b7041 4 4", "4 %r2.b321 4 4")],
    "shfl sync up,down,bfly,idx T | T T 4 4 -1",
    "vote sync all,any,uni pred | p p -1",
    "vote sync ballot b32 | 4 p -1",
    "match any sync T | 4 T -1",
    "match all sync T | 4 T -1",
    "redux sync add,min,max,and,or,xor T | T T -1",
    "activemask T | T",
    "nanosleep T | T",
    "membar cta,gl,sys |", "fence ,sc,acq_rel cta,gpu,sys |",
    "bar sync | 0", "bar sync | 16", "bar sync | 15 32", "bar sync | 0 33", "bar arrive | 0 64",
    "bar warp.sync | -1",
    "barrier ,cta sync | 0",
    "bar red popc u32 | 4 0 p", "bar red popc u32 | 4 16 p", "bar red popc u32 | 4 0 48 p",
    "bar red and,or pred | p 0 p",
]


def expanded(form):
    """The texts of one line of FORMS."""
    head, _, tail = form.partition("|")
    opcode, *groups = head.split()
    types = [name for name in ("T", "S") if name in groups]
    for chosen in itertools.product(TYPES, repeat=len(types)):
        type_of = dict(zip(types, chosen))
        choices = [[type_of[g]] if g in type_of else g.split(",") for g in groups]
        for modifiers in itertools.product(*choices):
            name = ".".join([opcode] + [m for m in modifiers if m])
            operands = operands_of(tail.split(), type_of, modifiers)
            if operands is not None:
                yield f"{name} {', '.join(operands)};".replace(" ;", ";")


def operands_of(pattern, type_of, modifiers):
    texts, used = [], {1: 0, 2: 0, 4: 0, 8: 0}

    def register(width):
        used[width] += 1
        return REGISTERS[width] + str(used[width])

    if pattern == ["@"]:  # a load of one value or of a vector
        count = {"v2": 2, "v4": 4}.get(next((m for m in modifiers if m in ("v2", "v4")), ""), 1)
        names = [register(TYPES[type_of["T"]]) for _ in range(count)]
        return ["{" + ", ".join(names) + "}" if count > 1 else names[0], "[%d7]"]
    for item in pattern:
        if item in type_of:
            texts.append(register(TYPES[type_of[item]]))
        elif item == "W":
            width = TYPES[type_of["T"]] * 2
            if width > 8:
                return None
            texts.append(register(width))
        elif item in ("4", "8"):
            texts.append(register(int(item)))
        elif item == "5":
            texts.append("128")
        elif item == "p":
            texts.append(register(1))
        elif item == "q":
            texts.append(register(1) + "|" + register(1))
        elif item == "@":
            texts.append("[%d7]")
        else:
            texts.append(item)
    return texts


def head(target):
    return (f".version 8.8\n.target sm_{target}\n.address_size 64\n.visible .entry k()\n{{\n"
            ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>;\n")


def refused_by_ptxas(ptxas, forms, target):
    """Form to ptxas's message."""
    refused, left = {}, forms
    while True:  # ptxas looks for some kinds of errors only where there are none of the other kinds
        found = first_errors(ptxas, left, target)
        if not found:
            return refused
        refused.update(found)
        left = [form for form in left if form not in found]


def first_errors(ptxas, forms, target):
    before = head(target)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "forms.ptx")
        with open(path, "w", encoding="ascii") as file:
            file.write(before + "\n".join(forms) + "\nret;\n}\n")
        run = subprocess.run([ptxas, f"-arch=sm_{target}", path, "-o", os.devnull],
                             capture_output=True, text=True, check=False)
    first = before.count("\n") + 1
    found = {}
    for line, message in re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", run.stderr):
        index = int(line) - first
        if not 0 <= index < len(forms):
            sys.exit(f"ptxas stopped at line {line}: {message}")
        found.setdefault(forms[index], message.strip())
    return found


PAGE = """# What the software device supports

This page is for plug-in authors who test without a GPU. After it, you know which PTX instructions and which driver
functions you can use there. `tests/scripts/ptxas_oracle.py` generates it from the software device itself.

## Instructions

Each row lists the types and modifiers that an instruction takes on the software device, for a target with compute
capability 9.0. Not every type goes with every modifier. A form that `ptxas` takes and that is missing here is refused by
name when the module is loaded.

| instruction | types | modifiers |
|---|---|---|
{instructions}

Calls, branches and `ret`, `exit` and `trap` work as well. These are refused by name: textures and surfaces, tensor cores
(`mma`, `wmma`, `ldmatrix`), asynchronous copies, `mbarrier` and clusters.

Instructions across a warp, such as `vote.sync` and `redux.sync`, take the lanes of their member mask that meet at the same
place in the program. If the lanes of a mask execute them at different places, each place has a result of its own. A lane
that its mask leaves out is on its own; a GPU may report an illegal instruction.

## Limits

No text makes the software device wait or allocate beyond these limits. They lie far above what compilers write. A refusal
names the limit and its value, in the log of the JIT. The limits of the other readers of foreign bytes stand here too. All of
them are in `broker/shared/limits/limits.hpp`.

| limit | most | what it counts | what to do |
|---|---|---|---|
{limits}

`process_memory` and `process_steps` count all modules of a process. Modules that are linked into one count as one.

A declaration of registers takes nothing until a register is named. A variable takes the device's memory, and the machine's
where something uses it. Its initial values take what the text has of them.

## Driver functions

The software device exports every public function of the driver of CUDA 13.0. Those in the last column answer
`CUDA_ERROR_NOT_SUPPORTED`. `CUDA_LOG_FILE=stderr` shows which of them a program calls.

| group | works | does not |
|---|---|---|
{functions}
"""


def rows_of_limits():
    """The table of limits.hpp, in the order of the file."""
    header = (pathlib.Path(__file__).parents[2] / "broker/shared/limits/limits.hpp").read_text(encoding="ascii")
    units = {"kib": 1024, "mib": 1024**2, "gib": 1024**3}
    rows = []
    for name, most, words in re.findall(r"Limit \w+\{\s*\"(\w+)\",\s*([^,]+),([^}]+)\}", header):
        counted, remedy = re.findall(r'"([^"]*)"', re.sub(r'"\s*"', "", words))
        most = eval(most.replace("'", "_"), {"__builtins__": {}}, units)  # pylint: disable=eval-used
        rows.append(f"| `{name}` | {most} | {counted} | {remedy} |")
    return rows


def page(library, taken):
    """The text of docs/software_device.md."""
    types, modifiers = {}, {}
    for form in taken:
        opcode, *parts = form.split(" ")[0].rstrip(";").split(".")
        is_type = lambda part: part in TYPES or part == "tf32"
        types.setdefault(opcode, {}).update({part: 0 for part in parts if is_type(part)})
        modifiers.setdefault(opcode, {}).update({part: 0 for part in parts if not is_type(part)})
    code = lambda names: " ".join(f"`{name}`" for name in names)
    instructions = [f"| `{opcode}` | {code(types[opcode])} | {code('.' + m for m in modifiers[opcode])} |"
                    for opcode in sorted(types)]
    # nm sorts as the locale says.
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    groups = {}
    for kind, name in re.findall(r" ([TW]) (cu[A-Z]\w+)$", listing, re.MULTILINE):
        base = re.sub(r"(_v\d+)?(_pts[z]|_ptds)?$", "", name)
        group = re.match(r"cu([A-Z][a-z]+|GL|EGL|VDPAU|D3D\w*)", base)[1]
        groups.setdefault(group, ({}, {}))[kind == "W"][base] = 0
    functions = []
    for group, (works, does_not) in sorted(groups.items()):
        functions.append(f"| {group} | {code(works)} | {code(n for n in does_not if n not in works)} |")
    text = PAGE.format(instructions="\n".join(instructions), functions="\n".join(functions),
                       limits="\n".join(rows_of_limits()))
    return re.sub(r" +\|", " |", text)


class Device:
    def __init__(self, library, compute):
        os.environ["CTXBROKER_SOFTWARE_COMPUTE"] = compute
        self.library = ctypes.CDLL(library)
        context, device = ctypes.c_void_p(), ctypes.c_int()
        for call in (lambda: self.library.cuInit(0),
                     lambda: self.library.cuDeviceGet(ctypes.byref(device), 0),
                     lambda: self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
                     lambda: self.library.cuCtxPushCurrent_v2(context)):
            status = call()
            if status != 0:
                sys.exit(f"the software device does not start: status {status}")

    def refuses(self, text):
        """Its message; or None."""
        log, module = ctypes.create_string_buffer(512), ctypes.c_void_p()
        options = (ctypes.c_int * 2)(5, 6)  # the error log and its size
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        status = self.library.cuModuleLoadDataEx(ctypes.byref(module), text.encode() + b"\0", 2,
                                                 options, values)
        if status == 0:
            self.library.cuModuleUnload(module)
            return None
        return log.value.decode().strip() or f"status {status}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    ptxas, library = sys.argv[1:3]
    forms = list(dict.fromkeys(text for form in FORMS for text in expanded(form)))
    if "--list" in sys.argv:
        print("\n".join(forms))
        return 0
    device = Device(library, "9.0")
    differences = known = 0
    ours_of = {}
    for target in TARGETS:
        refused = {}
        for at in range(0, len(forms), 2000):
            refused.update(refused_by_ptxas(ptxas, forms[at:at + 2000], target))
        taken_by_both, ours_of[target] = 0, []
        for form in forms:
            ours = device.refuses(head(target) + form + "\nret;\n}\n")
            theirs = refused.get(form)
            if ours is None:
                ours_of[target].append(form)
            if ours is None and theirs is None:
                taken_by_both += 1
            elif ours is not None and theirs is None and KNOWN.match(form):
                known += 1
            elif (ours is None) != (theirs is None):
                differences += 1
                who = "only the software device" if ours is None else "only ptxas"
                print(f"sm_{target}: {form:50} {who} takes it: {theirs or ours}")
        print(f"sm_{target}: {len(forms)} forms, {taken_by_both} taken by both")
    print(f"{known} differences are known, {differences} are new")
    if sys.argv[3:4] in (["--page"], ["--write-page"]):
        text = page(library, ours_of[90])
        if sys.argv[3] == "--write-page":
            with open(sys.argv[4], "w", encoding="ascii") as file:
                file.write(text)
        elif open(sys.argv[4], encoding="ascii").read() != text:
            print(f"{sys.argv[4]} is not what the software device has; write it again with --write-page")
            differences += 1
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
