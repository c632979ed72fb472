# SPDX-License-Identifier: Apache-2.0
"""Tenants: their leases, libraries, memory and streams."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from ctypes import byref, c_int32, c_uint64, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, Type, TypeVar, Union

from . import _api
from ._errors import InvalidArgumentError, NotFoundError
from ._guard import Guard
from ._handle import Handle

if TYPE_CHECKING:
    from ._broker import Broker

_Result = TypeVar("_Result")

#: For Limits: the tenant may take as much as it likes.
NO_LIMIT = _api.NO_LIMIT


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much a tenant's code may hold through its own driver calls. This needs the gate.

    None: as the policy says, or the broker's default. NO_LIMIT: as much as it likes.
    """

    device_memory: Optional[int] = None  #: In bytes. Default: no limit.
    pinned_memory: Optional[int] = None  #: Pinned host memory, in bytes. Default: half of the machine's memory.
    streams: Optional[int] = None  #: Default: 4096.
    events: Optional[int] = None  #: Default: 65536.
    graphs: Optional[int] = None  #: Graphs and executable graphs. Default: 16384.
    modules: Optional[int] = None  #: Modules and libraries. Default: 16384.
    contexts: Optional[int] = None  #: Contexts and green contexts. Default: 64.


@dataclasses.dataclass(frozen=True)
class LeaseInfo:
    """A lease as it was at one moment."""

    device: int
    kind: str  #: What was granted: "shared", "private" or "green".
    multiprocessors: int  #: How many its work can use.
    asked: str  #: What was asked for, as `lease` of Broker.tenant.
    state: str  #: "ready", "lost", "ended" or "hung".
    generation: int  #: The number of its context. A later context has a larger number.
    context: int  #: The CUcontext. Never destroy it. It is valid while the generation is in force.
    reason: str  #: Why this kind was granted.


@dataclasses.dataclass(frozen=True)
class Held:
    """What a tenant's code made through its own driver calls and holds now."""

    count: int
    bytes: int  #: Of device memory.


@dataclasses.dataclass(frozen=True)
class Waits:
    """Calls of a tenant's code that waited for the device."""

    count: int
    seconds: float  #: The time that all threads together spent in them.
    longest_seconds: float


@dataclasses.dataclass(frozen=True)
class RealtimeCalls:
    """Calls that held up a tenant's neighbours in real-time sessions."""

    count: int  #: Without those that were refused.
    refused: int
    seconds: float  #: The time that all threads together spent in them.
    longest_seconds: float


def parse_lease(lease: str) -> Tuple[int, int]:
    """Returns the kind and the multiprocessors of "auto", "shared", "private", "green" or "green:16"."""
    match = re.fullmatch(r"(auto|shared|private|green)|green:([1-9][0-9]{0,8})", lease)
    if match is None:
        raise InvalidArgumentError(
            f'"{lease}" is not a lease; use "auto", "shared", "private", "green" or "green:N" with a number of '
            "multiprocessors"
        )
    return (_api.LEASES[match.group(1) or "green"], int(match.group(2) or 0))


def _lease_text(kind: int, multiprocessors: int) -> str:
    name = _api.name_of(_api.LEASES, kind)
    return f"{name}:{multiprocessors}" if multiprocessors else name


def _limit(name: str, given: Optional[int]) -> int:
    if given is None:
        return 0
    if not 0 < given <= NO_LIMIT:
        raise InvalidArgumentError(f"{name} is {given}; a limit is a positive number, NO_LIMIT or None")
    return given


def tenant_options(
    lease: str,
    per_thread_streams: bool,
    unload_at_close: bool,
    limits: Optional[Limits],
    memory: str,
    pinned_ahead: int = 0,
) -> _api.TenantOptions:
    kind, multiprocessors = parse_lease(lease)
    given = limits or Limits()
    device_memory = _limit("device_memory", given.device_memory)
    if memory not in _api.MEMORY_SOURCES:
        raise InvalidArgumentError(f'"{memory}" is not a source of memory; use "auto", "driver" or "pool"')
    if not 0 <= pinned_ahead < NO_LIMIT:
        raise InvalidArgumentError(f"pinned_ahead is {pinned_ahead}; a size in bytes is 0 or a positive number")
    return _api.sized(
        _api.TenantOptions,
        lease=kind,
        multiprocessors=multiprocessors,
        per_thread_streams=per_thread_streams,
        unload_at_close=unload_at_close,
        memory=_api.MEMORY_SOURCES[memory],
        driver_memory_budget=0 if device_memory == NO_LIMIT else device_memory,
        pinned_memory_limit=_limit("pinned_memory", given.pinned_memory),
        stream_limit=_limit("streams", given.streams),
        event_limit=_limit("events", given.events),
        graph_limit=_limit("graphs", given.graphs),
        module_limit=_limit("modules", given.modules),
        context_limit=_limit("contexts", given.contexts),
        pinned_ahead=pinned_ahead,
    )


