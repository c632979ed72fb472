# SPDX-License-Identifier: Apache-2.0
"""Handles of the C API, which must not be used after their close."""

from __future__ import annotations

import contextlib
import os
import threading
from types import TracebackType
from typing import Callable, ContextManager, Iterator, Optional, Type

from . import _api
from ._errors import ClosedError, ForkedError, WrongStateError
from ._process import forks

#: How long a close waits for calls of other threads, in seconds. Each of them ends sooner by itself.
CALLS_TIMEOUT = 10.0


class Handle:
    """A handle, which is usable inside `with`. The close waits for calls that other threads have begun.

    `serial` is the broker's lock for the calls that the C API takes one at a time, which use `alone`.
    """

    def __init__(self, what: str, pointer: int, serial: "ContextManager[object]") -> None:
        self.what = what
        self._process = os.getpid()
        self._forks = forks()
        self._serial = serial
        self._pointer: Optional[int] = pointer
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._calls = 0
        self._closer: Optional[int] = None  # the thread that closes it now

    @property
    def is_open(self) -> bool:
        return self._pointer is not None and not self.is_copy

    @property
    def is_copy(self) -> bool:
        """True in a process that was forked after the handle was made."""
        return self._forks != forks()

    def check_process(self) -> None:
        if self.is_copy:
            raise ForkedError(
                f"{self.what} belongs to process {self._process}, and this process was forked from it. CUDA does not "
                'survive a fork. Start the process with exec, such as with multiprocessing\'s method "spawn", and open '
                "a broker there"
            )

    def __enter__(self) -> int:
        self.check_process()  # first: another thread may have held the lock at the fork
        with self._lock:
            while self._closer is not None:
                if self._closer == threading.get_ident():
                    raise WrongStateError(f"{self.what} is being closed")
                self._changed.wait()
            if self._pointer is None:
                raise ClosedError(f"{self.what} is closed")
            self._calls += 1
            return self._pointer

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        with self._lock:
            self._calls -= 1
            if self._closer is not None:
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Makes the handle usable inside `with`, for one thread at a time."""
        self.check_process()
        with self._serial, self as pointer:
            yield pointer

    def close(self, function: Callable[[int], int]) -> None:
        """Calls `function`. After an error, the handle is still open. Closing a closed handle does nothing."""
        self.check_process()
        with self._lock:
            if self._pointer is None:
                return
            if self._closer is not None:
                raise WrongStateError(f"{self.what} is being closed")
            self._closer = threading.get_ident()
            try:
                if not self._changed.wait_for(lambda: self._calls == 0, CALLS_TIMEOUT):
                    raise WrongStateError(f"another thread is in a call of {self.what}; end it before the close")
                pointer = self._pointer
            except BaseException:
                self._closer = None
                self._changed.notify_all()
                raise
        try:
            _api.check(function(pointer))  # without the lock: it may take seconds
            self._pointer = None
        finally:
            with self._lock:
                self._closer = None
                self._changed.notify_all()
