# SPDX-License-Identifier: Apache-2.0
"""Opening, closing, what the broker tells, and errors."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import tempfile
import threading
import unittest
import warnings

import ctxbroker
from support import BrokerTest, run


class OpenTest(unittest.TestCase):
    def test_options_that_are_wrong_are_named(self) -> None:
        for options, text in [
            ({"driver": "amd"}, '"amd" is not a driver; use auto, nvidia or software'),
            ({"host_lease": "blue"}, '"blue" is not a lease'),
            ({"job_timeout": -1}, "job_timeout is -1"),
            ({"host_memory": "arena"}, '"arena" is not a source of memory'),
            ({"host_limits": ctxbroker.Limits(streams=0)}, "streams is 0"),
        ]:
            with self.subTest(options), self.assertRaises(ctxbroker.InvalidArgumentError) as raised:
                ctxbroker.open(**options)  # type: ignore[arg-type]
            self.assertIn(text, str(raised.exception))
            self.assertIsInstance(raised.exception, ValueError)

    def test_text_with_a_null_character_is_refused_and_not_cut(self) -> None:
        with self.assertRaisesRegex(ValueError, "null character"):
            ctxbroker.open(host_name="a\0b")

    def test_policy_may_be_a_dict_a_text_or_a_file(self) -> None:
        policy = {"by_id": {"com.example.filter": {"lease": "green:16"}}}
        whole = json.dumps({"schema": "ctxbroker.policy/1", **policy})
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "policy.json"
            file.write_text(whole)
            for given in (policy, whole, file, str(file)):
                with self.subTest(type(given)), ctxbroker.open(policy=given, logger=None) as broker:
                    lease = broker.tenant("com.example.filter").lease()
                    self.assertEqual((lease.kind, lease.multiprocessors, lease.asked), ("green", 16, "green:16"))
                    self.assertIn("policy", lease.reason)
        with ctxbroker.open(logger=None) as broker:  # the control
            self.assertNotEqual(broker.tenant("com.example.filter").lease().multiprocessors, 16)

    def test_mistake_in_a_policy_says_where_it_is(self) -> None:
        with self.assertRaises(ctxbroker.InvalidArgumentError) as raised:
            ctxbroker.open(policy={"by_id": {"com.example.filter": {"lease": "grey"}}})
        self.assertIn("$.by_id", str(raised.exception))
        self.assertIn("grey", str(raised.exception))
        with self.assertRaises(ctxbroker.Error) as missing:
            ctxbroker.open(policy="/nowhere/policy.json")
        self.assertIn("/nowhere/policy.json", str(missing.exception))

    def test_missing_files_are_named(self) -> None:
        done = run("import ctxbroker; ctxbroker.open()", CTXBROKER_HOME="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("MissingFileError: /nowhere/lib/libctxbroker.so.0 is missing", done.stderr)

    def test_import_loads_no_library(self) -> None:
        done = run("import ctxbroker; print(any('libctxbroker' in line for line in open('/proc/self/maps')))")
        self.assertEqual(done.stdout, "False\n", done.stderr)

    def test_gate_is_before_the_driver_or_says_that_it_is_late(self) -> None:
        code = """
            import ctypes, sys, ctxbroker
            if sys.argv[1] == "late":
                ctypes.CDLL("libcuda.so.1")
            with ctxbroker.open(logger=None) as broker:
                print(broker.gate.mode, broker.gate.reason)
        """
        with ctxbroker.open(logger=None) as broker:
            driver = pathlib.Path(broker.driver.path)
        done = run(code, "early")
        self.assertTrue(done.stdout.startswith("before_driver "), done.stdout + done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            # A driver by the driver's name, as another library brings it into the process.
            (pathlib.Path(folder) / "libcuda.so.1").symlink_to(driver)
            done = run(code, "late", LD_LIBRARY_PATH=f"{folder}:{driver.parent}:{driver.parent.parent}")
        self.assertRegex(done.stdout, "^late .* was loaded before the broker was opened", done.stderr)


class BrokerInfoTest(BrokerTest):
    def test_driver_devices_and_gate_are_described(self) -> None:
        self.assertEqual(self.broker.driver.kind, "software")
        self.assertTrue(os.path.exists(self.broker.driver.path))
        self.assertGreaterEqual(self.broker.driver.version, 12000)
        (device, *_) = self.broker.devices
        self.assertEqual((device.device, device.in_use, device.mps), (0, False, False))
        self.assertGreater(device.memory_bytes, 0)
        self.broker.use_device(0)
        self.assertTrue(self.broker.devices[0].in_use)
        self.assertTrue(self.broker.devices[0].shielded)
        self.assertEqual((self.broker.gate.in_force, self.broker.gate.mode), (True, "before_driver"))
        self.assertEqual(self.broker.gate.tools, ())

    def test_device_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesRegex(ctxbroker.UnavailableError, "77"):
            self.broker.use_device(77)

    def test_metrics_are_a_dict_by_the_schema(self) -> None:
        tenant = self.broker.tenant("one")
        tenant.allocate(4096)
        metrics = self.broker.metrics()
        self.assertEqual(metrics["schema"], "ctxbroker.metrics/1")
        self.assertEqual([one["name"] for one in metrics["tenants"]], ["host", "one"])
        (lease,) = metrics["tenants"][1]["leases"]
        self.assertEqual(lease["memory_bytes"], 4096)
        self.assertEqual(metrics["put_off"], [])

    def test_metrics_say_where_memory_comes_from(self) -> None:
        for memory in ("driver", "pool"):
            self.broker.tenant(memory, memory=memory)
        tenants = {one["name"]: one for one in self.broker.metrics()["tenants"]}
        self.assertEqual([tenants[name]["memory"] for name in ("driver", "pool")], ["driver", "pool"])
        with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, '"arena" is not a source of memory'):
            self.broker.tenant("one", memory="arena")

    def test_timeline_is_written(self) -> None:
        tenant = self.broker.tenant("one")
        self.broker.start_timeline()
        with self.assertRaises(ctxbroker.WrongStateError):
            self.broker.start_timeline()
        with tenant.on(0, "my step"):
            pass
        self.broker.stop_timeline()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            summary = self.broker.write_timeline(file)
            self.assertGreaterEqual(summary.spans, 1)
            self.assertIn("my step", file.read_text())
            json.loads(file.read_text())
            with self.assertRaises(ctxbroker.Error):
                self.broker.write_timeline(pathlib.Path(folder) / "nowhere" / "trace.json")

    def test_ready_contexts_and_real_time(self) -> None:
        with ctxbroker.open(ready_green=2, logger=None) as broker:
            broker.use_device(0)
            self.assertTrue(broker.wait_until_ready())
            with broker.realtime(), broker.realtime():
                pass
            with self.assertRaises(ctxbroker.WrongStateError):
                with broker.realtime():
                    raise ctxbroker.WrongStateError("mine")

    def test_calls_that_hold_up_neighbours_are_counted_in_a_session(self) -> None:
        with ctxbroker.open(logger=None) as broker:
            tenant = broker.tenant("served")
            with broker.realtime():
                tenant.allocate(4096).release()
            tenant.allocate(4096).release()
            made = tenant.realtime_calls("make lease")
            self.assertEqual((made.count, made.refused), (1, 0))
            self.assertGreater(made.seconds, 0)
            self.assertEqual(made.seconds, made.longest_seconds)
            self.assertGreaterEqual(tenant.realtime_calls().count, 1)
            self.assertEqual(tenant.realtime_calls("cuMemAlloc").count, 0)
            with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "no call that holds up neighbours"):
                tenant.realtime_calls("cuLaunchKernel")

    def test_version_and_calls_that_run(self) -> None:
        self.assertRegex(ctxbroker.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(ctxbroker.running_calls(), [])
        ctxbroker.name_crashes(True)
        ctxbroker.name_crashes(False)


class CloseTest(unittest.TestCase):
    def test_broker_with_open_tenants_stays_open_and_names_them(self) -> None:
        broker = ctxbroker.open(logger=None)
        one, two = broker.tenant("one"), broker.tenant("two")
        with self.assertRaisesRegex(ctxbroker.WrongStateError, "open tenants: one, two"):
            broker.close()
        self.assertFalse(broker.closed)
        one.close()
        one.close()  # does nothing
        self.assertEqual(broker.tenants, (two,))
        two.close()
        broker.close()
        broker.close()  # does nothing

    def test_end_of_with_closes_the_tenants_too(self) -> None:
        with ctxbroker.open(logger=None) as broker:
            tenant = broker.tenant("one")
            host = broker.host()
            self.assertEqual((host.name, host.id), ("host", 0))
        self.assertTrue(broker.closed and tenant.closed and host.closed)

    def test_end_of_with_inside_a_guard_is_told(self) -> None:
        broker = ctxbroker.open(logger=None)
        tenant = broker.tenant("one")
        guard = tenant.on()
        with self.assertRaisesRegex(ctxbroker.WrongStateError, "one"):
            with broker:
                guard.__enter__()
        guard.__exit__(None, None, None)
        with self.assertLogs("ctxbroker", "ERROR") as logs, self.assertRaisesRegex(KeyError, "mine"):
            with broker:
                guard.__enter__()
                raise KeyError("mine")  # goes on
        self.assertIn("could not be closed", logs.output[0])
        guard.__exit__(None, None, None)
        broker.close_all()

    def test_every_call_after_the_close_says_that_it_is_closed(self) -> None:
        with ctxbroker.open(logger=None) as broker:
            tenant = broker.tenant("one")
            memory = tenant.allocate(16)
        for call in [
            broker.poll,
            broker.metrics,
            broker.host,
            broker.stop_timeline,
            lambda: broker.tenant("two"),
            lambda: broker.devices,
            lambda: broker.gate,
            tenant.lease,
            tenant.create_stream,
            tenant.guarded_calls,
            tenant.__enter__,
            memory.release,
            lambda: tenant.strikes,
            lambda: tenant.report_status(0),
        ]:
            with self.assertRaisesRegex(ctxbroker.ClosedError, "is closed"):
                call()  # type: ignore[operator]

    def test_close_waits_for_calls_of_other_threads(self) -> None:
        with ctxbroker.open(logger=None) as broker:
            for _ in range(20):
                tenant = broker.tenant("one")
                tenant.lease()
                errors = []
                started = threading.Barrier(4)

                def enter() -> None:
                    started.wait(60)
                    try:
                        for _ in range(50):
                            with tenant:
                                tenant.strikes
                    except ctxbroker.ClosedError:
                        pass
                    except BaseException as error:
                        errors.append(error)

                threads = [threading.Thread(target=enter) for _ in range(3)]
                for thread in threads:
                    thread.start()
                started.wait(60)
                while not tenant.closed:
                    try:
                        tenant.close()
                    except ctxbroker.WrongStateError:
                        pass  # a thread is inside
                for thread in threads:
                    thread.join()
                self.assertEqual(errors, [])

    def test_broker_that_is_forgotten_is_closed_with_a_warning(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            broker = ctxbroker.open(logger=None)
            tenant = broker.tenant("one")
            with tenant:
                pass
            del broker, tenant
            gc.collect()
        self.assertEqual([one.category for one in caught], [ResourceWarning])
        self.assertIn("was not closed", str(caught[0].message))

    def test_process_may_end_with_all_open(self) -> None:
        done = run("""
            import logging, ctxbroker
            logging.basicConfig(level=logging.INFO)
            broker = ctxbroker.open()
            tenant = broker.tenant("one")
            memory = tenant.allocate(64)
            tenant.__enter__()
            print("end")
        """)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("one: lease: ", done.stderr)  # the records are not lost


if __name__ == "__main__":
    unittest.main()