class Tenant:
    """An open tenant. `Broker.tenant` makes it.

    `with tenant:` makes the tenant's context current on the calling thread. Any thread may use a tenant.
    """

    def __init__(self, broker: Broker, pointer: int, device: int) -> None:
        self._broker = broker
        self.name: str = _api.decode(_api.load().ctxb_tenant_name(pointer))
        self.id: int = _api.load().ctxb_tenant_id(pointer)  #: Its number; 0 for the host.
        self.device = device  #: The device of calls that name none.
        self._handle = Handle(f"tenant {self.name}", pointer, broker._serial)
        self._guard = Guard(self, device, "guard")

    def __repr__(self) -> str:
        return f"<ctxbroker.Tenant {self.name!r}{'' if self._handle.is_open else ', closed'}>"

    @property
    def broker(self) -> Broker:
        return self._broker

    @property
    def closed(self) -> bool:
        return not self._handle.is_open

    def close(self) -> None:
        """Gives back everything that the tenant holds, and ends it.

        Raises WrongStateError while a thread is inside; the tenant is then still open. What hung work may still use is
        given back when that work ends. Closing a closed tenant does nothing.
        """
        self._handle.check_process()
        with self._broker._serial:
            self._handle.close(_api.load().ctxb_tenant_close)
            self._broker._forget(self)

    # ---- Guards ----

    def __enter__(self) -> Tenant:
        return self._guard.__enter__()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._guard.__exit__(kind, error, trace)

    def on(self, device: Optional[int] = None, doing: str = "guard") -> Guard:
        """Returns a guard on a device, for `with`.

        `doing` says what runs inside, as strikes and the timeline name it. The process keeps each text that it is
        given, so do not put numbers into it.
        """
        return Guard(self, self._device(device), doing)

    def run(self, function: Callable[..., _Result], *arguments: Any, **more: Any) -> _Result:
        """Calls a function inside a guard, and returns its result."""
        with self:
            return function(*arguments, **more)

    # ---- Leases ----

    def lease(self, device: Optional[int] = None) -> LeaseInfo:
        """Describes the lease on a device, and creates it at the first use."""
        info = _api.sized(_api.LeaseInfo)
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_lease(pointer, self._device(device), byref(info)))
            return LeaseInfo(
                device=info.device,
                kind=_api.name_of(_api.LEASES, info.kind),
                multiprocessors=info.multiprocessors,
                asked=_lease_text(info.asked_kind, info.asked_multiprocessors),
                state=_api.name_of(_api.STATES, info.state),
                generation=info.generation,
                context=info.context or 0,
                reason=_api.decode(info.reason),
            )

    def report_status(self, driver_status: int, device: Optional[int] = None) -> str:
        """Tells the broker the status (a CUresult) that the tenant's code got from a driver call.

        Returns the lease's state: "ready", "lost", "ended" or "hung".
        """
        with self._handle as pointer:
            state: int = _api.load().ctxb_tenant_report_status(pointer, self._device(device), driver_status)
        return _api.name_of(_api.STATES, state)

    def force_loss(self, reason: str, device: Optional[int] = None) -> None:
        """Gives up the context of the lease, as if it were lost. The next use creates a new one."""
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_force_loss(pointer, self._device(device), _api.encode(reason)))

    def enable_peer_access(self, device: int, peer: int) -> None:
        """Lets kernels on `device` use the tenant's memory on `peer` by its address."""
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_enable_peer_access(pointer, device, peer))

    # ---- Libraries, memory and streams ----

    def adopt(self, path: Union[str, "os.PathLike[str]"], mode: int = os.RTLD_NOW) -> Library:
        """Loads a library for the tenant, with its constructors inside a guard. Its code is then the tenant's.

        Adopt the file of an extension module before the module is imported. The code of a library that is in the
        process already becomes the tenant's from now on. If another tenant uses the library too, it belongs to
        neither, and a record says so. A library that is another tenant's by a pattern, or that serves the whole
        process, is refused.

        :param mode: as for ctypes.CDLL: os.RTLD_NOW or os.RTLD_LAZY, perhaps with os.RTLD_GLOBAL.
        """
        if mode & ~(os.RTLD_NOW | os.RTLD_LAZY | os.RTLD_GLOBAL):
            raise InvalidArgumentError(f"mode is {mode}; it can be os.RTLD_NOW or os.RTLD_LAZY, with os.RTLD_GLOBAL")
        flags = 0 if mode & os.RTLD_NOW or not mode & os.RTLD_LAZY else _api.ADOPTS["lazy"]
        flags |= _api.ADOPTS["global"] if mode & os.RTLD_GLOBAL else 0
        library = c_void_p()
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_adopt_with(pointer, os.fsencode(path), flags, byref(library)))
        return Library(self, pathlib.Path(path), library.value)

    def allocate(self, size: int, device: Optional[int] = None) -> DeviceMemory:
        """Allocates bytes of device memory. The tenant holds them until their release or its close."""
        address = c_uint64()
        on = self._device(device)
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_allocate(pointer, on, _size(size), byref(address)))
        return DeviceMemory(self, on, address.value, size)

    def release(self, memory: Union[DeviceMemory, int]) -> None:
        """Gives device memory back. An address of 0 does nothing."""
        address = memory.address if isinstance(memory, DeviceMemory) else memory
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_release(pointer, address))

    def allocate_shareable(self, size: int, device: Optional[int] = None) -> DeviceMemory:
        """Allocates device memory that other processes can import. Its size is rounded up."""
        address, real = c_uint64(), c_uint64(_size(size))
        on = self._device(device)
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_allocate_shareable(pointer, on, byref(real), byref(address)))
        return DeviceMemory(self, on, address.value, real.value)

    def export_memory(self, memory: Union[DeviceMemory, int]) -> int:
        """Returns a file descriptor of memory from allocate_shareable. Send it to the other process, and close it."""
        address = memory.address if isinstance(memory, DeviceMemory) else memory
        descriptor = c_int32()
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_export_memory(pointer, address, byref(descriptor)))
        return descriptor.value

    def import_memory(self, descriptor: int, size: int, device: Optional[int] = None) -> DeviceMemory:
        """Maps memory of another process, until its release or the tenant's close. The descriptor stays open."""
        address = c_uint64()
        on = self._device(device)
        with self._handle.alone() as pointer:
            call = _api.load().ctxb_tenant_import_memory
            _api.check(call(pointer, on, descriptor, _size(size), byref(address)))
        return DeviceMemory(self, on, address.value, size)

    @property
    def memory_bytes(self) -> int:
        """The bytes of device memory from allocate and allocate_shareable that were not given back."""
        with self._handle as pointer:
            count: int = _api.load().ctxb_tenant_memory_bytes(pointer)
        return count

    def create_stream(self, device: Optional[int] = None) -> Stream:
        """Creates a stream that does not synchronise with the default stream."""
        stream = c_void_p()
        on = self._device(device)
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_create_stream(pointer, on, byref(stream)))
        return Stream(self, on, stream.value or 0)

    def destroy_stream(self, stream: Union[Stream, int]) -> None:
        """Destroys a stream. Work in it still completes."""
        handle = stream.handle if isinstance(stream, Stream) else stream
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_destroy_stream(pointer, handle))

    # ---- What its code did ----

    @property
    def strikes(self) -> int:
        """How often the tenant's code broke the rules."""
        with self._handle as pointer:
            count: int = _api.load().ctxb_tenant_strikes(pointer)
        return count

    def guarded_calls(self, function: Optional[str] = None) -> int:
        """Returns how often the tenant's code called a guarded driver function, such as "cuMemAlloc_v2".

        None: all of them together. Needs the gate.
        """
        with self._handle.alone() as pointer:
            name = None if function is None else _api.encode(function)
            count: int = _api.load().ctxb_tenant_guarded_calls(pointer, name)
            if count == 0 and function is not None:
                # There is no status. The text names the function, so it is not that of another failure.
                text = _api.last_error()
                if text.startswith(f'"{function}" is no guarded function'):
                    raise InvalidArgumentError(text)
        return count

    def held(self, kind: Optional[str] = None) -> Held:
        """Counts what the tenant's code made through its own driver calls and holds now. Needs the gate.

        `kind` is "stream", "device memory", ...; None: all kinds together.
        """
        things, size = c_uint64(), c_uint64()
        with self._handle.alone() as pointer:
            name = None if kind is None else _api.encode(kind)
            _api.check(_api.load().ctxb_tenant_held(pointer, name, byref(things), byref(size)))
        return Held(things.value, size.value)

    def waits(self) -> Waits:
        """Tells how long the tenant's code waited for the device. Needs the gate."""
        waits = _api.sized(_api.WaitTotals)
        with self._handle.alone() as pointer:
            _api.check(_api.load().ctxb_tenant_waits(pointer, byref(waits)))
        return Waits(waits.count, waits.seconds, waits.longest_seconds)

    def realtime_calls(self, call: Optional[str] = None) -> RealtimeCalls:
        """Counts the calls that held up the tenant's neighbours inside `with broker.realtime()`.

        Counting the calls of the tenant's code needs the gate. `call` is a function of the driver without a version,
        such as "cuMemAlloc", or a call of the program or of the broker, such as "load module"; None: all together.
        """
        totals = _api.sized(_api.RealtimeTotals)
        with self._handle.alone() as pointer:
            name = None if call is None else _api.encode(call)
            _api.check(_api.load().ctxb_tenant_realtime(pointer, name, byref(totals)))
        return RealtimeCalls(totals.count, totals.refused, totals.seconds, totals.longest_seconds)

    def _device(self, device: Optional[int]) -> int:
        return self.device if device is None else device


