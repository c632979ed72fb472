# SPDX-License-Identifier: Apache-2.0
"""The broker."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import sys
import threading
import warnings
from ctypes import byref, c_uint32, c_void_p, pointer
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, Union

from . import _api
from ._errors import InvalidArgumentError, WrongStateError
from ._handle import Handle
from ._losses import Losses, OnLoss
from ._records import Records
from ._records import function as record_function
from ._tenant import Limits, Tenant, tenant_options

Policy = Union[Mapping[str, Any], str, "os.PathLike[str]"]

_logger = logging.getLogger("ctxbroker")


@dataclasses.dataclass(frozen=True)
class DriverInfo:
    """The driver in use."""

    kind: str  #: "nvidia" or "software".
    version: int  #: As cuDriverGetVersion reports it: 13000 is 13.0.
    path: str  #: The loaded file.
    reason: str  #: Why this driver.


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """One device."""

    device: int  #: Its ordinal.
    name: str
    compute_capability: Tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    in_use: bool  #: False: the broker has created nothing on it.
    shielded: bool  #: The driver refuses to destroy its primary context.
    mps: bool  #: The process uses it through an MPS server.
    memory_pools: bool  #: The driver has memory pools on it: see `memory` of Broker.tenant.
    pinned_pools: bool  #: The same for pinned host memory near it.


@dataclasses.dataclass(frozen=True)
class GateInfo:
    """What the gate can do in this process."""

    in_force: bool
    mode: str  #: "none", "before_driver" or "late".
    reason: str  #: Why it is not in force, or how it came into the process.
    tools: Tuple[str, ...]  #: One line for each profiler, checker, debugger or interposer in the process.


@dataclasses.dataclass(frozen=True)
class TimelineSummary:
    """What was written of a timeline."""

    spans: int
    dropped: int  #: Spans that did not fit into memory.
    threads: int  #: Threads that recorded something.


@dataclasses.dataclass(frozen=True)
class RunningCall:
    """A function of a plug-in that runs now, or a wait for a plug-in's work on the device."""

    plugin: str  #: Its id. "": a function of the whole library.
    library: str
    function: str
    thread: int  #: The system's number of the thread.
    elapsed: float  #: How long it has run, in seconds.


def version() -> str:
    """Returns the version of the broker's library."""
    return _api.decode(_api.load().ctxb_version())


def name_crashes(on: bool = True) -> None:
    """Switches on or off that a crash names the plug-in in one line on standard error."""
    _api.load().ctxb_name_crashes(1 if on else 0)


def running_calls() -> List[RunningCall]:
    """Returns what plug-ins do now: of each thread the innermost call."""
    calls: List[RunningCall] = []
    raised: List[BaseException] = []

    def take(_data: object, address: int) -> None:
        try:
            call = _api.RunningCall.from_address(address)
            calls.append(
                RunningCall(
                    plugin=_api.decode(call.plugin),
                    library=_api.decode(call.library),
                    function=_api.decode(call.function),
                    thread=call.thread,
                    elapsed=call.elapsed_ns / 1e9,
                )
            )
        except BaseException as error:  # of a signal handler: ctypes would print it and go on
            raised.append(error)

    _api.check(_api.load().ctxb_running_calls(_api.RunningFunction(take), None))
    if raised:
        raise raised[0]
    return calls


# ---- Opening -----------------------------------------------------------------------------------


def _policy_members(policy: Optional[Policy]) -> Dict[str, bytes]:
    if policy is None:
        return {}
    if isinstance(policy, Mapping):
        document = {"schema": "ctxbroker.policy/1", **policy}
        return {"policy_text": _api.encode(json.dumps(document))}
    if isinstance(policy, str) and policy.lstrip().startswith("{"):
        return {"policy_text": _api.encode(policy)}
    return {"policy_file": os.fsencode(policy)}


