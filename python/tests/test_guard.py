# SPDX-License-Identifier: Apache-2.0
"""Guards make a tenant's context current, and wrong uses say what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import unittest
from typing import Any, Callable, Iterator, List

import ctxbroker
from support import BrokerTest


def on_thread(function: Callable[[], Any]) -> Any:
    """Returns what the function returns on a thread of its own, or raises what it raises."""
    results: List[Any] = []
    errors: List[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class GuardTest(BrokerTest):
    def setUp(self) -> None:
        super().setUp()
        self.one = self.broker.tenant("one", lease="private")
        self.two = self.broker.tenant("two", lease="private")

    def test_context_is_current_inside_and_gone_after(self) -> None:
        self.assertIsNone(self.driver.current())
        with self.one as entered:
            self.assertIs(entered, self.one)
            self.assertEqual(self.driver.current(), self.context_of(self.one))
        self.assertIsNone(self.driver.current())
        with self.two.on(0, "a name"):
            self.assertEqual(self.driver.current(), self.context_of(self.two))
        self.assertIsNone(self.driver.current())

    def test_guards_of_several_tenants_nest(self) -> None:
        with self.one:
            with self.two.on(0):
                with self.one, self.one:
                    self.assertEqual(self.driver.current(), self.context_of(self.one))
                self.assertEqual(self.driver.current(), self.context_of(self.two))
            self.assertEqual(self.driver.current(), self.context_of(self.one))
        self.assertIsNone(self.driver.current())

    def test_one_guard_object_can_be_used_several_times_and_inside_itself(self) -> None:
        guard = self.one.on()
        for _ in range(3):
            with guard, guard:
                self.assertEqual(self.driver.current(), self.context_of(self.one))
            self.assertIsNone(self.driver.current())

    def test_guard_ends_with_an_exception_which_goes_on(self) -> None:
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.one:
                raise KeyError("mine")
        self.assertIsNone(self.driver.current())

    def test_run_calls_a_function_inside(self) -> None:
        self.assertEqual(self.one.run(self.driver.current), self.context_of(self.one))

    def test_guard_that_cannot_be_entered_changes_nothing(self) -> None:
        with self.assertRaisesRegex(ctxbroker.UnavailableError, "99"):
            with self.one.on(99):
                self.fail("it was entered")
        self.assertIsNone(self.driver.current())
        with self.one:
            pass

    def test_threads_have_guards_of_their_own(self) -> None:
        with self.one:
            self.assertIsNone(on_thread(self.driver.current))
            self.assertEqual(on_thread(lambda: self.two.run(self.driver.current)), self.context_of(self.two))
            self.assertEqual(self.driver.current(), self.context_of(self.one))

    def test_one_guard_object_is_shared_by_threads(self) -> None:
        guard = self.one.on()
        inside = threading.Barrier(4)
        contexts: List[Any] = []

        def body() -> None:
            for _ in range(20):
                with guard:
                    inside.wait(60)
                    contexts.append(self.driver.current())
                    inside.wait(60)

        threads = [threading.Thread(target=body) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(contexts), {self.context_of(self.one)})
        self.assertEqual(len(contexts), 80)

    def test_tenant_cannot_be_closed_inside_and_says_so(self) -> None:
        with self.one:
            with self.assertRaisesRegex(ctxbroker.WrongStateError, "one"):
                self.one.close()
            self.assertFalse(self.one.closed)
        self.one.close()
        with self.assertRaisesRegex(ctxbroker.ClosedError, "tenant one is closed"):
            self.one.__enter__()

    # ---- Wrong uses ----

    def test_guard_that_ends_before_an_inner_one_is_told(self) -> None:
        outer, inner = self.one.on(), self.two.on()
        outer.__enter__()
        inner.__enter__()
        with self.assertRaisesRegex(ctxbroker.GuardError, "tenant one on device 0 ended before the guard of tenant two"):
            outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)
        self.assertIsNone(self.driver.current())

    def test_guard_that_ends_on_another_thread_is_told_and_the_first_thread_is_restored(self) -> None:
        guard = self.one.on()
        guard.__enter__()
        with self.assertRaisesRegex(ctxbroker.GuardError, r"began on thread \d+ and ended on thread \d+"):
            on_thread(lambda: guard.__exit__(None, None, None))
        with self.two:  # restores it first
            pass
        self.assertIsNone(self.driver.current())
        self.one.close()

    def test_guard_that_nobody_entered_cannot_be_left(self) -> None:
        with self.assertRaisesRegex(ctxbroker.GuardError, "not inside tenant one"):
            self.one.__exit__(None, None, None)

    def test_generator_that_yields_inside_a_guard_is_told_when_another_guard_is_inside(self) -> None:
        def steps() -> Iterator[int]:
            with self.one:
                yield 1

        generator = steps()
        next(generator)
        with self.two:
            with self.assertRaisesRegex(ctxbroker.GuardError, "Do not yield inside a guard"):
                next(generator)
        self.assertIsNone(self.driver.current())

    def test_generator_that_is_closed_on_another_thread_is_told(self) -> None:
        def steps() -> Iterator[int]:
            with self.one:
                yield 1

        generator = steps()
        next(generator)
        with self.assertRaisesRegex(ctxbroker.GuardError, "that another thread goes on with"):
            on_thread(generator.close)  # type: ignore[attr-defined]
        with self.two:
            pass
        self.assertIsNone(self.driver.current())

    def test_generator_as_context_manager_works(self) -> None:
        @contextlib.contextmanager
        def inside() -> Iterator[None]:
            with self.one:
                yield

        with inside(), self.two:
            self.assertEqual(self.driver.current(), self.context_of(self.two))
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.one)
            stack.enter_context(self.two.on(0))
            self.assertEqual(self.driver.current(), self.context_of(self.two))
        self.assertIsNone(self.driver.current())

    def test_mistake_does_not_hide_the_exception_inside(self) -> None:
        outer, inner = self.one.on(), self.two.on()
        outer.__enter__()
        inner.__enter__()
        with self.assertLogs("ctxbroker", logging.ERROR) as logs:
            outer.__exit__(ValueError, ValueError("mine"), None)
        self.assertIn("ended before", logs.output[0])
        self.assertEqual(logs.records[0].__dict__["tenant"], "one")
        inner.__exit__(None, None, None)

    def test_thread_that_ends_inside_a_guard_leaves_it(self) -> None:
        on_thread(lambda: self.one.__enter__() and None)
        gc.collect()
        self.one.close()  # nobody is inside any more

    # ---- Tasks ----

    def test_task_that_does_not_await_inside_is_fine(self) -> None:
        async def work(tenant: ctxbroker.Tenant) -> None:
            for _ in range(20):
                with tenant, tenant.on(0):
                    self.assertEqual(self.driver.current(), self.context_of(tenant))
                await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(work(self.one), work(self.two), work(self.one))

        asyncio.run(main())

    def test_task_that_awaits_inside_is_told(self) -> None:
        async def main() -> None:
            with self.one:
                await asyncio.sleep(0)

        with self.assertRaisesRegex(ctxbroker.GuardError, "awaited inside the guard of tenant one"):
            asyncio.run(main())
        self.assertIsNone(self.driver.current())

    def test_task_cannot_enter_while_another_one_awaits_inside(self) -> None:
        async def first(entered: asyncio.Event, done: asyncio.Event) -> None:
            with self.one:
                entered.set()
                await done.wait()

        async def main() -> None:
            entered, done = asyncio.Event(), asyncio.Event()
            task = asyncio.ensure_future(first(entered, done))
            await entered.wait()
            with self.assertRaisesRegex(ctxbroker.GuardError, "still in the guard of tenant one"):
                with self.two:
                    self.fail("it was entered")
            done.set()
            with self.assertRaisesRegex(ctxbroker.GuardError, "awaited inside"):
                await task

        asyncio.run(main())
        self.assertIsNone(self.driver.current())

    def test_loop_inside_a_guard_and_work_in_threads_are_fine(self) -> None:
        async def main() -> Any:
            loop = asyncio.get_running_loop()
            context = await loop.run_in_executor(None, lambda: self.two.run(self.driver.current))
            with self.two:
                pass
            return context

        with self.one:
            self.assertEqual(asyncio.run(main()), self.context_of(self.two))
            self.assertEqual(self.driver.current(), self.context_of(self.one))


if __name__ == "__main__":
    unittest.main()
