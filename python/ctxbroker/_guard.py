# SPDX-License-Identifier: Apache-2.0
"""Guards: a tenant's context is current on the calling thread from `with` to its end."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from ctypes import byref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Optional, Type

from . import _api
from ._errors import GuardError
from ._process import forks

if TYPE_CHECKING:
    import asyncio

    from ._tenant import Tenant

_logger = logging.getLogger("ctxbroker")


class _Thread(threading.local):
    """What a thread is inside of."""

    def __init__(self) -> None:
        self.token = object()  # a thread's number may be used again after its end
        self.number = threading.get_native_id()
        self.innermost: Optional[Entered] = None


_thread = _Thread()

# Strikes and the timeline keep the texts, so they live as long as the process.
_lasting: Dict[str, bytes] = {}


def _lasting_text(text: str) -> bytes:
    known = _lasting.get(text)
    if known is None:
        known = _lasting.setdefault(text, _api.encode(text))
    return known


def _current_task() -> "Optional[asyncio.Task[Any]]":
    module = sys.modules.get("asyncio")  # nobody has a task without it, and it takes long to import
    running_loop = getattr(module, "_get_running_loop", None)
    if module is None or running_loop is None or running_loop() is None:
        return None
    task: "Optional[asyncio.Task[Any]]" = module.current_task()
    return task


class Entered:
    """One guard, from its beginning to its end."""

    is_left = True  # until it has been entered

    def __init__(self, tenant: "Tenant", device: int, doing: str) -> None:
        """Enters. After an exception the thread is as it was."""
        outer = _innermost()
        if outer is not None:
            outer.check_task()
        self.tenant = tenant
        self.device = device
        self.outer = outer
        self._forks = forks()
        self.owner = _thread.token
        self.thread = _thread.number
        self.was_suspended = False
        self.task = _current_task()
        self._watch: Optional[asyncio.Handle] = None
        self._leave = _api.load().ctxb_guard_leave
        self._frame = _api.Guard()
        try:
            with tenant._handle as pointer:
                enter = _api.load().ctxb_tenant_enter
                _api.check(enter(pointer, device, _lasting_text(doing), byref(self._frame)))
            if self.task is not None:
                # The loop gets to it only if the task waits for something inside the guard.
                self._watch = self.task.get_loop().call_soon(self._note_suspension)
            self.is_left = False
            _thread.innermost = self
        except BaseException:
            self.is_left = True
            self._leave(byref(self._frame))  # does nothing unless an interrupt came after the entry
            raise

    @property
    def is_copy(self) -> bool:
        """True in a process that was forked inside the guard."""
        return self._forks != forks()

    def __str__(self) -> str:
        return f"the guard of tenant {self.tenant.name} on device {self.device}"

    def _note_suspension(self) -> None:
        if not self.is_left:
            self.was_suspended = True

    def _task_name(self) -> str:
        return "the task" if self.task is None else f"task {self.task.get_name()!r}"

    def check_task(self) -> None:
        """Raises GuardError if the guard is another task's, which waits for something inside it."""
        if self.task is not None and self.task is not _current_task():
            raise GuardError(
                f"this thread is still in {self}, because {self._task_name()} awaits inside it. Leave a guard before "
                "each await, or do the work that needs it in asyncio.to_thread"
            )

    def leave(self, error: Optional[BaseException] = None) -> None:
        """Leaves. `error` is the exception that ends the guard.

        Raises GuardError for a mistake in how guards are used. If the code inside has raised an exception, that one
        goes on, and the mistake is logged.
        """
        if self.is_left:
            raise GuardError(f"{self} has been left already")
        mistake = self._mistake()
        self.is_left = True
        if self._watch is not None:
            self._watch.cancel()
        if not self.is_copy:  # else its thread is in no context
            self._leave(byref(self._frame))
        if self.owner is _thread.token:
            _unlink(self)
        if mistake is None:
            return
        if error is None or isinstance(error, GeneratorExit):
            raise GuardError(mistake)
        _logger.error("%s: %s", self.tenant.name, mistake, extra=_extra(self.tenant))

    def _mistake(self) -> Optional[str]:
        if self.is_copy:
            return None
        if self.owner is not _thread.token:
            return (
                f"{self} began on thread {self.thread} and ended on thread {_thread.number}. Thread "
                f"{self.thread} leaves the context later. Leave a guard on the thread that entered it. Do not yield "
                "inside a guard in a generator that another thread goes on with"
            )
        innermost = _innermost()
        if innermost is not self:
            return (
                f"{self} ended before {innermost}, which began inside it. Leave guards in reverse order. Do not yield "
                "inside a guard in a generator, except in one for contextlib.contextmanager"
            )
        if self.was_suspended:
            return (
                f"{self._task_name()} awaited inside {self}, so other tasks ran in this tenant's context. Leave a "
                "guard before each await, or do the work that needs it in asyncio.to_thread"
            )
        return None

    def __del__(self) -> None:
        # The thread has ended inside, or nobody can leave the guard any more.
        try:
            if not self.is_left and not self.is_copy:
                self.is_left = True
                self._leave(byref(self._frame))
        except Exception:  # also while the interpreter ends
            pass


def _extra(tenant: "Tenant") -> Dict[str, object]:
    return {"tenant": tenant.name, "tenant_id": tenant.id, "topic": "guard"}


def _innermost() -> Optional[Entered]:
    """Returns the guard that the calling thread is in. Other threads may have left some of its guards."""
    while _thread.innermost is not None:
        entered = _thread.innermost
        if not entered.is_left and not entered.is_copy:
            return entered
        _thread.innermost = entered.outer
    return None


def _unlink(entered: Entered) -> None:
    if _thread.innermost is entered:
        _thread.innermost = entered.outer
        return
    inside = _thread.innermost
    while inside is not None:
        if inside.outer is entered:
            inside.outer = entered.outer
            return
        inside = inside.outer


class Guard:
    """What `tenant.on(device)` returns, for `with`. It can be used several times, and inside itself."""

    def __init__(self, tenant: "Tenant", device: int, doing: str) -> None:
        self._tenant = tenant
        self._device = device
        self._doing = doing
        # Weak: the thread that is inside holds them, so that they end with it.
        self._entered: "list[weakref.ref[Entered]]" = []

    def __enter__(self) -> "Tenant":
        entered = Entered(self._tenant, self._device, self._doing)
        self._entered.append(weakref.ref(entered, self._entered.remove))
        return self._tenant

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        inside = [one for one in (reference() for reference in list(self._entered)) if one and not one.is_left]
        mine = [one for one in inside if one.owner is _thread.token]
        if not mine and len(inside) != 1:
            raise GuardError(f"this thread is not inside tenant {self._tenant.name}, so it cannot leave it")
        (mine or inside)[-1].leave(error)

    def __repr__(self) -> str:
        return f"<ctxbroker.Guard of {self._tenant.name!r} on device {self._device}>"
