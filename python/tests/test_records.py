# SPDX-License-Identifier: Apache-2.0
"""Records reach `logging`, wherever they are made."""

from __future__ import annotations

import ctypes
import logging
import subprocess
import threading
import unittest

import ctxbroker
from support import fixture, run, start


class RecordsTest(unittest.TestCase):
    def test_records_have_the_tenant_and_the_topic(self) -> None:
        with self.assertLogs("ctxbroker", logging.DEBUG) as logs:
            with ctxbroker.open() as broker:
                tenant = broker.tenant("one")
                tenant.lease()
                number, generation = tenant.id, tenant.lease().generation
                tenant.force_loss("a reason")
                broker.poll()
                lost = logs.records[-1].__dict__
        self.assertEqual((lost["tenant"], lost["tenant_id"], lost["topic"]), ("one", number, "lease"))
        self.assertEqual(lost["levelno"], logging.WARNING)
        self.assertEqual(logs.records[-1].getMessage(), f"one: lease: generation {generation} was given up: a reason")
        self.assertGreater(lost["native_thread"], 0)
        self.assertLess(abs(lost["created"] - logs.records[0].created), 60)
        self.assertIn("driver", {record.__dict__["topic"] for record in logs.records})

    def test_logger_can_be_chosen_or_left_out(self) -> None:
        mine = logging.getLogger("mine")
        with self.assertLogs("mine", logging.INFO) as logs, self.assertNoRecords():
            with ctxbroker.open(logger=mine):
                pass
        self.assertGreater(len(logs.records), 0)
        with self.assertNoRecords(), ctxbroker.open(logger=None):
            pass

    def assertNoRecords(self) -> "_NoRecords":
        return _NoRecords(self)

    def test_records_come_without_a_poll(self) -> None:
        came = threading.Event()

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "waited for" in record.getMessage():
                    came.set()

        logger = logging.getLogger("with-handler")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(Handler())
        with ctxbroker.open(logger=logger) as broker:
            tenant = broker.tenant("one")
            tenant.lease()
            tenant.force_loss("waited for")
            self.assertTrue(came.wait(60))

    def test_handler_may_use_the_broker(self) -> None:
        seen = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                seen.append(broker.metrics()["schema"])

        logger = logging.getLogger("uses-broker")
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(Handler())
        with ctxbroker.open(logger=logger) as broker:
            tenant = broker.tenant("one")
            tenant.lease()
            tenant.force_loss("a test")
            broker.poll()
        self.assertEqual(set(seen), {"ctxbroker.metrics/1"})

    def test_filter_that_raises_stops_no_later_record(self) -> None:
        class Filter(logging.Filter):
            def filter(self, record: logging.LogRecord) -> bool:
                if "first" in record.getMessage():
                    raise ValueError("of the filter")
                return True

        logger = logging.getLogger("filtered")
        logger.setLevel(logging.WARNING)
        added = Filter()
        logger.addFilter(added)
        with self.assertLogs("ctxbroker.records", logging.ERROR) as errors, self.assertLogs(logger) as logs:
            with ctxbroker.open(logger=logger) as broker:
                for reason in ("first", "second"):
                    tenant = broker.tenant(reason)
                    tenant.lease()
                    tenant.force_loss(reason)
                broker.poll()
        self.assertIn("of the filter", errors.output[0])
        self.assertIn("second", logs.output[-1])

    def test_record_is_made_while_the_interpreter_s_lock_is_held(self) -> None:
        # The attack's thread is not Python's, and its record is made while this thread keeps the lock and waits.
        with self.assertLogs("ctxbroker", logging.WARNING) as logs, ctxbroker.open() as broker:
            tenant = broker.tenant("bad")
            library = tenant.adopt(fixture("attacks_linked.so"))
            address = library.symbol("ctxb_test_attack_on_own_thread")
            keeps_lock = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)
            target = ctypes.create_string_buffer(256)
            with tenant:
                keeps_lock(b"release", ctypes.addressof(target))
            broker.poll()
        self.assertEqual(logs.records[0].__dict__["tenant"], "bad")
        self.assertNotEqual(logs.records[0].__dict__["native_thread"], threading.get_native_id())

    def test_control_a_callback_of_python_deadlocks_there(self) -> None:
        code = """
            import ctypes, sys, threading
            import ctxbroker
            from ctxbroker import _api, _broker
            from support import fixture
            Record = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32] + [ctypes.c_char_p] * 3)
            callback = Record(lambda *all: None)
            _broker.record_function = lambda: ctypes.cast(callback, ctypes.c_void_p).value
            broker = ctxbroker.open()
            tenant = broker.tenant("bad")
            address = tenant.adopt(sys.argv[1]).symbol("ctxb_test_attack_on_own_thread")
            keeps_lock = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)
            target = ctypes.create_string_buffer(256)
            print("BEFORE", flush=True)
            with tenant:
                keeps_lock(b"release", ctypes.addressof(target))
            print("AFTER", flush=True)
        """
        with start(code, fixture("attacks_linked.so")) as process:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "BEFORE\n")
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(timeout=3)
            process.kill()
            self.assertNotIn("AFTER", process.communicate()[0])

    def test_records_are_made_while_the_interpreter_ends(self) -> None:
        # Threads of C make strikes until the process is gone, and the library's destructor makes one more.
        code = """
            import ctypes, sys, threading, logging
            import ctxbroker
            from support import attack_of
            logging.basicConfig(level=logging.ERROR)
            broker = ctxbroker.open()
            tenant = broker.tenant("bad")
            library = tenant.adopt(sys.argv[1])
            attack = attack_of(library.symbol("ctxb_test_attack"))
            started = threading.Event()
            def forever():
                while True:
                    with tenant:
                        attack("release")
                    started.set()
            threading.Thread(target=forever, daemon=True).start()
            started.wait()
            print("END", flush=True)
        """
        for _ in range(5):
            done = run(code, fixture("attacks_linked.so"), CTXB_TEST_ATTACK_IN_DESTRUCTOR="release")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("END", done.stdout)

    def test_records_that_come_too_quickly_are_counted(self) -> None:
        from ctxbroker import _api, _records

        with self.assertLogs("ctxbroker", logging.INFO) as logs:
            records = _records.Records(logging.getLogger("ctxbroker"))
            for _ in range(_records.CAPACITY + 5):
                _api.load().ctxb_record_queue_add(
                    ctypes.c_void_p(records.queue), ctypes.c_uint32(1), ctypes.c_uint32(0), b"host", b"topic", b"text"
                )
            records.flush()
            _api.load().ctxb_record_queue_add(
                ctypes.c_void_p(records.queue), ctypes.c_uint32(1), ctypes.c_uint32(0), b"host", b"topic", b"last"
            )
            records.destroy()
        self.assertEqual(len(logs.records), _records.CAPACITY + 2)
        self.assertEqual(logs.records[-2].getMessage(), "5 records of the broker were lost: they came too quickly")


class _NoRecords:
    """Fails when the logger "ctxbroker" gets a record."""

    def __init__(self, test: unittest.TestCase) -> None:
        self.test = test
        self.records: "list[logging.LogRecord]" = []

    def __enter__(self) -> None:
        handler = self.handler = logging.Handler()
        handler.emit = self.records.append  # type: ignore[method-assign, assignment]
        logging.getLogger("ctxbroker").addHandler(handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ctxbroker").removeHandler(self.handler)
        self.test.assertEqual(self.records, [])


if __name__ == "__main__":
    unittest.main()
