# SPDX-License-Identifier: Apache-2.0
"""_api.py says what the C headers say. Needs this repository and a C compiler."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from typing import Any, Dict, List

import ctxbroker
from ctxbroker import _api, _errors
from support import SOURCE

HEADERS = ["host.h", "host_memory.h", "host_diagnosis.h", "host_records.h", "host_scan.h"]
FOLDERS = [SOURCE / "plugin_sdk" / "include", SOURCE / "broker" / "include"]


def texts() -> Dict[str, str]:
    """The headers without comments."""
    found = {}
    for header in HEADERS:
        file = FOLDERS[1] / "ctxbroker" / header
        if not file.exists():
            raise unittest.SkipTest(f"{file} is missing")
        found[header] = re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read_text(), flags=re.S)
    return found


class ApiTest(unittest.TestCase):
    def evaluate(self, expressions: List[str]) -> List[int]:
        """Returns the values of expressions of C."""
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        texts()
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "a.c", pathlib.Path(folder) / "a"
            source.write_text(
                "\n".join(
                    [
                        "#include <stddef.h>",
                        "#include <stdio.h>",
                        *(f'#include "ctxbroker/{header}"' for header in HEADERS),
                        "int main(void) {",
                        *(f'printf("%lld\\n", (long long)({one}));' for one in expressions),
                        "return 0; }",
                    ]
                )
            )
            includes = [f"-I{one}" for one in FOLDERS]
            subprocess.run([compiler, "-std=c11", *includes, str(source), "-o", str(program)], check=True)
            said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        return [int(line) for line in said.splitlines()]

    def test_structs_have_the_layout_of_the_headers(self) -> None:
        expressions, expected = [], []
        for struct in _api.STRUCTS:
            name = getattr(struct, "c_name")
            expressions.append(f"sizeof({name})")
            expected.append((name, ctypes.sizeof(struct)))
            for member, *_ in struct._fields_:
                expressions.append(f"offsetof({name}, {member}) * 1000 + sizeof((({name}*)0)->{member})")
                field = getattr(struct, member)
                expected.append((f"{name}.{member}", field.offset * 1000 + field.size))
        measured = self.evaluate(expressions)
        self.assertEqual([(name, value) for (name, _), value in zip(expected, measured)], expected)

    def test_structs_have_all_members_of_the_headers(self) -> None:
        whole = "\n".join(texts().values())
        for struct in _api.STRUCTS:
            name = getattr(struct, "c_name")
            match = re.search(rf"struct {name} \{{(.*?)\}} {name};", whole, flags=re.S)
            assert match is not None, name
            members = re.findall(r"(\w+)(?:\[\d+\])?\s*;", match.group(1))
            self.assertEqual([member for member, *_ in struct._fields_], members, name)

    def test_constants_are_those_of_the_headers(self) -> None:
        expected: Dict[str, int] = {"CTXB_OK": _api.OK, "CTXB_AGAIN": _api.AGAIN, "CTXB_ERROR": _api.ERROR}
        for prefix, names in [
            ("CTXB_LEASE_", _api.LEASES),
            ("CTXB_STATE_", _api.STATES),
            ("CTXB_MEMORY_", _api.MEMORY_SOURCES),
            ("CTXB_LOSS_", _api.LOSSES),
            ("CTXB_LOG_", _api.SEVERITIES),
            ("CTXB_DRIVER_", _api.DRIVERS),
            ("CTXB_GATE_", _api.GATES),
            ("CTXB_ADOPT_", _api.ADOPTS),
        ]:
            expected.update({prefix + name.upper(): value for name, value in names.items()})
        measured = self.evaluate(list(expected))
        self.assertEqual(dict(zip(expected, measured)), expected)

    def test_each_error_status_has_a_class(self) -> None:
        text = (FOLDERS[0] / "ctxbroker" / "plugin.h")
        if not text.exists():
            self.skipTest(f"{text} is missing")
        statuses = [int(number) for number in re.findall(r"#define CTXB_ERROR\w* \((-\d+)\)", text.read_text())]
        self.assertEqual(sorted(statuses), sorted(_errors._BY_STATUS))
        for status, one in _errors._BY_STATUS.items():
            self.assertTrue(issubclass(one, ctxbroker.Error))
            self.assertEqual(_errors.error_of(status, "text").status, status)
        self.assertEqual(_errors.error_of(-99, "").status, -99)

    def test_functions_have_the_types_of_the_headers(self) -> None:
        declarations = re.findall(
            r"CTXB_EXPORT\s+([^;{}]*?)\b(ctxb_\w+)\s*\(([^;{}]*)\)\s*;", "\n".join(texts().values())
        )
        found = {name: (result.strip(), arguments) for result, name, arguments in declarations}
        for name, (result, parameters) in _api.FUNCTIONS.items():
            with self.subTest(name):
                c_result, c_parameters = found[name]
                self.assertEqual(kind_of_type(result), kind_of_text(c_result))
                words = [] if c_parameters.strip() == "void" else c_parameters.split(",")
                self.assertEqual([kind_of_type(one) for one in parameters], [kind_of_text(one) for one in words])


def kind_of_type(of: Any) -> str:
    if of is None:
        return "nothing"
    if of in (_api.TextFunction, _api.RunningFunction, _api.LossFunction):
        return "pointer"
    return {
        ctypes.c_char_p: "text",
        ctypes.c_void_p: "pointer",
        ctypes.c_int32: "int32",
        ctypes.c_uint32: "uint32",
        ctypes.c_uint64: "uint64",
    }[of]


def kind_of_text(text: str) -> str:
    text = " ".join(text.replace("*", " * ").split())
    if re.match(r"const char \*( \w+)?$", text):
        return "text"
    if "*" in text or re.match(r"ctxb_\w+_function", text):
        return "pointer"
    for word, kind in [
        ("ctxb_status", "int32"),
        ("int32_t", "int32"),
        ("uint32_t", "uint32"),
        ("uint64_t", "uint64"),
        ("void", "nothing"),
    ]:
        if text.split()[0] == word:
            return kind
    raise AssertionError(text)


if __name__ == "__main__":
    unittest.main()
