# SPDX-License-Identifier: Apache-2.0
"""Losses of leases: the broker tells of them inside ctxb_broker_poll, and the callbacks are called after it.

So a callback may use the broker, wait for another thread that does, and raise an exception.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import logging
from typing import Callable, Deque, Dict, List, Optional, Tuple

from . import _api

_logger = logging.getLogger("ctxbroker")


@dataclasses.dataclass(frozen=True)
class Loss:
    """One generation of a lease that was lost. Its streams, modules and addresses are dead."""

    tenant: str
    device: int
    reason: str  #: "given_up", "destroyed", "fault" (CUDA has ended in this process) or "hung".
    generation: int
    driver_status: int  #: The CUresult that stands for the reason, or 0.
    text: str  #: The same in one sentence.


OnLoss = Callable[[Loss], object]


class Losses:
    """The losses of one broker's tenants."""

    def __init__(self) -> None:
        self._numbers: List[int] = []
        self._waiting: Deque[Tuple[OnLoss, Loss]] = collections.deque()
        self._interrupts: Deque[BaseException] = collections.deque()

    def put_into(self, options: _api.TenantOptions, tenant: str, on_loss: Optional[OnLoss]) -> None:
        """Puts a callback into a tenant's options."""
        if on_loss is not None:
            number = next(_numbers)
            _told[number] = (self, tenant, on_loss)
            self._numbers.append(number)
            options.on_loss, options.on_loss_data = _loss_function, number

    def keep(self, tenant: str, on_loss: OnLoss, loss: _api.LeaseLoss) -> None:
        self._waiting.append(
            (
                on_loss,
                Loss(
                    tenant=tenant,
                    device=loss.device,
                    reason=_api.name_of(_api.LOSSES, loss.reason),
                    generation=loss.generation,
                    driver_status=loss.driver_status,
                    text=_api.decode(loss.text),
                ),
            )
        )

    def interrupt(self, error: BaseException) -> None:
        self._interrupts.append(error)

    def deliver(self) -> None:
        """Calls the callbacks. Raises the first of their exceptions after all of them, and logs the others."""
        raised: List[BaseException] = list(self._interrupts)
        self._interrupts.clear()
        try:
            self._call(raised)
        except BaseException:  # an interrupt of a callback; what is left waits for the next poll
            self._log(raised)
            raise
        self._log(raised[1:])
        if raised:
            raise raised[0]

    def _call(self, raised: List[BaseException]) -> None:
        while self._waiting:
            try:
                on_loss, loss = self._waiting.popleft()
            except IndexError:  # another thread polls too
                break
            try:
                on_loss(loss)
            except Exception as error:
                raised.append(error)

    def _log(self, errors: List[BaseException]) -> None:
        for error in errors:
            _logger.error("a loss callback raised an exception", exc_info=error)

    def end(self) -> None:
        """Forgets the callbacks. The broker is closed, or was not opened."""
        for number in self._numbers:
            _told.pop(number, None)


# One function of C serves all tenants, so that it lives as long as any broker. Each callback has a number.
_numbers = itertools.count(1)
_told: Dict[int, Tuple[Losses, str, OnLoss]] = {}


def _take(number: int, address: int) -> None:
    losses, tenant, on_loss = _told[number]
    loss = _api.LeaseLoss.from_address(address)
    try:
        losses.keep(tenant, on_loss, loss)
    except BaseException as error:  # of a signal handler: ctypes would print it and go on
        losses.keep(tenant, on_loss, loss)
        losses.interrupt(error)


_loss_function = _api.LossFunction(_take)
