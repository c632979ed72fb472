# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package: one class for each kind of status in ctxbroker/plugin.h."""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """A call of the broker failed. The text says what failed and why, in the broker's words."""

    status: int = -1  #: The CTXB_ERROR_* of the C API.


class InvalidArgumentError(Error, ValueError):
    """An argument, an option or a policy is not allowed."""

    status = -2


class UnsupportedError(Error):
    """It is impossible with this device, driver or broker."""

    status = -3


class UnavailableError(Error):
    """There is no such driver, device, lease or file now."""

    status = -4


class OutOfDeviceMemoryError(Error, MemoryError):
    """The device is short of memory."""

    status = -5


class OutOfHostMemoryError(Error, MemoryError):
    """The process is short of memory of its own."""

    status = -6


class NoKernelImageError(Error):
    """No image of a module runs on this device."""

    status = -7


class ContextLostError(Error):
    """The lease's context is gone, or CUDA has ended in this process."""

    status = -8


class DeadlineError(Error, TimeoutError):
    """Something did not end in its time."""

    status = -9


class VersionError(Error):
    """Two parts do not fit together."""

    status = -10


class WrongStateError(Error):
    """The call does not fit the state of the object, such as a close while a thread is inside."""

    status = -11


class ClosedError(WrongStateError):
    """The object has been closed."""


class ForkedError(WrongStateError):
    """The process was forked after the broker was opened. CUDA does not survive a fork."""


class GuardError(WrongStateError):
    """A guard was left on another thread, in the wrong order, or while its task was suspended."""


class DriverError(Error):
    """A call of the CUDA driver failed."""

    status = -12


class NotFoundError(Error, LookupError):
    """There is nothing of that name."""

    status = -13


class SystemLimitError(Error):
    """The system gives the process no more descriptors, threads or mappings."""

    status = -14


class MissingFileError(Error):
    """A file of ctxbroker is not where the package looks for it."""


_BY_STATUS: Dict[int, Type[Error]] = {
    one.status: one
    for one in (
        Error,
        InvalidArgumentError,
        UnsupportedError,
        UnavailableError,
        OutOfDeviceMemoryError,
        OutOfHostMemoryError,
        NoKernelImageError,
        ContextLostError,
        DeadlineError,
        VersionError,
        WrongStateError,
        DriverError,
        NotFoundError,
        SystemLimitError,
    )
}


def error_of(status: int, text: str) -> Error:
    """Returns the exception for a status. A later broker may return statuses that are not known."""
    error = _BY_STATUS.get(status, Error)(text or f"status {status}")
    error.status = status
    return error
