# SPDX-License-Identifier: Apache-2.0
"""A host in Python: the broker's C functions, tenants and guards, by ctypes.

Stands in bin/, beside lib/.
"""

import ctypes
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# ---- The broker's C host API: ctxbroker/host.h -------------------------------------------------

u32, u64, i32, text, pointer = (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_char_p,
                                ctypes.c_void_p)
RecordFunction = ctypes.CFUNCTYPE(None, pointer, u32, u32, text, text, text)
LEASES = {"auto": 0, "shared": 1, "private": 2, "green": 3}


class TenantOptions(ctypes.Structure):
    _fields_ = [("size", u32), ("lease", u32), ("multiprocessors", u32),
                ("per_thread_streams", u32), ("unload_at_close", u32), ("reserved", u32),
                ("driver_memory_budget", u64), ("on_loss", pointer), ("on_loss_data", pointer)]


class BrokerOptions(ctypes.Structure):
    _fields_ = [("size", u32), ("ready_green", u32), ("ready_private", u32), ("without_gate", u32),
                ("ready_bytes", u64), ("host_name", text), ("host_version", text),
                ("driver", text), ("software_device", text), ("record", RecordFunction),
                ("record_data", pointer), ("policy_file", text), ("policy_text", text),
                ("job_timeout_ms", u32), ("end_timeout_ms", u32),
                ("host", ctypes.POINTER(TenantOptions))]


class GateInfo(ctypes.Structure):
    _fields_ = [("size", u32), ("in_force", u32), ("mode", u32), ("reserved", u32),
                ("reason", text), ("tools", ctypes.POINTER(text))]


class LeaseInfo(ctypes.Structure):
    _fields_ = [("size", u32), ("device", i32), ("kind", u32), ("multiprocessors", u32),
                ("asked_kind", u32), ("asked_multiprocessors", u32), ("state", u32),
                ("reserved", u32), ("generation", u64), ("context", pointer), ("tenant", text),
                ("reason", text)]


class GuardFrame(ctypes.Structure):
    _fields_ = [("reserved", pointer * 64)]


def sized(structure, **members):
    return structure(size=ctypes.sizeof(structure), **members)


class Api:
    """Every function with its types; what returns a status raises its sentence."""

    def __init__(self):
        self.library = ctypes.CDLL(str(ROOT / "lib" / "libctxbroker.so"))
        self.library.ctxb_last_error.restype = text
        for name, result, arguments in [
                ("broker_open", i32, [pointer, pointer]),
                ("broker_close", i32, [pointer]),
                ("broker_gate", i32, [pointer, pointer]),
                ("tenant_open", i32, [pointer, text, pointer, pointer]),
                ("tenant_close", i32, [pointer]),
                ("tenant_lease", i32, [pointer, i32, pointer]),
                ("tenant_adopt", i32, [pointer, text, pointer]),
                ("tenant_strikes", u64, [pointer]),
                ("tenant_guarded_calls", u64, [pointer, text]),
                ("library_symbol", pointer, [pointer, text]),
                ("tenant_enter", i32, [pointer, i32, text, pointer]),
                ("guard_leave", None, [pointer])]:
            function = getattr(self.library, "ctxb_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, self.checked(name, function) if result is i32 else function)

    def checked(self, name, function):
        def call(*arguments):
            status = function(*arguments)
            if status != 0:
                raise RuntimeError(f"{name}: {status}: {self.library.ctxb_last_error().decode()}")
        return call


class Broker:
    def __init__(self, host_name, records):
        self.api = Api()
        self.handle = pointer()
        # Called on whatever thread something happens, and takes Python's lock there.
        self.record = RecordFunction(print_record) if records else RecordFunction()
        options = sized(BrokerOptions, host_name=host_name.encode(), record=self.record)
        self.api.broker_open(ctypes.byref(options), ctypes.byref(self.handle))
        gate = sized(GateInfo)
        self.api.broker_gate(self.handle, ctypes.byref(gate))
        if not gate.in_force:
            raise RuntimeError("the gate is not in force: " + gate.reason.decode())

    def close(self):
        self.api.broker_close(self.handle)


def print_record(_data, severity, _tenant, name, topic, words):
    if severity >= 1:
        print(f"# {name.decode()}: {topic.decode()}: {words.decode()}", file=sys.stderr)


class Tenant:
    def __init__(self, broker, name, lease, multiprocessors=0):
        self.api, self.name, self.handle = broker.api, name, pointer()
        options = sized(TenantOptions, lease=LEASES[lease], multiprocessors=multiprocessors)
        self.api.tenant_open(broker.handle, name.encode(), ctypes.byref(options),
                             ctypes.byref(self.handle))

    def adopt(self, path):
        library = pointer()
        self.api.tenant_adopt(self.handle, str(path).encode(), ctypes.byref(library))
        return lambda symbol: self.api.library_symbol(library, symbol.encode())

    def lease(self):
        info = sized(LeaseInfo)
        self.api.tenant_lease(self.handle, 0, ctypes.byref(info))
        return info

    def inside(self, doing):
        return Guard(self, doing)

    def calls(self, function):
        return self.api.tenant_guarded_calls(self.handle, function.encode())

    def strikes(self):
        return self.api.tenant_strikes(self.handle)

    def close(self):
        self.api.tenant_close(self.handle)


class Guard:
    """On one thread, from `with` to its end."""

    def __init__(self, tenant, doing):
        self.tenant, self.doing, self.frame = tenant, doing.encode(), GuardFrame()

    def __enter__(self):
        self.tenant.api.tenant_enter(self.tenant.handle, 0, self.doing, ctypes.byref(self.frame))

    def __exit__(self, *_):
        self.tenant.api.guard_leave(ctypes.byref(self.frame))


class Nowhere:
    """What stands in a tenant's place without a broker."""

    name = "nobody"

    def __init__(self, *_):
        self.libraries = []

    def adopt(self, path):
        library = ctypes.CDLL(str(path))
        self.libraries.append(library)
        return lambda symbol: ctypes.cast(getattr(library, symbol), pointer).value

    def inside(self, _doing):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


# ---- The driver, as everybody finds it ---------------------------------------------------------


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {status}")

    def context_of(self, address):
        context = pointer()
        attribute_context = 1
        self.call("cuPointerGetAttribute", ctypes.byref(context), ctypes.c_int(attribute_context),
                  u64(address))
        return context.value

    def primary(self):
        """Retained for good: it is the last thing that is asked."""
        context = pointer()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        return context.value
