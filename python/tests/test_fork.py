# SPDX-License-Identifier: Apache-2.0
"""A forked process: it says that CUDA does not survive a fork, and changes nothing in the first one."""

from __future__ import annotations

import unittest

from support import run

CODE = """
    import os, sys, logging, threading
    import ctxbroker
    from support import Driver
    logging.basicConfig(level=logging.WARNING)
    broker = ctxbroker.open()
    tenant = broker.tenant("one", lease="private")
    memory = tenant.allocate(16)
    driver = Driver()
    guard = tenant.on()
    busy = threading.Event()
    def forever():  # holds locks of the package at the fork
        while not busy.is_set():
            broker.metrics()
            tenant.strikes
    thread = threading.Thread(target=forever)
    thread.start()

    def child():
        {child}

    with tenant:
        context = driver.current()
        pid = os.fork()
        if pid == 0:
            try:
                child()
            except BaseException as error:
                print(type(error).__name__, error, flush=True)
                os._exit(7)
            os._exit(0)
        print("STATUS", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        assert driver.current() == context
        assert driver.write(memory.address, b"hello") == 0
    busy.set()
    thread.join()
    broker.close_all()
    print("PARENT", flush=True)
"""


class ForkTest(unittest.TestCase):
    def child(self, child: str) -> str:
        indented = child.strip().replace("\n", "\n    ")
        done = run(CODE.replace("{child}", indented))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.endswith("PARENT\n"), done.stdout)
        return done.stdout

    def test_every_call_in_the_child_says_why_it_fails(self) -> None:
        said = self.child("""
    for call in (broker.poll, broker.metrics, broker.close, tenant.lease, tenant.close, memory.release,
                 tenant.__enter__, guard.__enter__, lambda: broker.devices, lambda: tenant.strikes):
        try:
            call()
            os._exit(3)
        except ctxbroker.ForkedError as error:
            text = str(error)
    print(text, flush=True)""")
        self.assertIn("STATUS 0", said)
        self.assertIn("this process was forked from it. CUDA does not survive a fork", said)

    def test_ends_of_with_in_the_child_do_nothing(self) -> None:
        said = self.child("""
    tenant.__exit__(None, None, None)
    broker.__exit__(None, None, None)
    broker.__del__()""")
        self.assertIn("STATUS 0", said)

    def test_exit_functions_in_the_child_end(self) -> None:
        said = self.child("""
    import atexit
    atexit._run_exitfuncs()""")
        self.assertIn("STATUS 0", said)

    def test_broker_in_the_child_fails_or_works_but_does_not_hang(self) -> None:
        said = self.child("""
    try:
        with ctxbroker.open(logger=None) as own:
            own.tenant("two").lease()
        print("opened", flush=True)
    except ctxbroker.Error as error:
        print("refused:", error, flush=True)""")
        self.assertRegex(said, "opened|refused: ")

    def test_process_that_forks_first_and_opens_then_works(self) -> None:
        done = run("""
            import multiprocessing
            def work(queue):
                import ctxbroker
                with ctxbroker.open(logger=None) as broker:
                    queue.put(broker.tenant("one").lease().state)
            import ctxbroker
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=work, args=(queue,))
            child.start()
            print(queue.get(timeout=60))
            child.join()
        """)
        self.assertEqual(done.stdout, "ready\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
