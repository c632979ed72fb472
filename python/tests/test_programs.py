# SPDX-License-Identifier: Apache-2.0
"""`python -m ctxbroker` and the console script ctxb-run."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ctxbroker import _files, _programs
from support import fixture


def program(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ctxbroker", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


class RunTest(unittest.TestCase):
    def test_options_end_at_the_script(self) -> None:
        for words, options, script in [
            (["a.py"], [], ["a.py"]),
            (["--each", "a.py", "--each"], ["--each"], ["a.py", "--each"]),
            (["--policy", "p.json", "a.py"], ["--policy", "p.json"], ["a.py"]),
            (["--policy=p.json", "-v", "a.py"], ["--policy=p.json", "-v"], ["a.py"]),
            (["--tenant", "torch=*/torch/*@green", "-m", "pkg", "x"], ["--tenant", "torch=*/torch/*@green"], ["-m", "pkg", "x"]),
            (["--each", "-c", "print(1)"], ["--each"], ["-c", "print(1)"]),
            (["--each", "--", "-x.py"], ["--each"], ["-x.py"]),
            (["--help"], ["--help"], []),
            (["-"], [], ["-"]),
            ([], [], []),
        ]:
            with self.subTest(words):
                self.assertEqual(_programs.split(words), (options, script))

    def test_all_options_of_ctxb_run_with_a_value_are_known(self) -> None:
        """`split` must know them. Skipped where ctxb-run is not in the package."""
        file = _files.home() / "bin" / "ctxb-run"
        if not file.exists():
            self.skipTest(f"{file} is missing")
        said = subprocess.run([str(file), "--help"], capture_output=True, text=True, check=True).stdout
        found = {line.split()[0].rstrip(",") for line in said.splitlines() if line.strip().startswith("--")}
        with_value = {
            line.split()[0]
            for line in said.splitlines()
            if line.strip().startswith("--") and len(line.split()) > 1 and line.split()[1].isupper() or "yes|no" in line
        }
        self.assertLessEqual(_programs._WITH_VALUE, found)
        self.assertEqual({one for one in with_value if one.startswith("--")}, _programs._WITH_VALUE)

    def test_ctxb_run_gets_this_python_and_the_script(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            (home / "bin").mkdir()
            fake = home / "bin" / "ctxb-run"
            fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
            fake.chmod(0o755)
            done = program("run", "--policy", "p.json", "a.py", "b", CTXBROKER_HOME=folder)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertEqual(done.stdout.splitlines(), ["--policy", "p.json", "--", sys.executable, "a.py", "b"])
            self.assertEqual(program("run", CTXBROKER_HOME=folder).stdout, "--help\n")
            self.assertEqual(program("run", "--version", CTXBROKER_HOME=folder).stdout, "--version\n")
            fake.chmod(0o644)
            done = program("run", "a.py", CTXBROKER_HOME=folder)
            self.assertEqual(done.returncode, 125)
            self.assertIn("cannot be started", done.stderr)

    def test_missing_ctxb_run_is_told_and_nothing_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = program("run", "-c", "print('ran')", CTXBROKER_HOME=folder)
            self.assertEqual((done.returncode, done.stdout), (125, ""))
            self.assertIn("ctxb-run is missing", done.stderr)

    def needs_ctxb_run(self) -> None:
        if not (_files.home() / "bin" / "ctxb-run").exists():
            self.skipTest("ctxb-run is not in this package")

    def test_script_runs_with_the_gate_under_each_name_of_the_driver(self) -> None:
        self.needs_ctxb_run()
        code = """if True:
            import ctypes
            for name in ("libcuda.so.1", "libcuda.so"):
                print(hasattr(ctypes.CDLL(name), "ctxb_gate_get"), ctypes.CDLL(name).cuInit(0))
            gates = {line.split()[-1] for line in open("/proc/self/maps") if "ctxbroker_gate.so" in line or "cuda.so.1" in line}
            print(len(gates))
        """
        done = program("run", "-c", code)
        self.assertEqual((done.returncode, done.stdout), (0, "True 0\nTrue 0\n1\n"), done.stderr)
        done = program("run", "-c", "raise SystemExit(9)")
        self.assertEqual(done.returncode, 9, done.stderr)

    def test_library_of_a_script_is_its_tenant_s_without_any_call(self) -> None:
        self.needs_ctxb_run()
        library = fixture("attacks_linked.so")
        code = """if True:
            import ctypes, sys
            library = ctypes.CDLL(sys.argv[1])
            for name in (b"leak_memory", b"release"):
                library.ctxb_test_attack(name, ctypes.create_string_buffer(256))
        """
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            tenant = ["--tenant", "bad=*/attacks_linked.so@private", "--report", str(report)]
            done = program("run", *tenant, "-c", code, library)
            self.assertEqual(done.returncode, 0, done.stderr)
            (bad,) = [one for one in json.loads(report.read_text())["tenants"] if one["name"] == "bad"]
        self.assertEqual((bad["strikes"], bad["leases"][0]["kind"]), (7, "private"), bad)
        self.assertIn("bad", done.stderr)  # the summary

    def test_script_may_open_a_broker_of_its_own(self) -> None:
        self.needs_ctxb_run()
        library = fixture("attacks_linked.so")
        code = """if True:
            import ctypes, sys, ctxbroker
            with ctxbroker.open(logger=None) as broker:
                library = ctypes.CDLL(sys.argv[1])
                library.ctxb_test_attack(b"release", ctypes.create_string_buffer(256))
                print("OWN", broker.tenant("bad").strikes, broker.gate.mode)
        """
        done = program("run", "--tenant", "bad=*/attacks_linked.so", "-c", code, library)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("OWN 8 before_driver", done.stdout)


class DoctorTest(unittest.TestCase):
    def test_driver_gate_and_devices_are_told(self) -> None:
        done = program("doctor")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("driver    software, CUDA", done.stdout)
        self.assertIn("gate      in force", done.stdout)
        self.assertRegex(done.stdout, r"device 0  .*, shielded")
        found = json.loads(program("doctor", "--json").stdout)
        self.assertEqual(found["schema"], "ctxbroker.python_doctor/1")
        self.assertTrue(found["devices"][0]["shielded"])
        self.assertTrue(found["devices"][0]["memory_pools"])
        self.assertTrue(found["devices"][0]["pinned_pools"])

    def test_machine_without_a_driver_is_told(self) -> None:
        done = program("doctor", "--driver", "software", CTXBROKER_DRIVER="nvidia")
        self.assertEqual(done.returncode, 0, done.stdout)
        with tempfile.TemporaryDirectory() as folder:
            done = program("doctor", CTXBROKER_HOME=folder)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("is missing", done.stderr)


class ListTest(unittest.TestCase):
    def test_sample_plugins_are_listed(self) -> None:
        done = program("list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("org.ctxbroker.sample.blur ", done.stdout)
        document = json.loads(program("list", "--json").stdout)
        self.assertEqual(document["schema"], "ctxbroker.scan/1")

    def test_reader_that_goes_away_is_no_crash(self) -> None:
        done = subprocess.run(
            f"'{sys.executable}' -m ctxbroker list --json | head -1", shell=True, capture_output=True, text=True
        )
        self.assertEqual(done.stdout, "{\n")
        self.assertNotIn("Traceback", done.stderr)


class CommandTest(unittest.TestCase):
    def test_usage(self) -> None:
        for words, status in [([], 2), (["--help"], 0), (["cook"], 2), (["--version"], 0)]:
            with self.subTest(words):
                done = program(*words)
                self.assertEqual(done.returncode, status)
        self.assertIn('there is no command "cook"', program("cook").stderr)


if __name__ == "__main__":
    unittest.main()
