# SPDX-License-Identifier: Apache-2.0
"""The broker's C API, declared once: ctxbroker/host.h, host_memory.h, host_diagnosis.h, host_records.h, host_scan.h.

tests/test_api.py compares the structs, constants and functions with the headers.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from . import _files
from ._errors import error_of

# ---- Constants ---------------------------------------------------------------------------------

OK = 0
AGAIN = 1
ERROR = -1

LEASES = {"auto": 0, "shared": 1, "private": 2, "green": 3, "worker": 4}
MEMORY_SOURCES = {"auto": 0, "driver": 1, "pool": 2}
STATES = {"ready": 0, "lost": 1, "ended": 2, "hung": 3}
LOSSES = {"given_up": 1, "destroyed": 2, "fault": 3, "hung": 4}
SEVERITIES = {"debug": 0, "info": 1, "warning": 2, "error": 3}
DRIVERS = {"nvidia": 1, "software": 2}
GATES = {"none": 0, "before_driver": 1, "late": 2}
ADOPTS = {"lazy": 1, "global": 2}
NO_LIMIT = 2**64 - 1


def name_of(names: Dict[str, int], number: int) -> str:
    """Returns the name of a number. A later broker may have more of them."""
    return next((name for name, one in names.items() if one == number), str(number))


# ---- Callbacks ---------------------------------------------------------------------------------

TextFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64)
LossFunction = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
RunningFunction = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)

# ---- Structs -----------------------------------------------------------------------------------


class LeaseLoss(Structure):
    c_name = "ctxb_lease_loss"
    _fields_ = [
        ("size", c_uint32),
        ("tenant", c_uint32),
        ("device", c_int32),
        ("reason", c_uint32),
        ("generation", c_uint64),
        ("driver_status", c_int32),
        ("reserved", c_uint32),
        ("text", c_char_p),
    ]


class TenantOptions(Structure):
    c_name = "ctxb_tenant_options"
    _fields_ = [
        ("size", c_uint32),
        ("lease", c_uint32),
        ("multiprocessors", c_uint32),
        ("per_thread_streams", c_uint32),
        ("unload_at_close", c_uint32),
        ("memory", c_uint32),
        ("driver_memory_budget", c_uint64),
        ("on_loss", LossFunction),
        ("on_loss_data", c_void_p),
        ("pinned_memory_limit", c_uint64),
        ("stream_limit", c_uint64),
        ("event_limit", c_uint64),
        ("graph_limit", c_uint64),
        ("module_limit", c_uint64),
        ("context_limit", c_uint64),
        ("pinned_ahead", c_uint64),
    ]


class BrokerOptions(Structure):
    c_name = "ctxb_broker_options"
    _fields_ = [
        ("size", c_uint32),
        ("ready_green", c_uint32),
        ("ready_private", c_uint32),
        ("without_gate", c_uint32),
        ("ready_bytes", c_uint64),
        ("host_name", c_char_p),
        ("host_version", c_char_p),
        ("driver", c_char_p),
        ("software_device", c_char_p),
        ("record", c_void_p),  # a function of the library, never one of Python: see _records.py
        ("record_data", c_void_p),
        ("policy_file", c_char_p),
        ("policy_text", c_char_p),
        ("job_timeout_ms", c_uint32),
        ("end_timeout_ms", c_uint32),
        ("host", POINTER(TenantOptions)),
    ]


class DriverInfo(Structure):
    c_name = "ctxb_driver_info"
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_uint32),
        ("version", c_int32),
        ("reserved", c_uint32),
        ("path", c_char_p),
        ("reason", c_char_p),
    ]


class DeviceInfo(Structure):
    c_name = "ctxb_device_info"
    _fields_ = [
        ("size", c_uint32),
        ("device", c_int32),
        ("name", c_char_p),
        ("compute_major", c_uint32),
        ("compute_minor", c_uint32),
        ("multiprocessors", c_uint32),
        ("in_use", c_uint32),
        ("shielded", c_uint32),
        ("mps", c_uint32),
        ("memory_bytes", c_uint64),
        ("memory_pools", c_uint32),
        ("pinned_pools", c_uint32),
    ]


class GateInfo(Structure):
    c_name = "ctxb_gate_info"
    _fields_ = [
        ("size", c_uint32),
        ("in_force", c_uint32),
        ("mode", c_uint32),
        ("reserved", c_uint32),
        ("reason", c_char_p),
        ("tools", POINTER(c_char_p)),
    ]


class TimelineSummary(Structure):
    c_name = "ctxb_timeline_summary"
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("spans", c_uint64),
        ("dropped", c_uint64),
        ("threads", c_uint64),
    ]


class LeaseInfo(Structure):
    c_name = "ctxb_lease_info"
    _fields_ = [
        ("size", c_uint32),
        ("device", c_int32),
        ("kind", c_uint32),
        ("multiprocessors", c_uint32),
        ("asked_kind", c_uint32),
        ("asked_multiprocessors", c_uint32),
        ("state", c_uint32),
        ("reserved", c_uint32),
        ("generation", c_uint64),
        ("context", c_void_p),
        ("tenant", c_char_p),
        ("reason", c_char_p),
    ]


class WaitTotals(Structure):
    c_name = "ctxb_wait_totals"
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("count", c_uint64),
        ("seconds", c_double),
        ("longest_seconds", c_double),
    ]


class RealtimeTotals(Structure):
    c_name = "ctxb_realtime_totals"
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("count", c_uint64),
        ("refused", c_uint64),
        ("seconds", c_double),
        ("longest_seconds", c_double),
    ]


class Guard(Structure):
    c_name = "ctxb_guard"
    _fields_ = [("reserved", c_void_p * 64)]


class RunningCall(Structure):
    c_name = "ctxb_running_call"
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("plugin", c_char_p),
        ("library", c_char_p),
        ("function", c_char_p),
        ("thread", c_uint64),
        ("elapsed_ns", c_uint64),
    ]


class QueuedRecord(Structure):
    c_name = "ctxb_queued_record"
    _fields_ = [
        ("size", c_uint32),
        ("severity", c_uint32),
        ("tenant", c_uint32),
        ("reserved", c_uint32),
        ("time_ns", c_uint64),
        ("thread", c_uint64),
        ("lost_before", c_uint64),
        ("tenant_name", c_char_p),
        ("topic", c_char_p),
        ("text", c_char_p),
    ]


class ScanOptions(Structure):
    c_name = "ctxb_scan_options"
    _fields_ = [
        ("size", c_uint32),
        ("deadline_ms", c_uint32),
        ("first", POINTER(c_char_p)),
        ("beside", POINTER(c_char_p)),
        ("allow", POINTER(c_char_p)),
        ("deny", POINTER(c_char_p)),
        ("at_once", c_uint32),
        ("without_environment", c_uint32),
        ("without_standard", c_uint32),
        ("safe", c_uint32),
        ("rescan", c_uint32),
        ("without_cache", c_uint32),
        ("cache_file", c_char_p),
        ("choices_file", c_char_p),
        ("program", c_char_p),
        ("progress", c_void_p),
        ("progress_data", c_void_p),
    ]


STRUCTS: List[Type[Structure]] = [
    LeaseLoss,
    TenantOptions,
    BrokerOptions,
    DriverInfo,
    DeviceInfo,
    GateInfo,
    TimelineSummary,
    LeaseInfo,
    WaitTotals,
    RealtimeTotals,
    Guard,
    RunningCall,
    QueuedRecord,
    ScanOptions,
]

_Struct = TypeVar("_Struct", bound=Structure)


def sized(struct: Type[_Struct], **members: object) -> _Struct:
    """Returns a struct that says its size, with these members."""
    return struct(size=sizeof(struct), **members)


# ---- Functions ---------------------------------------------------------------------------------

# Name: result, parameters. A handle is a c_void_p. What returns a ctxb_status has the result c_int32.
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "ctxb_version": (c_char_p, []),
    "ctxb_last_error": (c_char_p, []),
    "ctxb_broker_open": (c_int32, [c_void_p, c_void_p]),
    "ctxb_broker_close": (c_int32, [c_void_p]),
    "ctxb_broker_driver": (c_int32, [c_void_p, c_void_p]),
    "ctxb_broker_device_count": (c_uint32, [c_void_p]),
    "ctxb_broker_device": (c_int32, [c_void_p, c_int32, c_void_p]),
    "ctxb_broker_use_device": (c_int32, [c_void_p, c_int32]),
    "ctxb_broker_gate": (c_int32, [c_void_p, c_void_p]),
    "ctxb_broker_begin_realtime": (c_int32, [c_void_p]),
    "ctxb_broker_end_realtime": (c_int32, [c_void_p]),
    "ctxb_broker_wait_until_ready": (c_int32, [c_void_p, c_void_p]),
    "ctxb_broker_poll": (c_int32, [c_void_p]),
    "ctxb_broker_write_metrics": (c_int32, [c_void_p, TextFunction, c_void_p]),
    "ctxb_broker_start_timeline": (c_int32, [c_void_p, c_uint64]),
    "ctxb_broker_stop_timeline": (c_int32, [c_void_p]),
    "ctxb_broker_write_timeline": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "ctxb_tenant_open": (c_int32, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "ctxb_broker_host": (c_int32, [c_void_p, c_void_p]),
    "ctxb_tenant_close": (c_int32, [c_void_p]),
    "ctxb_tenant_id": (c_uint32, [c_void_p]),
    "ctxb_tenant_name": (c_char_p, [c_void_p]),
    "ctxb_tenant_lease": (c_int32, [c_void_p, c_int32, c_void_p]),
    "ctxb_tenant_report_status": (c_uint32, [c_void_p, c_int32, c_int32]),
    "ctxb_tenant_force_loss": (c_int32, [c_void_p, c_int32, c_char_p]),
    "ctxb_tenant_enable_peer_access": (c_int32, [c_void_p, c_int32, c_int32]),
    "ctxb_tenant_adopt_with": (c_int32, [c_void_p, c_char_p, c_uint32, c_void_p]),
    "ctxb_library_symbol": (c_void_p, [c_void_p, c_char_p]),
    "ctxb_tenant_create_stream": (c_int32, [c_void_p, c_int32, c_void_p]),
    "ctxb_tenant_destroy_stream": (c_int32, [c_void_p, c_void_p]),
    "ctxb_tenant_strikes": (c_uint64, [c_void_p]),
    "ctxb_tenant_guarded_calls": (c_uint64, [c_void_p, c_char_p]),
    "ctxb_tenant_held": (c_int32, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "ctxb_tenant_waits": (c_int32, [c_void_p, c_void_p]),
    "ctxb_tenant_realtime": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "ctxb_tenant_enter": (c_int32, [c_void_p, c_int32, c_char_p, c_void_p]),
    "ctxb_guard_leave": (None, [c_void_p]),
    "ctxb_tenant_allocate": (c_int32, [c_void_p, c_int32, c_uint64, c_void_p]),
    "ctxb_tenant_release": (c_int32, [c_void_p, c_uint64]),
    "ctxb_tenant_memory_bytes": (c_uint64, [c_void_p]),
    "ctxb_tenant_allocate_shareable": (c_int32, [c_void_p, c_int32, c_void_p, c_void_p]),
    "ctxb_tenant_export_memory": (c_int32, [c_void_p, c_uint64, c_void_p]),
    "ctxb_tenant_import_memory": (c_int32, [c_void_p, c_int32, c_int32, c_uint64, c_void_p]),
    "ctxb_name_crashes": (None, [c_uint32]),
    "ctxb_running_calls": (c_int32, [RunningFunction, c_void_p]),
    "ctxb_record_queue_create": (c_int32, [c_uint32, c_void_p]),
    "ctxb_record_queue_take": (c_int32, [c_void_p, c_uint32, c_void_p]),
    "ctxb_record_queue_wake": (None, [c_void_p]),
    "ctxb_record_queue_destroy": (c_int32, [c_void_p]),
    "ctxb_scan_run": (c_int32, [c_void_p, c_void_p]),
    "ctxb_scan_end": (c_int32, [c_void_p]),
    "ctxb_scan_write": (c_int32, [c_void_p, TextFunction, c_void_p]),
}

_loading = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def load() -> ctypes.CDLL:
    """Returns the broker's library, and loads it at the first call. Loading it loads no driver and no gate."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                library = ctypes.CDLL(str(_files.find("lib", _files.SONAME)))
                for name, (result, parameters) in FUNCTIONS.items():
                    function = getattr(library, name)
                    function.restype, function.argtypes = result, parameters
                _loaded = library
    return _loaded


