"""What all routes share: the table of deployments, the request table, ingress, and whether the port is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from frontend import limits
from frontend.configuration.keys import KeyRing
from frontend.errors import Fault, InvalidRequest, Unavailable, UnknownModel, UsageError
from frontend.limits import ServerLimits
from frontend.observation.audit import AuditLog
from frontend.observation.metrics import Metrics
from frontend.observation.record import RequestTable
from frontend.requests.questions import ALIASES
from frontend.runtime.admission import BoundedAdmission
from frontend.serving.clients import Clients
from frontend.serving.deadlines import Deadlines
from frontend.serving.deployment import Deployment
from frontend.serving.devices import Devices
from frontend.serving.poison import Poison
from frontend.serving.replica import Availability
from frontend.serving.uploads import Uploads
from protocol.messages import Order, Outcome

if TYPE_CHECKING:
    from frontend.observation.tracing import Tracing

GREETING_S: Final = 1.0
"""How long the hosts' first words are waited for before the port is listened on. They take milliseconds."""


async def nobody_to_ask() -> None:
    """The supervisor of a server that has none."""


async def nobody_to_order(order: Order) -> Outcome:
    """The same, told what to do."""
    return Outcome(code="conflict", message="there is no supervisor", report={})


@dataclass(slots=True)
class Server:
    """The state behind the HTTP routes of one front. Belongs to the event loop's thread."""

    loop: asyncio.AbstractEventLoop
    limits: ServerLimits
    deployments: dict[str, Deployment] = field(default_factory=dict)
    """What each name means."""
    others: dict[str, Deployment] = field(default_factory=dict)
    """By id, the deployments that no name means: coming, or retired and finishing."""
    default: str = ""
    keys: KeyRing | None = None
    """Who may ask; None: everyone who can connect."""
    origins: tuple[str, ...] = ()
    """Origins of web pages whose scripts may read the answers."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call this server by, in lower case, beside those it has anyway (`frontend.http.names`)."""
    clients: Clients = field(default_factory=Clients)
    """The connections of all listeners."""
    draining: bool = False
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(limits.POOL_THREADS, thread_name_prefix="compute")
    )
    parser: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="parse"))
    """Parses large bodies, one at a time: the scanner keeps the interpreter lock, and a second thread would take turns
    of the loop."""
    clock: Callable[[], float] = time.monotonic
    """The clock of deadlines and durations; it must share its zero with the loop's, whose steps may be coarser."""
    deadlines: Deadlines = field(init=False)
    requests: RequestTable = field(init=False)
    poison: Poison = field(init=False)
    devices: Devices = field(init=False)
    ingress: BoundedAdmission = field(init=False)
    uploads: Uploads = field(init=False)
    metrics: Metrics = field(init=False)
    tracing: Tracing | None = None
    """Makes spans of requests, where an operator asked for them."""
    audit: AuditLog | None = None
    """Where answered decisions are noted, where an operator asked for it."""
    ask_supervisor: Callable[[], Awaitable[Mapping[str, Any] | None]] = nobody_to_ask
    """What is known of the processes, None when it is not told; set by the holder of a lane to the supervisor."""
    carry_out: Callable[[Order], Awaitable[Outcome]] = nobody_to_order
    """Has an operator's order carried out; set by the holder of a lane to the supervisor."""

    def __post_init__(self) -> None:
        self.deadlines = Deadlines(self.loop)
        self.requests = RequestTable(self.clock)
        self.poison = Poison(self.clock)
        self.devices = Devices(self.loop)
        self.metrics = Metrics(self.loop)
        self.ingress = BoundedAdmission(
            "ingress", requests=self.limits.ingress_requests, cost=self.limits.ingress_bytes
        )
        self.uploads = Uploads(self.ingress, self.loop.time)

    @property
    def only(self) -> Deployment | None:
        """The one deployment of a port that serves just one, else None."""
        if len(self.deployments) != 1:
            return None
        (deployment,) = self.deployments.values()
        return deployment

    def resolve(self, model: str | None) -> Deployment:
        """The deployment a request names. Raises `InvalidRequest` (missing) or `UnknownModel`."""
        if model is None:
            if len(self.deployments) != 1:
                names = ", ".join(sorted(self.deployments))
                raise InvalidRequest(
                    [Fault(("model",), f"the model is missing and there are several: {names}", "missing")]
                )
            model = self.default
        elif model in ALIASES:
            model = self.default
        deployment = self.deployments.get(model)
        if deployment is None:
            known = ", ".join(sorted(self.deployments))
            raise UnknownModel(f"Unknown model: {model[:200]!r}. Models here: {known}")
        return deployment

    async def hosts_greeted(self) -> None:
        """Wait until every host that has been dialled has answered, at most `GREETING_S`: one that hangs keeps no
        client else waiting."""
        try:
            async with asyncio.timeout(GREETING_S):
                while greeting := [deployment for deployment in self.deployments.values() if deployment.greeting]:
                    await greeting[0].moved()
        except TimeoutError:
            pass

    def begin_stop(self) -> None:
        """Take no newcomers, and refuse those who wait for a host that will not come any more: the end of a swap, an
        absent model, one that is started again. What a warm host has in its queue goes on."""
        self.draining = True
        for deployment in (*self.deployments.values(), *self.others.values()):
            deployment.begin_stop()

    def refuse_when_draining(self) -> None:
        """Raise `Unavailable` once a stop has been asked for."""
        if self.draining:
            raise Unavailable("the server is stopping and takes no new requests", retry_after=5)

    def timeout_s(self, asked_ms: str | None) -> float:
        """The budget of a request: what it asked for in x-framehost-timeout-ms, at most the server's own."""
        if asked_ms is None:
            return self.limits.request_timeout_s
        wanted = 0
        if len(asked_ms) <= limits.MAX_TIMEOUT_DIGITS and asked_ms.isascii() and asked_ms.isdigit():
            wanted = int(asked_ms)
        if wanted <= 0:
            raise UsageError(
                "the header x-framehost-timeout-ms is a whole number of milliseconds above 0, "
                f"in at most {limits.MAX_TIMEOUT_DIGITS} digits"
            )
        return min(wanted / 1000, self.limits.request_timeout_s)

    def health(self, only: str | None = None) -> tuple[int, Mapping[str, Any]]:
        """Status and body of /health, from cached state alone: it never asks a host."""
        chosen: Iterable[Deployment] = self.deployments.values()
        if only is not None:
            if only not in self.deployments:
                return 404, {"status": "unknown", "models": {}}
            chosen = (self.deployments[only],)
        models = {deployment.name: deployment.availability.value for deployment in chosen}
        # An absent model answers too: the request that needs it has it loaded.
        able = sum(state in (Availability.READY.value, Availability.ABSENT.value) for state in models.values())
        if self.draining:
            status = "draining"
        elif able == len(models) and able:
            status = "ok"
        elif able:
            status = "degraded"
        else:
            status = "unavailable"
        return (200 if able and not self.draining else 503), {"status": status, "models": models}
