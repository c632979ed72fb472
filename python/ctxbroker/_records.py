# SPDX-License-Identifier: Apache-2.0
"""The broker's records, for `logging`.

A record is made on any thread, perhaps with a lock of the driver or of the broker held, and perhaps while the
interpreter ends. Code of Python must not run there: it would wait for the interpreter's lock, whose holder may wait for
the other lock in a library that calls CUDA. So the broker adds its records to a queue of its own, and a thread of
Python takes them out.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Optional

from . import _api
from ._process import forks

#: So many records wait at most. Further ones are counted.
CAPACITY = 8192

_LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR}


class Records:
    """The queue of one broker and the thread that empties it."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._forks = forks()
        self._queue = c_void_p()
        self._taking = threading.RLock()  # a handler of the logger may poll the broker
        self._stopping = False
        self._thread: Optional[threading.Thread] = None
        _api.check(_api.load().ctxb_record_queue_create(CAPACITY, byref(self._queue)))

    @property
    def queue(self) -> Optional[int]:
        return self._queue.value

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ctxbroker-records", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends, or there are too many threads: poll and close take the records
            self._thread = None
        _running.add(self)

    def _run(self) -> None:
        while not self._stopping:
            self._take(timeout_ms=60_000)

    def _take(self, timeout_ms: int) -> bool:
        """Logs the oldest record. Returns whether there was one."""
        record = _api.sized(_api.QueuedRecord)
        take = _api.load().ctxb_record_queue_take
        if timeout_ms != 0:
            # Waits without the lock, so that other threads can take records.
            take(self._queue, timeout_ms, None)
        with self._taking:
            if take(self._queue, 0, byref(record)) != _api.OK:
                return False
            try:
                self._log(record)
            except Exception:  # of a filter; a handler's are logging's
                logging.getLogger("ctxbroker.records").exception("a record could not be logged")
        return True

    def _log(self, record: _api.QueuedRecord) -> None:
        if record.lost_before:
            self._logger.warning("%d records of the broker were lost: they came too quickly", record.lost_before)
        level = _LEVELS.get(record.severity, logging.ERROR)
        if not self._logger.isEnabledFor(level):
            return
        tenant, topic = _api.decode(record.tenant_name), _api.decode(record.topic)
        entry = self._logger.makeRecord(
            self._logger.name,
            level,
            "ctxbroker",
            0,
            "%s: %s: %s",
            (tenant, topic, _api.decode(record.text)),
            None,
            extra={"tenant": tenant, "tenant_id": record.tenant, "topic": topic, "native_thread": record.thread},
        )
        entry.created = record.time_ns / 1e9
        entry.msecs = record.time_ns // 1_000_000 % 1000
        self._logger.handle(entry)

    def flush(self) -> None:
        """Logs what has been recorded so far."""
        if self._forks == forks():
            while self._take(timeout_ms=0):
                pass

    def stop(self) -> None:
        """Logs all, and ends the thread. The queue stays: the broker may still add to it."""
        if self._forks != forks():
            return
        _running.discard(self)
        self._stopping = True
        if self._thread is not None and self._thread is not threading.current_thread():
            _api.load().ctxb_record_queue_wake(self._queue)
            self._thread.join(timeout=2)  # a handler may be stuck
        self.flush()

    def destroy(self) -> None:
        """Ends it. The broker is closed, or was not opened."""
        self.stop()
        if self._forks == forks() and self._queue:
            if self._thread is None or not self._thread.is_alive():
                _api.load().ctxb_record_queue_destroy(self._queue)
            self._queue = c_void_p()


_running: "weakref.WeakSet[Records]" = weakref.WeakSet()


def _stop_all() -> None:
    for one in list(_running):
        one.stop()


# Before the interpreter ends its threads. logging, which is imported above, ends later.
atexit.register(_stop_all)


def function() -> Optional[int]:
    """Returns the address of the function that adds a record to a queue."""
    return ctypes.cast(_api.load().ctxb_record_queue_add, c_void_p).value