def _milliseconds(name: str, seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    if not 0 < seconds < 4_000_000:
        raise InvalidArgumentError(f"{name} is {seconds}; it is a positive number of seconds, or None")
    return max(1, round(seconds * 1000))


def open(
    *,
    driver: Optional[str] = None,
    policy: Optional[Policy] = None,
    host_name: str = "python",
    host_version: Optional[str] = None,
    host_lease: str = "auto",
    host_limits: Optional[Limits] = None,
    host_memory: str = "auto",
    host_on_loss: Optional[OnLoss] = None,
    ready_green: int = 0,
    ready_private: int = 0,
    ready_bytes: int = 0,
    gate: bool = True,
    job_timeout: Optional[float] = None,
    end_timeout: Optional[float] = None,
    software_device: Optional[Union[str, "os.PathLike[str]"]] = None,
    logger: Optional[logging.Logger] = _logger,
) -> Broker:
    """Loads a driver and opens a broker. It creates nothing on a device.

    Call it before anything loads the driver: before PyTorch, CuPy and others are imported. Then the gate stands before
    the driver. Otherwise it is late, and `broker.gate` says what it cannot hold.

    :param driver: "auto", "nvidia" or "software". None: CTXBROKER_DRIVER, or "auto".
    :param policy: what users decide for tenants by their names: a dict, JSON text that begins with "{", or a file's
        path. docs/policy.schema.json describes it. A dict may leave out "schema".
    :param host_name: how plug-ins hear this program's name.
    :param host_lease: the lease of this program's own tenant, which `Broker.host` gives, as for Broker.tenant.
    :param host_memory: the source of the device memory of this program's own tenant, as for Broker.tenant.
    :param ready_green: green contexts to create ahead of need, on each device in use.
    :param ready_private: private contexts to create ahead of need.
    :param ready_bytes: device memory for contexts made ahead. 0: 64 MiB.
    :param gate: False: no gate between the tenants' code and the driver.
    :param job_timeout: a job that takes longer is hung, in seconds. None: no limit.
    :param end_timeout: how long a close waits for each stream, in seconds. None: 2.
    :param software_device: the software device's file. None: the one of the package.
    :param logger: takes the broker's records. None: they are dropped.
    :raises InvalidArgumentError: for options or a policy that are not allowed.
    :raises UnavailableError: without the driver or a device.
    """
    library = _api.load()
    host = tenant_options(host_lease, False, False, host_limits, host_memory)
    losses = Losses()
    losses.put_into(host, "host", host_on_loss)
    options = _api.sized(
        _api.BrokerOptions,
        ready_green=ready_green,
        ready_private=ready_private,
        ready_bytes=ready_bytes,
        without_gate=not gate,
        host_name=_api.encode(host_name),
        host_version=None if host_version is None else _api.encode(host_version),
        driver=None if driver is None else _api.encode(driver),
        software_device=None if software_device is None else os.fsencode(software_device),
        job_timeout_ms=_milliseconds("job_timeout", job_timeout),
        end_timeout_ms=_milliseconds("end_timeout", end_timeout),
        host=pointer(host),
        **_policy_members(policy),
    )
    records = None if logger is None else Records(logger)
    if records is not None:
        options.record, options.record_data = record_function(), records.queue
    opened = c_void_p()
    status: int = library.ctxb_broker_open(byref(options), byref(opened))
    if status < 0:
        try:
            _api.check(status)
        finally:
            losses.end()
            if records is not None:
                records.destroy()
    if records is not None:
        records.start()
    return Broker(opened.value or 0, records, losses)


class Broker:
    """An open broker. `ctxbroker.open` makes it. Any thread may use it.

    The end of `with broker:` closes the tenants that are still open, and then the broker.
    """

    def __init__(self, opened: int, records: Optional[Records], losses: Losses) -> None:
        self._serial = threading.RLock()  # for the calls that the C API takes one at a time
        self._handle = Handle("the broker", opened, self._serial)
        self._records = records
        self._losses = losses
        self._tenants: List[Tenant] = []

    def __repr__(self) -> str:
        return f"<ctxbroker.Broker{'' if self._handle.is_open else ', closed'}>"

    # ---- Its end ----

    @property
    def closed(self) -> bool:
        return not self._handle.is_open

    def close(self) -> None:
        """Closes the broker. Raises WrongStateError while it has tenants; it is then still open.

        Closing a closed broker does nothing.
        """
        self._handle.check_process()
        with self._serial:
            if self._handle.is_open and self._tenants:
                names = ", ".join(one.name for one in self._tenants)
                raise WrongStateError(f"the broker still has open tenants: {names}. Close them first")
            self._handle.close(_api.load().ctxb_broker_close)
            self._losses.end()
            records, self._records = self._records, None
        if records is not None:
            records.destroy()  # without the lock, which a handler of the logger may want

    def close_all(self) -> None:
        """Closes the tenants that are still open, and then the broker."""
        self._handle.check_process()
        with self._serial:
            for tenant in reversed(list(self._tenants)):
                tenant.close()
        self.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._handle.is_copy:
            return  # in a forked process, the broker is the first one's
        try:
            self.close_all()
        except Exception as failure:
            if error is None:
                raise
            _logger.error("the broker could not be closed: %s", failure)  # the error inside goes on

    def __del__(self) -> None:
        try:
            if not self._handle.is_open or sys.is_finalizing():
                return
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self.close_all()
        except Exception:
            pass

    def _forget(self, tenant: Tenant) -> None:
        if tenant in self._tenants:
            self._tenants.remove(tenant)

    # ---- What it is ----

    @property
    def driver(self) -> DriverInfo:
        """The driver in use."""
        info = _api.sized(_api.DriverInfo)
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_driver(broker, byref(info)))
            return DriverInfo(
                kind=_api.name_of(_api.DRIVERS, info.kind),
                version=info.version,
                path=_api.decode(info.path),
                reason=_api.decode(info.reason),
            )

    @property
    def devices(self) -> Tuple[DeviceInfo, ...]:
        """The devices, as they are now."""
        with self._handle as broker:
            count = _api.load().ctxb_broker_device_count(broker)
            return tuple(self._device(broker, one) for one in range(count))

    @staticmethod
    def _device(broker: int, device: int) -> DeviceInfo:
        info = _api.sized(_api.DeviceInfo)
        _api.check(_api.load().ctxb_broker_device(broker, device, byref(info)))
        return DeviceInfo(
            device=info.device,
            name=_api.decode(info.name),
            compute_capability=(info.compute_major, info.compute_minor),
            multiprocessors=info.multiprocessors,
            memory_bytes=info.memory_bytes,
            in_use=bool(info.in_use),
            shielded=bool(info.shielded),
            mps=bool(info.mps),
            memory_pools=bool(info.memory_pools),
            pinned_pools=bool(info.pinned_pools),
        )

    @property
    def gate(self) -> GateInfo:
        """Whether the gate stands between the tenants' code and the driver."""
        info = _api.sized(_api.GateInfo)
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_gate(broker, byref(info)))
            tools = itertools.takewhile(lambda one: one is not None, info.tools) if info.tools else ()
            return GateInfo(
                in_force=bool(info.in_force),
                mode=_api.name_of(_api.GATES, info.mode),
                reason=_api.decode(info.reason),
                tools=tuple(_api.decode(one) for one in tools),
            )

    def use_device(self, device: int) -> None:
        """Retains a device's primary context and raises the shield there. The first lease on it does that too."""
        with self._handle as broker:
            _api.check(_api.load().ctxb_broker_use_device(broker, device))

    # ---- Tenants ----

    def tenant(
        self,
        name: str,
        lease: str = "auto",
        *,
        device: int = 0,
        on_loss: Optional[OnLoss] = None,
        limits: Optional[Limits] = None,
        memory: str = "auto",
        pinned_ahead: int = 0,
        per_thread_streams: bool = False,
        unload_at_close: bool = False,
    ) -> Tenant:
        """Opens a tenant. If the policy's patterns name it, this is another handle of that tenant.

        :param name: what records call it, and the id under which a policy knows it.
        :param lease: "auto", "shared", "private", "green", or "green:N" for at least N multiprocessors of its own.
            "auto" leaves the choice to the policy.
        :param device: the device of calls that name none.
        :param on_loss: called by `poll` for each generation of a lease that was lost.
        :param limits: how much its code may hold through its own driver calls.
        :param memory: the source of its device memory and pinned memory: "driver" for the driver's own allocations, or
            "pool" for pools of its own, so that a free waits for no neighbour. "auto" leaves the choice to the policy.
        :param pinned_ahead: bytes of pinned memory that its pool takes when a lease is made, and keeps. 0 leaves the size
            to the policy.
        :param per_thread_streams: its code uses the per-thread default stream, which excludes green leases.
        :param unload_at_close: close unloads its libraries, unless the driver may still call functions of them.
        """
        options = tenant_options(lease, per_thread_streams, unload_at_close, limits, memory, pinned_ahead)
        opened = c_void_p()
        with self._handle.alone() as broker:
            self._losses.put_into(options, name, on_loss)
            _api.check(_api.load().ctxb_tenant_open(broker, _api.encode(name), byref(options), byref(opened)))
            return self._add(opened, device)

    def host(self, *, device: int = 0) -> Tenant:
        """Returns a handle of this program's own tenant. Closing the last one ends it."""
        opened = c_void_p()
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_host(broker, byref(opened)))
            return self._add(opened, device)

    def _add(self, opened: c_void_p, device: int) -> Tenant:
        tenant = Tenant(self, opened.value or 0, device)
        self._tenants.append(tenant)
        return tenant

    @property
    def tenants(self) -> Tuple[Tenant, ...]:
        """The handles of tenants that are open."""
        return tuple(self._tenants)

    # ---- At run time ----

    def poll(self) -> None:
        """Does the work that belongs on the main thread, and calls the tenants' `on_loss` on the calling thread.

        Call it regularly; it is cheap when there is nothing to do. The callbacks may use the broker. An exception of a
        callback goes on from here, after all callbacks have been called. If several raise, the further ones are logged.
        """
        try:
            with self._handle.alone() as broker:
                _api.check(_api.load().ctxb_broker_poll(broker))
        finally:
            records = self._records
            if records is not None:
                records.flush()
            self._losses.deliver()

    def metrics(self) -> Dict[str, Any]:
        """Returns what every tenant used so far and holds now, by the schema "ctxbroker.metrics/1"."""
        with self._handle.alone() as broker:
            text = _api.written(lambda take: _api.load().ctxb_broker_write_metrics(broker, take, None))
        document: Dict[str, Any] = json.loads(text)
        return document

    @contextlib.contextmanager
    def realtime(self) -> Iterator[None]:
        """Begins a real-time session, which lasts as long as `with`.

        The broker creates no ready contexts in it, destroys no context and unloads no module on its own. It counts the
        calls with which a tenant holds up its neighbours: `Tenant.realtime_calls`. Sessions nest.
        """
        with self._handle as broker:
            _api.check(_api.load().ctxb_broker_begin_realtime(broker))
        try:
            yield
        finally:
            with self._handle as broker:
                _api.check(_api.load().ctxb_broker_end_realtime(broker))

    def wait_until_ready(self) -> bool:
        """Waits until the ready contexts exist, as far as their budget allows. True: nothing is left to create."""
        ready = c_uint32()
        with self._handle as broker:
            _api.check(_api.load().ctxb_broker_wait_until_ready(broker, byref(ready)))
        return bool(ready.value)

    # ---- Timeline ----

    def start_timeline(self, memory_bytes: int = 0) -> None:
        """Begins to record the timeline, of which a process has one. 0: 64 MiB of memory, 128 bytes a span."""
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_start_timeline(broker, memory_bytes))

    def stop_timeline(self) -> None:
        """Ends recording. What was recorded stays until the next start."""
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_stop_timeline(broker))

    def write_timeline(self, path: Union[str, "os.PathLike[str]"]) -> TimelineSummary:
        """Ends recording and writes a file that Perfetto and chrome://tracing open."""
        summary = _api.sized(_api.TimelineSummary)
        with self._handle.alone() as broker:
            _api.check(_api.load().ctxb_broker_write_timeline(broker, os.fsencode(path), byref(summary)))
        return TimelineSummary(summary.spans, summary.dropped, summary.threads)
