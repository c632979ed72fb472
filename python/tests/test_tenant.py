# SPDX-License-Identifier: Apache-2.0
"""Tenants: leases, memory, streams, libraries that misbehave, losses."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import socket
import threading
import unittest
from typing import List

import ctxbroker
from support import BrokerTest, attack_of, fixture, run


class LeaseTest(BrokerTest):
    def test_lease_is_what_was_asked_for(self) -> None:
        for asked, kind in [("shared", "shared"), ("private", "private"), ("green", "green"), ("green:16", "green")]:
            with self.subTest(asked):
                lease = self.broker.tenant(asked.replace(":", "-"), lease=asked).lease()
                self.assertEqual((lease.kind, lease.asked, lease.state, lease.device), (kind, asked, "ready", 0))
                self.assertGreater(lease.context, 0)
                self.assertTrue(lease.reason)
        self.assertGreaterEqual(lease.multiprocessors, 16)

    def test_lease_that_is_none_is_refused(self) -> None:
        for lease in ("", "blue", "green:0", "green:x", "green:-1", "shared:3", "worker", "AUTO"):
            with self.subTest(lease), self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "is not a lease"):
                self.broker.tenant("one", lease=lease)

    def test_partition_that_is_too_large_is_unavailable(self) -> None:
        tenant = self.broker.tenant("one", lease="green:100000")
        with self.assertRaisesRegex(ctxbroker.UnavailableError, "free|multiprocessors"):
            tenant.lease()

    def test_per_thread_streams_exclude_green(self) -> None:
        self.assertEqual(self.broker.tenant("one", per_thread_streams=True).lease().kind, "shared")

    def test_tenant_needs_a_name(self) -> None:
        with self.assertRaises(ctxbroker.InvalidArgumentError):
            self.broker.tenant("")

    def test_status_of_its_own_calls_is_reported(self) -> None:
        tenant = self.broker.tenant("one")
        tenant.lease()
        self.assertEqual(tenant.report_status(0), "ready")

    def test_peer_access_to_a_device_that_is_not_there(self) -> None:
        with self.assertRaises(ctxbroker.UnavailableError):
            self.broker.tenant("one").enable_peer_access(0, 5)


class MemoryTest(BrokerTest):
    def test_memory_is_held_until_its_release(self) -> None:
        tenant = self.broker.tenant("one")
        with tenant.allocate(1000) as memory:
            self.assertEqual((memory.size, memory.device, tenant.memory_bytes), (1000, 0, 1000))
            with tenant:
                self.assertEqual(self.driver.write(memory.address, b"hello"), 0)
                self.assertEqual(self.driver.read(int(memory), 5), b"hello")
            self.assertEqual(memory.__cuda_array_interface__["data"], (memory.address, False))
        self.assertEqual((memory.address, tenant.memory_bytes), (0, 0))
        memory.release()  # does nothing
        memory = tenant.allocate(10)
        tenant.release(memory)
        with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "."):
            tenant.release(memory.address)

    def test_size_has_to_be_positive_and_fit(self) -> None:
        tenant = self.broker.tenant("one")
        for size in (0, -1, 2**64):
            with self.subTest(size), self.assertRaises(ctxbroker.InvalidArgumentError):
                tenant.allocate(size)
        with self.assertRaises(ctxbroker.OutOfDeviceMemoryError) as raised:
            tenant.allocate(2**50)
        self.assertIsInstance(raised.exception, MemoryError)
        self.assertEqual(raised.exception.status, -5)

    def test_streams_are_made_and_destroyed(self) -> None:
        tenant = self.broker.tenant("one")
        with tenant.create_stream() as stream:
            self.assertEqual(stream.__cuda_stream__(), (0, int(stream)))
            with tenant:
                self.assertEqual(self.driver.call("cuStreamSynchronize", ctypes.c_void_p(stream.handle)), 0)
        stream.destroy()  # does nothing
        with self.assertRaises(ctxbroker.InvalidArgumentError):
            tenant.destroy_stream(0x1234)

    def test_memory_is_shared_by_descriptor(self) -> None:
        one, two = self.broker.tenant("one"), self.broker.tenant("two")
        try:
            memory = one.allocate_shareable(1000)
        except ctxbroker.UnavailableError as error:
            self.skipTest(str(error))
        self.assertGreaterEqual(memory.size, 1000)
        try:
            descriptor = one.export_memory(memory)
        except ctxbroker.Error as error:
            self.skipTest(str(error))
        try:
            imported = two.import_memory(descriptor, memory.size)
        finally:
            os.close(descriptor)
        with one:
            self.assertEqual(self.driver.write(memory.address, b"hello"), 0)
        with two:
            self.assertEqual(self.driver.read(imported.address, 5), b"hello")
        imported.release()

    def test_descriptor_of_something_else_is_refused(self) -> None:
        tenant = self.broker.tenant("one")
        with socket.socket() as other, self.assertRaises(ctxbroker.Error):
            tenant.import_memory(other.fileno(), 4096)


class LibraryTest(BrokerTest):
    def test_missing_file_and_symbol_are_named(self) -> None:
        tenant = self.broker.tenant("one")
        with self.assertRaisesRegex(ctxbroker.UnavailableError, "/nowhere/filter.so"):
            tenant.adopt("/nowhere/filter.so")
        library = tenant.adopt(fixture("attacks_linked.so"))
        with self.assertRaisesRegex(ctxbroker.NotFoundError, 'no symbol "no_such_symbol"') as raised:
            library.symbol("no_such_symbol")
        self.assertIsInstance(raised.exception, LookupError)
        self.assertGreater(library.symbol("ctxb_test_attack"), 0)
        tenant.close()
        with self.assertRaises(ctxbroker.ClosedError):
            library.symbol("ctxb_test_attack")

    def test_file_that_is_no_library_is_refused_in_the_loader_s_words(self) -> None:
        with self.assertRaisesRegex(ctxbroker.Error, "ELF|header"):
            self.broker.tenant("one").adopt(__file__)

    def test_mode_is_that_of_the_loader(self) -> None:
        tenant = self.broker.tenant("one")
        with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "mode is"):
            tenant.adopt(fixture("attacks_linked.so"), mode=os.RTLD_NODELETE)
        name = "ctxb_test_allocate_on_own_thread"
        tenant.adopt(fixture("attacks_linked.so"), mode=os.RTLD_LAZY)
        self.assertFalse(hasattr(ctypes.CDLL(None), name))
        tenant.adopt(fixture("attacks_dlsym.so"), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self.assertTrue(hasattr(ctypes.CDLL(None), name))

    def test_pattern_of_the_policy_gives_a_library_to_its_tenant(self) -> None:
        policy = {
            "libraries": [{"match": "*/attacks_linked.so", "tenant": "bad"}, {"match": "*/nothing.so", "tenant": "none"}]
        }
        done = run(
            """
            import ctypes, json, sys
            import ctxbroker
            from support import attack_of
            with ctxbroker.open(policy=sys.argv[2], logger=None) as broker:
                library = ctypes.CDLL(sys.argv[1])  # as any code opens it
                attack_of(ctypes.cast(library.ctxb_test_attack, ctypes.c_void_p).value)("release")
                bad = broker.tenant("bad")
                metrics = broker.metrics()
                print("STRIKES", bad.strikes, [one["tenant_name"] for one in metrics["libraries"]],
                      metrics["unmatched_patterns"])
                host = next(one for one in metrics["tenants"] if one["name"] == "host")
                print("HOST", host["strikes"])
            """,
            fixture("attacks_linked.so"),
            json.dumps({"schema": "ctxbroker.policy/1", **policy}),
        )
        self.assertIn("STRIKES 8 ['bad'] ['*/nothing.so']\nHOST 0\n", done.stdout, done.stderr)

    def test_what_a_library_does_counts_as_its_tenant_s(self) -> None:
        bad, good = self.broker.tenant("bad"), self.broker.tenant("good")
        attack = attack_of(bad.adopt(fixture("attacks_linked.so")).symbol("ctxb_test_attack"))
        self.assertEqual((bad.strikes, bad.guarded_calls()), (0, 0))
        with bad:
            attack("leak_memory")
            attack("release")
        self.assertGreater(bad.strikes, 0)
        self.assertEqual(good.strikes, 0)
        self.assertEqual(bad.guarded_calls("cuDevicePrimaryCtxRelease"), 8)
        self.assertGreater(bad.guarded_calls(), 1)
        self.assertGreaterEqual(bad.held("device memory").bytes, 1)
        self.assertGreaterEqual(bad.held().count, 1)
        self.assertEqual(good.held(), ctxbroker.Held(0, 0))
        self.assertEqual(good.waits().count, 0)
        with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "no guarded function"):
            bad.guarded_calls("cuNoSuchFunction")
        self.assertEqual(good.guarded_calls("cuDevicePrimaryCtxRelease"), 0)
        with self.assertRaisesRegex(ctxbroker.InvalidArgumentError, "no kind of thing"):
            bad.held("cheese")

    def test_limits_hold(self) -> None:
        limits = ctxbroker.Limits(device_memory=1, streams=ctxbroker.NO_LIMIT)
        tenant = self.broker.tenant("small", limits=limits)
        attack = attack_of(tenant.adopt(fixture("attacks_linked.so")).symbol("ctxb_test_attack"))
        with tenant:
            self.assertEqual(attack("leak_memory"), 2)  # CUDA_ERROR_OUT_OF_MEMORY
        self.assertEqual(tenant.held("device memory").bytes, 0)


# Two tenants in one process; a library that resets the device belongs to one of them. argv[1]: "broker" or "nothing".
RESET = """
    import ctypes, sys
    import ctxbroker
    from support import Driver, attack_of
    way, library = sys.argv[1:]
    if way == "broker":
        broker = ctxbroker.open(logger=None)
        good, bad = broker.tenant("good"), broker.tenant("bad")
        driver = Driver()
        attack = attack_of(bad.adopt(library).symbol("ctxb_test_attack"))
        memory = good.allocate(16).address
        inside, of_bad = good, bad
    else:
        import contextlib
        driver = Driver()  # of LD_LIBRARY_PATH
        driver.call("cuInit", 0)
        context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        driver.call("cuCtxSetCurrent", context)
        address = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(16))
        memory = address.value
        attack = attack_of(ctypes.cast(ctypes.CDLL(library).ctxb_test_attack, ctypes.c_void_p).value)
        inside = of_bad = contextlib.ExitStack()
    with inside:
        driver.write(memory, b"still here")
    for name in ("reset", "reset_v2", "release", "pop_too_much"):
        with of_bad:
            attack(name)
    with inside:
        print("AFTER", driver.read(memory, 10).decode())
    if way == "broker":
        print("STRIKES", good.strikes, bad.strikes > 0)
