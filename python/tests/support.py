# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the driver as everybody finds it, misbehaving libraries, and processes of their own.

CTXB_BUILD names the build folder whose test_plugins/ the tests use. Without it, those tests are skipped. The package
is the installed one, on the software device.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest
from typing import Any, Optional

import ctxbroker

os.environ["CTXBROKER_DRIVER"] = "software"
os.environ.pop("CTXBROKER_RUN", None)
TESTS = pathlib.Path(__file__).resolve().parent
SOURCE = TESTS.parent.parent


def fixture(name: str) -> str:
    """Returns a library of tests/fixtures, or skips the test."""
    build = os.environ.get("CTXB_BUILD")
    file = pathlib.Path(build or "/nowhere") / "test_plugins" / name
    if not file.exists():
        raise unittest.SkipTest(f"{file} is not built; set CTXB_BUILD to a build folder")
    return str(file)


class Driver:
    """The driver's functions, by the name that everybody uses. Open a broker first."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> int:
        """Returns the CUresult."""
        status: int = getattr(self.library, name)(*arguments)
        return status

    def current(self) -> Optional[int]:
        """Returns the calling thread's context. None: it has none."""
        context = ctypes.c_void_p()
        status = self.call("cuCtxGetCurrent", ctypes.byref(context))
        if status != 0:
            raise AssertionError(f"cuCtxGetCurrent: {status}")
        return context.value

    def write(self, address: int, data: bytes) -> int:
        return self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        status = self.call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return buffer.raw if status == 0 else b"status %d" % status


def attack_of(address: int) -> Any:
    """Returns ctxb_test_attack or one like it, which does what its argument names and returns a CUresult."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)
    target = ctypes.create_string_buffer(256)  # nobody's handles
    return lambda name: function(name.encode(), ctypes.addressof(target))


def start(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """Starts Python code in a process of its own, with these tests on its path."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


def run(code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python code in a process of its own."""
    with start(code, *arguments, **environment) as process:
        try:
            output, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


class BrokerTest(unittest.TestCase):
    """A test with an open broker."""

    options: "dict[str, Any]" = {"logger": None}

    def setUp(self) -> None:
        self.broker = ctxbroker.open(**self.options)
        self.driver = Driver()
        self.addCleanup(self._close)

    def _close(self) -> None:
        if not self.broker.closed:
            self.broker.close_all()
        self.assertIsNone(self.driver.current(), "the test has left a context")

    def context_of(self, tenant: ctxbroker.Tenant, device: int = 0) -> int:
        return tenant.lease(device).context
