# SPDX-License-Identifier: Apache-2.0
"""The annotations hold. Skipped without mypy."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ctxbroker

PACKAGE = pathlib.Path(ctxbroker.__file__).parent

USES = """
import ctxbroker
from typing_extensions import assert_type

with ctxbroker.open(driver="software", policy={"by_id": {}}) as broker:
    assert_type(broker, ctxbroker.Broker)
    tenant = broker.tenant("one", lease="green:16", on_loss=lambda loss: print(loss.text))
    with tenant as inside:
        assert_type(inside, ctxbroker.Tenant)
    assert_type(tenant.run(len, "text"), int)
    broker.tenant(1)  # wrong
"""


class TypingTest(unittest.TestCase):
    def setUp(self) -> None:
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")

    def mypy(self, *words: str) -> str:
        # mypy looks among the installed packages, and in MYPYPATH for those of a build folder.
        where = dict(os.environ, MYPYPATH=os.environ.get("PYTHONPATH", ""))
        command = [sys.executable, "-m", "mypy", "--strict", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=where)
        return done.stdout + done.stderr

    def test_package_is_strictly_typed(self) -> None:
        self.assertTrue((PACKAGE / "py.typed").exists())
        self.assertIn("Success", self.mypy("-p", "ctxbroker"))

    def test_users_see_the_types(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "uses.py"
            file.write_text(USES)
            said = self.mypy(str(file))
        self.assertIn('Argument 1 to "tenant" of "Broker" has incompatible type "int"; expected "str"', said)
        self.assertIn("Found 1 error", said)


if __name__ == "__main__":
    unittest.main()
