# SPDX-License-Identifier: Apache-2.0
"""Random PTX programs, for random_ptx.py: each is made from its seed alone."""
import random
import re

THREADS, BLOCKS = 64, 2
WORDS = 24  # 64-bit words of input, and of output, for each thread
TARGET, VERSION = "sm_75", "7.0"

# Kind of a register: its prefix, how many there are, and its PTX type for moves.
KINDS = {"r": (8, "b32"), "d": (4, "b64"), "f": (5, "f32"), "g": (3, "f64"), "h": (4, "b16"),
         "k": (3, "b32"), "p": (4, "pred")}
ROUND = ["rn", "rz", "rm", "rp"]
COMPARE = "eq ne lt le gt ge".split()
FLOAT_COMPARE = COMPARE + "equ neu ltu leu gtu geu num nan".split()


class Program:
    """The text of one kernel."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.labels = 0
        self.seed = seed

    def text(self):
        self.lines = []
        self.statements(self.random.randint(12, 40), depth=0, mask="-1")
        return self.with_lines(self.lines)

    def with_lines(self, lines):
        return "\n".join(self.head() + lines + self.tail())

    def head(self):
        lines = [f".visible .entry k{self.seed}(.param .u64 from, .param .u64 to)", "{"]
        for kind, (count, of) in KINDS.items():
            lines.append(f".reg .{of} %{kind}<{count}>;")
        lines += [".reg .b32 %n<16>;", ".reg .b64 %a<4>;", ".reg .pred %q<40>;", ".reg .b32 %m<40>;",
                  ".reg .b32 %c<40>;",
                  "mov.u32 %n0, %ctaid.x;", "mov.u32 %n1, %tid.x;",
                  f"mad.lo.u32 %n0, %n0, {THREADS}, %n1;", "mov.u32 %n2, %laneid;",
                  "ld.param.u64 %a0, [from];", "ld.param.u64 %a1, [to];",
                  f"mul.wide.u32 %a2, %n0, {8 * WORDS};", "add.s64 %a0, %a0, %a2;",
                  "add.s64 %a1, %a1, %a2;"]
        word = 0
        for kind, (count, of) in KINDS.items():
            for index in range(count):
                if kind == "p":
                    lines += [f"ld.global.u32 %n3, [%a0+{8 * (word % WORDS)}];",
                              f"and.b32 %n3, %n3, {1 << index};",
                              f"setp.ne.u32 %p{index}, %n3, 0;"]
                else:
                    lines.append(f"ld.global.{of} %{kind}{index}, [%a0+{8 * (word % WORDS)}];")
                word += 1
        return lines

    def tail(self):
        # Two registers of 32 bits or four of 16 in a word.
        lines, at = [], 0
        for kind, (count, of) in KINDS.items():
            size = {"b64": 8, "f64": 8, "b16": 2}.get(of, 4)
            at = (at + size - 1) // size * size
            for index in range(count):
                name = f"%{kind}{index}"
                if kind == "p":
                    lines.append(f"selp.u32 %n3, 1, 0, {name};")
                    name, of = "%n3", "u32"
                elif kind in "fg":
                    lines += self.one_nan(name, of)
                lines.append(f"st.global.{of} [%a1+{at}], {name};")
                at += size
        assert at <= 8 * WORDS
        return lines + ["ret;", "}"]

    # Makes every NaN in a register the same one.
    @staticmethod
    def one_nan(name, of):
        nan = "0f7FFFFFFF" if of == "f32" else "0dFFF8000000000000"
        return [f"testp.notanumber.{of} %q37, {name};", f"selp.{of} {name}, {nan}, {name}, %q37;"]

    def reg(self, kind):
        return f"%{kind}{self.random.randrange(KINDS[kind][0])}"

    def one(self, *choices):
        return self.random.choice(choices)

    def maybe(self, text):
        return text if self.random.random() < 0.3 else ""

    # Even without optimisation, ptxas of CUDA 13.0 drops the guard of testp, and overwrites 16 bits of
    # a register that a guarded set.u32.s16 should leave alone.
    def emit(self, text):
        guard = ""
        if self.random.random() < 0.08 and not re.match(r"testp|set\..*16 ", text):
            guard = f"@{self.one('', '!')}{self.reg('p')} "
        self.lines.append(guard + text + ";")

    def statements(self, count, depth, mask):
        for _ in range(count):
            draw = self.random.random()
            if draw < 0.06 and depth < 3:
                self.branch(depth, mask)
            elif draw < 0.10 and depth < 2:
                self.loop(depth)
            elif draw < 0.16 and mask is not None:
                self.exchange(mask)
            else:
                self.random.choice([self.integer, self.integer, self.wide, self.bits, self.float,
                                    self.float, self.double, self.half, self.convert, self.compare,
                                    self.carry, self.select])()

    # Lanes part here, and meet again behind it. Inside, those that are there have said so before.
    def branch(self, depth, mask):
        label = self.labels
        self.labels += 1
        there, lanes, others = f"%q{label}", f"%m{label}", f"%c{label}"
        self.lines.append(f"mov.pred {there}, {self.reg('p')};")
        inner = outer = None
        if mask is not None:
            self.lines.append(f"vote.sync.ballot.b32 {lanes}, {there}, {mask};")
            self.lines.append(f"not.b32 {others}, {lanes};")
            self.lines.append(f"and.b32 {others}, {others}, {mask};")
            inner, outer = lanes, others
        self.lines.append(f"@!{there} bra $E{label};")
        self.statements(self.random.randint(1, 6), depth + 1, inner)
        self.lines.append(f"bra $D{label};")
        self.lines.append(f"$E{label}:")
        if self.random.random() < 0.6:
            self.statements(self.random.randint(1, 5), depth + 1, outer)
        self.lines.append(f"$D{label}:")

    # As often as the thread's own number says.
    def loop(self, depth):
        label = self.labels
        self.labels += 1
        self.lines += [f"and.b32 %m{label}, {self.reg('r')}, 3;", f"$L{label}:"]
        self.statements(self.random.randint(1, 5), depth + 1, None)
        self.lines += [f"sub.u32 %m{label}, %m{label}, 1;",
                       f"setp.ge.s32 %q{label}, %m{label}, 0;", f"@%q{label} bra $L{label};"]

    # Divides the lanes of a mask into groups, and returns the register in which each lane has its own.
    def part_of(self, mask):
        line = self.lines.append
        kind = self.random.randrange(3)
        if kind == 0:  # neighbours
            size = self.one(1, 2, 4, 8, 16)
            line(f"and.b32 %n11, %n2, {32 - size};")
            line(f"mov.b32 %n10, {(1 << size) - 1};")
            line("shl.b32 %n10, %n10, %n11;")
            line(f"and.b32 %n10, %n10, {mask};")
        elif kind == 1:  # for which a predicate is true, and the others
            there = self.reg("p")
            line(f"vote.sync.ballot.b32 %n10, {there}, {mask};")
            line("not.b32 %n11, %n10;")
            line(f"and.b32 %n11, %n11, {mask};")
            line(f"selp.b32 %n10, %n10, %n11, {there};")
        else:  # with the same two bits
            line(f"and.b32 %n11, {self.reg('r')}, 3;")
            line(f"match.any.sync.b32 %n10, %n11, {mask};")
        return "%n10"

    # Between the lanes of a mask. What comes from another lane counts only if that lane takes part.
    def exchange(self, mask):
        if self.random.random() < 0.5:
            mask = self.part_of(mask)
        to, source = self.reg("r"), self.reg("r")
        kind = self.random.randrange(5)
        line = self.lines.append
        if kind == 0:
            line(f"vote.sync.ballot.b32 {to}, {self.one('', '!')}{self.reg('p')}, {mask};")
        elif kind == 1:
            line(f"vote.sync.{self.one('any', 'all', 'uni')}.pred {self.reg('p')}, "
                 f"{self.reg('p')}, {mask};")
        elif kind == 2:
            line(f"match.any.sync.b32 {to}, {source}, {mask};")
        elif kind == 3:  # from the first lane of the mask
            line(f"mov.b32 %n4, {mask};")
            line("brev.b32 %n4, %n4;")
            line("clz.b32 %n4, %n4;")
            line(f"shfl.sync.idx.b32 {to}, {source}, %n4, 31, {mask};")
        else:
            mode, by = self.one("bfly", "up", "down"), self.random.randint(1, 31)
            clamp = 0 if mode == "up" else 31
            line(f"shfl.sync.{mode}.b32 %n5|%q39, {source}, {by}, {clamp}, {mask};")
            partner = {"bfly": "xor.b32", "up": "sub.s32", "down": "add.s32"}[mode]
            line(f"{partner} %n6, %n2, {by};")
            line("min.u32 %n6, %n6, 32;")
            line(f"mov.b32 %n7, {mask};")
            line("shr.u32 %n7, %n7, %n6;")
            line("and.b32 %n7, %n7, 1;")
            line("setp.eq.u32 %q38, %n7, 1;")
            line("and.pred %q38, %q38, %q39;")
            line(f"selp.b32 {to}, %n5, {source}, %q38;")

    def value(self, kind):
        if self.random.random() < 0.15 and kind in "rd":
            return str(self.random.choice([0, 1, -1, 2, 31, 32, 255, 65535, -32768,
                                           self.random.getrandbits(31)]))
        return self.reg(kind)

    def integer(self):
        s, v = self.reg, self.value
        self.emit(self.random.choice([
            lambda: f"{self.one('add', 'sub')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {v('r')}",
            lambda: f"{self.one('add', 'sub')}.sat.s32 {s('r')}, {s('r')}, {v('r')}",
            lambda: f"mul.{self.one('lo', 'hi')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {v('r')}",
            lambda: f"mad.{self.one('lo', 'hi')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {v('r')}, {s('r')}",
            lambda: f"mad.hi.sat.s32 {s('r')}, {s('r')}, {s('r')}, {s('r')}",
            lambda: f"mul24.{self.one('lo', 'hi')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {s('r')}",
            lambda: f"{self.one('min', 'max')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {v('r')}",
            lambda: f"sad.{self.one('u32', 's32')} {s('r')}, {s('r')}, {s('r')}, {s('r')}",
            lambda: f"{self.one('abs', 'neg')}.s32 {s('r')}, {s('r')}",
            lambda: f"dp4a.{self.one('u32', 's32')}.{self.one('u32', 's32')} {s('r')}, {s('r')}, {s('r')}, {s('r')}",
            lambda: f"{self.one('add', 'sub', 'mul.lo', 'min', 'max')}.{self.one('u16', 's16')} {s('h')}, {s('h')}, {s('h')}",
            lambda: self.divide("r", self.one("u32", "s32")),
        ])())

    # Never by zero, whose result PTX leaves open.
    def divide(self, kind, of):
        helper = "%n8" if kind == "r" else "%a3"
        self.lines.append(f"or.b{of[1:]} {helper}, {self.reg(kind)}, 1;")
        return f"{self.one('div', 'rem')}.{of} {self.reg(kind)}, {self.reg(kind)}, {helper}"

    def wide(self):
        s, v = self.reg, self.value
        self.emit(self.random.choice([
            lambda: f"{self.one('add', 'sub')}.{self.one('u64', 's64')} {s('d')}, {s('d')}, {v('d')}",
            lambda: f"mul.{self.one('lo', 'hi')}.{self.one('u64', 's64')} {s('d')}, {s('d')}, {s('d')}",
            lambda: f"mul.wide.{self.one('u32', 's32')} {s('d')}, {s('r')}, {v('r')}",
            lambda: f"mad.wide.{self.one('u32', 's32')} {s('d')}, {s('r')}, {s('r')}, {s('d')}",
            lambda: f"mad.lo.s64 {s('d')}, {s('d')}, {s('d')}, {s('d')}",
            lambda: f"{self.one('min', 'max')}.{self.one('u64', 's64')} {s('d')}, {s('d')}, {v('d')}",
            lambda: f"{self.one('shl.b64', 'shr.u64', 'shr.s64')} {s('d')}, {s('d')}, {v('r')}",
            lambda: f"{self.one('and', 'or', 'xor')}.b64 {s('d')}, {s('d')}, {v('d')}",
            lambda: f"{self.one('popc', 'clz')}.b64 {s('r')}, {s('d')}",
            lambda: f"brev.b64 {s('d')}, {s('d')}",
            lambda: f"mov.b64 {s('d')}, {{{s('r')}, {s('r')}}}",
            lambda: f"mov.b64 {{{s('r')}, %n9}}, {s('d')}",
            lambda: self.divide("d", self.one("u64", "s64")),
        ])())

    def bits(self):
        s, v = self.reg, self.value
        self.emit(self.random.choice([
            lambda: f"{self.one('and', 'or', 'xor')}.b32 {s('r')}, {s('r')}, {v('r')}",
            lambda: f"{self.one('not', 'cnot', 'brev')}.b32 {s('r')}, {s('r')}",
            lambda: f"{self.one('shl.b32', 'shr.u32', 'shr.s32')} {s('r')}, {s('r')}, {v('r')}",
            lambda: f"shf.{self.one('l', 'r')}.{self.one('wrap', 'clamp')}.b32 {s('r')}, {s('r')}, {s('r')}, {v('r')}",
            lambda: f"{self.one('popc', 'clz')}.b32 {s('r')}, {s('r')}",
            lambda: f"bfind{self.maybe('.shiftamt')}.{self.one('u32', 's32')} {s('r')}, {s('r')}",
            lambda: f"bfe.{self.one('u32', 's32')} {s('r')}, {s('r')}, {s('r')}, {self.random.randrange(64)}",
            lambda: f"bfi.b32 {s('r')}, {s('r')}, {s('r')}, {s('r')}, {self.random.randrange(64)}",
            lambda: f"prmt.b32{self.one('', '', '.f4e', '.b4e', '.rc8', '.ecl', '.ecr', '.rc16')} {s('r')}, {s('r')}, {s('r')}, {v('r')}",
            lambda: f"lop3.b32 {s('r')}, {s('r')}, {s('r')}, {s('r')}, {self.random.randrange(256)}",
            lambda: f"{self.one('and', 'or', 'xor')}.pred {s('p')}, {s('p')}, {s('p')}",
            lambda: f"not.pred {s('p')}, {s('p')}",
        ])())

    def float(self):
        s = self.reg
        ftz, sat = self.maybe(".ftz"), self.maybe(".sat")
        self.emit(self.random.choice([
            lambda: f"{self.one('add', 'sub', 'mul')}.{self.one(*ROUND)}{ftz}{sat}.f32 {s('f')}, {s('f')}, {s('f')}",
            lambda: f"fma.{self.one(*ROUND)}{ftz}{sat}.f32 {s('f')}, {s('f')}, {s('f')}, {s('f')}",
            lambda: f"div.{self.one(*ROUND)}{ftz}.f32 {s('f')}, {s('f')}, {s('f')}",
            lambda: f"{self.one('rcp', 'sqrt')}.{self.one(*ROUND)}{ftz}.f32 {s('f')}, {s('f')}",
            lambda: f"{self.one('min', 'max')}{ftz}.f32 {s('f')}, {s('f')}, {s('f')}",
            lambda: f"{self.one('abs', 'neg')}{ftz}.f32 {s('f')}, {s('f')}",
            lambda: f"testp.{self.one('finite', 'infinite', 'number', 'notanumber', 'normal', 'subnormal')}.f32 {s('p')}, {s('f')}",
            lambda: f"mov.f32 {s('f')}, 0f{self.random.getrandbits(32):08X}",
        ])())

    def double(self):
        s = self.reg
        self.emit(self.random.choice([
            lambda: f"{self.one('add', 'sub', 'mul')}.{self.one(*ROUND)}.f64 {s('g')}, {s('g')}, {s('g')}",
            lambda: f"fma.{self.one(*ROUND)}.f64 {s('g')}, {s('g')}, {s('g')}, {s('g')}",
            lambda: f"div.{self.one(*ROUND)}.f64 {s('g')}, {s('g')}, {s('g')}",
            lambda: f"{self.one('rcp', 'sqrt')}.{self.one(*ROUND)}.f64 {s('g')}, {s('g')}",
            lambda: f"{self.one('min', 'max')}.f64 {s('g')}, {s('g')}, {s('g')}",
            lambda: f"{self.one('abs', 'neg')}.f64 {s('g')}, {s('g')}",
        ])())

    def half(self):
        s = self.reg
        kind, of = self.one(("h", "f16"), ("k", "f16x2"))
        ftz, sat = self.maybe(".ftz"), self.maybe(".sat")
        self.emit(self.random.choice([
            lambda: f"{self.one('add', 'sub', 'mul')}.rn{ftz}{sat}.{of} {s(kind)}, {s(kind)}, {s(kind)}",
            lambda: f"fma.rn{ftz}{sat}.{of} {s(kind)}, {s(kind)}, {s(kind)}, {s(kind)}",
            lambda: f"neg{ftz}.{of} {s(kind)}, {s(kind)}",
            lambda: f"abs.{of} {s(kind)}, {s(kind)}",
            lambda: f"setp.{self.one(*FLOAT_COMPARE)}{ftz}.f16 {s('p')}, {s('h')}, {s('h')}",
            lambda: f"mov.b32 {s('k')}, {{{s('h')}, {s('h')}}}",
            lambda: f"mov.b32 {s('k')}, {s('r')}",
        ])())

    def convert(self):
        s = self.reg
        integer = lambda: self.one(("r", "u32"), ("r", "s32"), ("d", "u64"), ("d", "s64"), ("h", "s16"), ("h", "u16"))
        real = lambda: self.one(("f", "f32"), ("g", "f64"))

        def from_integer():
            (a, to), (b, of) = real(), integer()
            return f"cvt.{self.one(*ROUND)}.{to}.{of} {s(a)}, {s(b)}"

        def to_integer():
            (a, to), (b, of) = integer(), real()
            ftz = self.maybe(".ftz") if of == "f32" else ""
            return f"cvt.{self.one('rni', 'rzi', 'rmi', 'rpi')}{ftz}.{to}.{of} {s(a)}, {s(b)}"

        def between_integers():
            (a, to), (b, of) = integer(), integer()
            fits = int(to[1:]) >= int(of[1:]) + (to[0] != of[0]) and to[0] <= of[0]
            return f"cvt{'' if fits else self.maybe('.sat')}.{to}.{of} {s(a)}, {s(b)}"

        self.emit(self.random.choice([
            from_integer, to_integer, between_integers,
            lambda: f"cvt.{self.one(*ROUND)}.f32.f64 {s('f')}, {s('g')}",
            lambda: f"cvt.f64.f32 {s('g')}, {s('f')}",
            lambda: f"cvt.{self.one('rni', 'rzi', 'rmi', 'rpi')}.f32.f32 {s('f')}, {s('f')}",
            lambda: f"cvt.rn.f16.f32 {s('h')}, {s('f')}",
            lambda: f"cvt.f32.f16 {s('f')}, {s('h')}",
            lambda: f"cvt.rn.f16.{self.one('s32', 'u32')} {s('h')}, {s('r')}",
            lambda: f"cvt.{self.one('rni', 'rzi')}.s32.f16 {s('r')}, {s('h')}",
            lambda: self.bits_of("f", "f32", "mov.b32 {0}, {1}"),
            lambda: self.bits_of("f", "f32", "copysign.f32 %f0, {1}, %f0"),
            lambda: f"mov.b32 {s('f')}, {s('r')}",
            lambda: self.bits_of("g", "f64", "mov.b64 {0}, {1}"),
            lambda: f"mov.b64 {s('g')}, {s('d')}",
        ])())

    def bits_of(self, kind, of, instruction):
        source = self.reg(kind)
        self.lines += self.one_nan(source, of)
        return instruction.format(self.reg({"f": "r", "g": "d"}[kind]), source)

    def compare(self):
        s = self.reg
        kind, of = self.one(("r", "u32"), ("r", "s32"), ("d", "u64"), ("d", "s64"), ("h", "s16"),
                            ("f", "f32"), ("g", "f64"))
        how = self.one(*(FLOAT_COMPARE if of[0] == "f" else COMPARE))
        self.emit(self.random.choice([
            lambda: f"setp.{how}.{of} {s('p')}, {s(kind)}, {s(kind)}",
            lambda: f"setp.{how}.{self.one('and', 'or', 'xor')}.{of} {s('p')}, {s(kind)}, {s(kind)}, {s('p')}",
            lambda: f"set.{how}.u32.{of} {s('r')}, {s(kind)}, {s(kind)}",
        ])())

    # One instruction after the other, because nothing says what others do to the carry.
    def carry(self):
        s = self.reg
        first = self.random.choice([
            lambda: f"{self.one('add', 'sub')}.cc.u32 {s('r')}, {s('r')}, {s('r')}",
            lambda: f"mad.{self.one('lo', 'hi')}.cc.u32 {s('r')}, {s('r')}, {s('r')}, {s('r')}"])
        middle = lambda end: self.random.choice([
            lambda: f"{self.one('addc', 'subc')}{end}.u32 {s('r')}, {s('r')}, {s('r')}",
            lambda: f"madc.{self.one('lo', 'hi')}{end}.u32 {s('r')}, {s('r')}, {s('r')}, {s('r')}"])()
        chain = [first()] + [middle(".cc") for _ in range(self.random.randrange(3))] + [middle("")]
        self.lines += [line + ";" for line in chain]

    def select(self):
        s = self.reg
        kind, of = self.one(("r", "b32"), ("d", "b64"), ("f", "f32"), ("g", "f64"), ("h", "b16"))
        self.emit(f"selp.{of} {s(kind)}, {s(kind)}, {s(kind)}, {s('p')}")


def head():
    return f".version {VERSION}\n.target {TARGET}\n.address_size 64\n"
