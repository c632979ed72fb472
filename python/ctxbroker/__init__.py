# SPDX-License-Identifier: Apache-2.0
"""ctxbroker keeps CUDA plug-ins of people who never met apart, in one process.

    import ctxbroker

    with ctxbroker.open() as broker:  # before anything loads the CUDA driver
        filters = broker.tenant("filters", lease="green:16")
        library = filters.adopt("libfilters.so")
        with filters:
            ...  # the tenant's context is current on this thread

docs/python.md is the guide.
"""

from ._broker import (
    Broker,
    DeviceInfo,
    DriverInfo,
    GateInfo,
    RunningCall,
    TimelineSummary,
    name_crashes,
    open,
    running_calls,
    version,
)
from ._errors import (
    ClosedError,
    ContextLostError,
    DeadlineError,
    DriverError,
    Error,
    ForkedError,
    GuardError,
    InvalidArgumentError,
    MissingFileError,
    NoKernelImageError,
    NotFoundError,
    OutOfDeviceMemoryError,
    OutOfHostMemoryError,
    SystemLimitError,
    UnavailableError,
    UnsupportedError,
    VersionError,
    WrongStateError,
)
from ._guard import Guard
from ._losses import Loss
from ._tenant import (
    NO_LIMIT,
    DeviceMemory,
    Held,
    LeaseInfo,
    Library,
    Limits,
    RealtimeCalls,
    Stream,
    Tenant,
    Waits,
)

__all__ = [
    "NO_LIMIT",
    "Broker",
    "ClosedError",
    "ContextLostError",
    "DeadlineError",
    "DeviceInfo",
    "DeviceMemory",
    "DriverError",
    "DriverInfo",
    "Error",
    "ForkedError",
    "GateInfo",
    "Guard",
    "GuardError",
    "Held",
    "InvalidArgumentError",
    "LeaseInfo",
    "Library",
    "Limits",
    "Loss",
    "MissingFileError",
    "NoKernelImageError",
    "NotFoundError",
    "OutOfDeviceMemoryError",
    "OutOfHostMemoryError",
    "RealtimeCalls",
    "RunningCall",
    "Stream",
    "SystemLimitError",
    "Tenant",
    "TimelineSummary",
    "UnavailableError",
    "UnsupportedError",
    "VersionError",
    "Waits",
    "WrongStateError",
    "name_crashes",
    "open",
    "running_calls",
    "version",
]