def _size(size: int) -> int:
    if not 0 < size < 2**64:
        raise InvalidArgumentError(f"{size} bytes cannot be allocated; a size is a positive number")
    return size


class Library:
    """A library that was loaded for a tenant. It belongs to the tenant."""

    def __init__(self, tenant: Tenant, path: pathlib.Path, pointer: Optional[int]) -> None:
        self.tenant = tenant
        self.path = path
        self._pointer = pointer

    def __repr__(self) -> str:
        return f"<ctxbroker.Library {str(self.path)!r} of {self.tenant.name!r}>"

    def symbol(self, name: str) -> int:
        """Returns the address of an exported symbol, for a function type of ctypes.

        Raises NotFoundError when the library exports none of that name.
        """
        with self.tenant._handle.alone():
            address: Optional[int] = _api.load().ctxb_library_symbol(self._pointer, _api.encode(name))
        if not address:
            raise NotFoundError(f'{self.path} exports no symbol "{name}"')
        return address


class DeviceMemory:
    """Device memory of a tenant, until `release` or the tenant's close. The end of the object releases nothing."""

    def __init__(self, tenant: Tenant, device: int, address: int, size: int) -> None:
        self.tenant = tenant
        self.device = device
        self.address = address  #: The CUdeviceptr; 0 after the release.
        self.size = size  #: In bytes.

    def __repr__(self) -> str:
        return f"<ctxbroker.DeviceMemory {self.size} bytes at {self.address:#x} of {self.tenant.name!r}>"

    def __int__(self) -> int:
        return self.address

    __index__ = __int__

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """For CuPy, Numba and others: an array of bytes."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def release(self) -> None:
        """Gives the memory back. Releasing it again does nothing."""
        if self.address:
            self.tenant.release(self.address)
            self.address = 0

    def __enter__(self) -> DeviceMemory:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.release()


class Stream:
    """A stream of a tenant, until `destroy` or the tenant's close. The end of the object destroys nothing."""

    def __init__(self, tenant: Tenant, device: int, handle: int) -> None:
        self.tenant = tenant
        self.device = device
        self.handle = handle  #: The CUstream; 0 after `destroy`.

    def __repr__(self) -> str:
        return f"<ctxbroker.Stream {self.handle:#x} of {self.tenant.name!r}>"

    def __int__(self) -> int:
        return self.handle

    __index__ = __int__

    def __cuda_stream__(self) -> Tuple[int, int]:
        """For libraries that take streams of others by NVIDIA's protocol of this name."""
        return (0, self.handle)

    def destroy(self) -> None:
        """Destroys the stream. Work in it still completes. Destroying it again does nothing."""
        if self.handle:
            self.tenant.destroy_stream(self.handle)
            self.handle = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.destroy()
