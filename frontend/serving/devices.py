"""The byte budget of each device, and the hosts that share it.

A device has the limit that the configuration or an operator gives it. One without has what its hosts' own options add
up to: their prefixes have the room that they are given, and conversations share it with them. A host on another machine
has a device of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from frontend.runtime.byte_budget import ByteBudget, Holder
from frontend.serving.conversations import Conversations
from frontend.serving.statistics import DeviceStatistics

if TYPE_CHECKING:
    from frontend.serving.retention import Retention


class Devices:
    """All devices of a front. Belongs to the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.conversations = Conversations(loop)
        self._limits: Mapping[str, int] = {}
        self._budgets: dict[str, ByteBudget] = {}
        self._hosts: dict[str, Retention] = {}
        """By the names that holders call them by."""
        self._of: dict[str, ByteBudget] = {}
        """By host, the budget that it is in."""

    def configure(self, limits: Mapping[str, int], idle_s: float) -> None:
        """The limits in bytes by device, from now on; what is above them and idle is given up at once. `idle_s`: as
        for `Conversations`."""
        self._limits = dict(limits)
        self.conversations.idle_s = idle_s
        for budget in self._budgets.values():
            self.fit(budget)

    def join(self, host: Retention, device: str) -> ByteBudget:
        """The budget of a device that this host keeps something on from now on."""
        budget = self._budgets.setdefault(device, ByteBudget(device, self._limits.get(device, 0)))
        self._hosts[host.host] = host
        self._of[host.host] = budget
        self.fit(budget)
        return budget

    def leave(self, host: Retention) -> None:
        """It will have no process any more."""
        if self._hosts.pop(host.host, None) is not None:
            self.fit(self._of.pop(host.host))

    def fit(self, budget: ByteBudget) -> None:
        """Hold a device to its limit."""
        costs = [host.cost.limit_bytes for host in self._of_budget(budget) if host.cost is not None]
        self.evicted(budget.reconfigure(self._limits.get(budget.name, sum(costs))).evicted)

    def evicted(self, holders: Iterable[Holder]) -> None:
        """What was taken from these has to leave their hosts, in this order."""
        for holder in holders:
            host = self._hosts.get(holder.host)
            if host is not None:
                conversation = host.dropped(holder)
                host.evict([] if conversation is None else [conversation.name])

    def statistics(self) -> list[DeviceStatistics]:
        """Of each device with a host on it."""
        return [
            DeviceStatistics(
                device=budget.name,
                used_bytes=budget.used,
                limit_bytes=budget.limit,
                overage_bytes=max(0, budget.used - budget.limit),
                configured=budget.name in self._limits,
                hosts=sorted(host.host for host in self._of_budget(budget)),
            )
            for budget in self._budgets.values()
            if self._of_budget(budget)
        ]

    def _of_budget(self, budget: ByteBudget) -> list[Retention]:
        return [host for name, host in self._hosts.items() if self._of[name] is budget]