"""


class ResetTest(unittest.TestCase):
    def test_tenant_survives_a_neighbour_that_resets(self) -> None:
        done = run(RESET, "broker", fixture("attacks_linked.so"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AFTER still here\nSTRIKES 0 True", done.stdout)

    def test_control_without_the_broker_the_memory_is_gone(self) -> None:
        library = fixture("attacks_linked.so")
        folder = os.path.join(os.environ["CTXB_BUILD"], "lib", "ctxbroker", "software_device")
        done = run(RESET, "nothing", library, LD_LIBRARY_PATH=folder)
        self.assertNotIn("AFTER still here", done.stdout)
        self.assertRegex(done.stdout, "AFTER status [1-9]")


class LossTest(BrokerTest):
    def setUp(self) -> None:
        super().setUp()
        self.losses: List[ctxbroker.Loss] = []

    def test_poll_calls_on_loss_once_for_each_generation(self) -> None:
        tenant = self.broker.tenant("one", on_loss=self.losses.append)
        other = self.broker.tenant("two", on_loss=lambda loss: self.fail(str(loss)))
        other.lease()
        before = tenant.lease().generation
        tenant.force_loss("to show what comes after")
        self.assertEqual(self.losses, [])
        self.broker.poll()
        self.broker.poll()
        (loss,) = self.losses
        self.assertEqual((loss.tenant, loss.device, loss.reason, loss.generation), ("one", 0, "given_up", before))
        self.assertIn("gave the context up", loss.text)
        self.assertGreater(tenant.lease().generation, before)
        with self.assertRaises(ctxbroker.InvalidArgumentError):
            self.broker.tenant("three").force_loss("it has no lease")

    def test_callback_may_use_the_broker_and_wait_for_a_thread_that_does(self) -> None:
        def on_loss(loss: ctxbroker.Loss) -> None:
            tenant.lease()
            thread = threading.Thread(target=self.broker.metrics)
            thread.start()
            thread.join()
            self.losses.append(loss)
            tenant.close()

        tenant = self.broker.tenant("one", on_loss=on_loss)
        tenant.lease()
        tenant.force_loss("a test")
        self.broker.poll()
        self.assertEqual((len(self.losses), tenant.closed), (1, True))

    def test_exceptions_of_callbacks_go_on_from_poll(self) -> None:
        def fails(loss: ctxbroker.Loss) -> None:
            raise KeyError(loss.tenant)

        tenants = [self.broker.tenant(name, on_loss=fails) for name in ("one", "two")]
        last = self.broker.tenant("three", on_loss=self.losses.append)
        for tenant in [*tenants, last]:
            tenant.lease()
            tenant.force_loss("a test")
        with self.assertLogs("ctxbroker", logging.ERROR) as logs, self.assertRaises(KeyError) as raised:
            self.broker.poll()
        self.assertEqual(raised.exception.args, ("one",))
        self.assertIn("KeyError: 'two'", logs.output[0])
        self.assertEqual([loss.tenant for loss in self.losses], ["three"])
        self.broker.poll()  # nothing is left

    def test_interrupt_of_a_callback_hides_no_other_exception(self) -> None:
        def fails(loss: ctxbroker.Loss) -> None:
            raise KeyError(loss.tenant)

        def interrupts(loss: ctxbroker.Loss) -> None:
            raise KeyboardInterrupt

        for name, on_loss in [("one", fails), ("two", interrupts), ("three", self.losses.append)]:
            tenant = self.broker.tenant(name, on_loss=on_loss)
            tenant.lease()
            tenant.force_loss("a test")
        with self.assertLogs("ctxbroker", logging.ERROR) as logs, self.assertRaises(KeyboardInterrupt):
            self.broker.poll()
        self.assertIn("KeyError: 'one'", logs.output[0])
        self.broker.poll()
        self.assertEqual([loss.tenant for loss in self.losses], ["three"])

    def test_host_s_own_tenant_has_a_callback_too(self) -> None:
        with ctxbroker.open(logger=None, host_on_loss=self.losses.append, host_lease="private") as broker:
            host = broker.host()
            self.assertEqual(host.lease().kind, "private")
            host.force_loss("a test")
            broker.poll()
        self.assertEqual([loss.tenant for loss in self.losses], ["host"])


class ThreadsTest(BrokerTest):
    def test_many_threads_use_all_functions_at_once(self) -> None:
        tenants = [self.broker.tenant(f"tenant{number}") for number in range(3)]
        errors: List[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(30):
                    tenant = tenants[(number + step) % 3]
                    with tenant, tenant.allocate(64) as memory:
                        self.driver.write(memory.address, b"x")
                        tenant.lease()
                    with tenant.create_stream():
                        tenant.strikes, tenant.memory_bytes, tenant.held()
                    self.broker.metrics()
                    self.broker.poll()
                    if step % 10 == number % 10:
                        tenant.force_loss("a test")
                    own = self.broker.tenant("own")
                    own.close()
            except ctxbroker.ContextLostError:
                pass
            except ctxbroker.InvalidArgumentError as error:  # the memory's generation was lost
                if "hold" not in str(error):
                    errors.append(error)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
