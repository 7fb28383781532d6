"""Readings of deployments and their replicas: frozen, for status, metrics, health and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontend.runtime.admission import AdmissionStatistics
from frontend.runtime.statistics import SchedulerStatistics
from frontend.serving.answer_cache import CacheStatistics
from frontend.serving.hostlink import LinkStatistics


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """One reading of everything countable about a replica."""

    replica: int
    availability: str
    incarnation: str
    identity: str
    last_death: str
    scheduler: SchedulerStatistics
    link: LinkStatistics | None
    host: Mapping[str, Any]
    """What the host last said of itself; empty until it was asked."""
    kept: Mapping[str, int]
    """Counts of the prefixes that its host keeps, as its last answer had them; empty where none are kept."""


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """One reading of the byte budget of a device."""

    device: str
    used_bytes: int
    """Held or reserved."""
    limit_bytes: int
    overage_bytes: int
    """Above the limit, after that was lowered, and in use."""
    configured: bool
    """Whether the limit was given; else it is the sum of what the hosts' own options let them keep."""
    hosts: list[str]


@dataclass(frozen=True, slots=True)
class DeploymentStatistics:
    """One reading of everything countable about a deployment."""

    id: str
    name: str
    role: str
    present: bool
    requests: int
    """Open requests that have come as far as this deployment."""
    waiting_for_host: int
    """Of these, those that nothing was prepared for yet, because there is no host."""
    idle_s: float | None
    """How long no request has been here; None while one is."""
    family: str
    availability: str
    incarnation: str
    """Of the first replica; `replicas` has all."""
    identity: str
    last_death: str
    scheduler: SchedulerStatistics
    """The sum over all replicas."""
    admissions: tuple[AdmissionStatistics, ...]
    link: LinkStatistics | None
    """Of the first replica."""
    host: Mapping[str, Any]
    """What the first replica's host last said of itself; empty until it was asked."""
    replicas: tuple[ReplicaStatistics, ...]
    answers: CacheStatistics