def last_error() -> str:
    """Returns why the last call that failed on this thread did so."""
    text: Optional[bytes] = load().ctxb_last_error()
    return decode(text)


def check(status: int) -> None:
    """Raises the exception for a status that is an error. Call it on the thread of the failed call."""
    if status < 0:
        raise error_of(status, last_error())


def decode(text: Optional[bytes]) -> str:
    """Returns a text of the library. Names of files need not be UTF-8."""
    return "" if text is None else text.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Returns a text for the library. Raises ValueError for a text that C would cut."""
    if "\0" in text:
        raise ValueError(f"the text {text!r} has a null character in it")
    return text.encode("utf-8", "surrogateescape")


def written(write: Callable[[Any], int]) -> str:
    """Returns the text that a function of the library writes.

    `write` passes a TextFunction to the library. A signal handler may raise an exception in the callback; it goes
    on from here.
    """
    pieces: List[bytes] = []
    raised: List[BaseException] = []

    def take(_data: object, text: int, length: int) -> int:
        try:
            pieces.append(ctypes.string_at(text, length))
            return OK
        except BaseException as error:  # ctypes would print it and go on
            raised.append(error)
            return ERROR

    status = write(TextFunction(take))
    if raised:
        raise raised[0]
    check(status)
    return b"".join(pieces).decode("utf-8", "surrogateescape")

