"""One decision, from the first byte of its body to its answer: the same steps in the same order at every port.

    1 slot      of the key, which is refused at once; and of the one model that the port serves, so that a slow upload
                cannot lose it
    2 upload    a permit of ingress, then the body under its limit
    3 parse     by the port's grammar; where the grammar is the family's own, this is a part of step 6
    4 resolve   what the name means now
    5 wait      for the end of a swap; for the host of an absent model, after step 6 has found the request valid
    6 prepare   the family validates the whole request and renders its units; nothing has touched a host yet
    7 cost      of the units, in the budgets of the model and of the key
    8 execute   unit after unit, in the queue of one replica
    9 finish    the answers from the outputs

          1         2          3         4          5          6          7         8           9
    head ─▶ slot ─▶ upload ─▶ parse ─▶ resolve ─▶ wait ─▶ prepare ─▶ cost ─▶ execute ─▶ finish ─▶ answer
     │                 │         │        │         │         │        │        │          │
     └─────────────────┴─────────┴────────┴─────────┴─────────┴────────┴────────┴──────────┴─▶ one RequestError

A body that was parsed is no upload any more: its permit of ingress goes back, and that there was no slot is said. So
what is wrong with a body is said whatever is full. What the kinds of ports do differently is an `Exchange`:

                     main port                              native listener
    --------------   ------------------------------------   ------------------------------------
    model            the body names it                      the listener is one model's
    slot before 2    where the server has one model         always
    grammar          the dialect's, by path and body (3)    the family's (6)
    body limit       the server's                           the family's
    media type       a form is 400                          as the family: 415, or any
    host not ready   waits                                  as the family: 503 at once, or waits
    equal work       is done once                           is done as often as it is asked
    precision        float64, no rounding                   the family's
    errors           the dialect's                          the family's words and statuses

Where a request waits, and for how long, is in `waiting`; what may refuse it, in `intake`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from frontend.errors import DeadlineExceeded, QueueFull, RequestError
from frontend.families.base import Prepared
from frontend.observation.record import RequestRecord
from frontend.runtime.admission import Permit, PermitState
from frontend.runtime.context import ExecutionContext
from frontend.runtime.signals import Signal
from frontend.serving import compute, intake, waiting
from frontend.serving.absorbing import Absorbing
from frontend.serving.deployment import Deployment
from frontend.serving.server import Server
from protocol.states import Role


class Family(Absorbing, Protocol):
    """A family's half of an exchange: the processor of a deployment, or its native profile."""

    PREPARE_WEIGHT: ClassVar[int]


_HELD: Final = Role.HELD  # see `frontend.runtime.admission`
_UNRELEASED: Final = PermitState.HELD

Asked = TypeVar("Asked")
"""A parsed request; where the family parses, the body itself."""

Answered_co = TypeVar("Answered_co", covariant=True)
FamilyT = TypeVar("FamilyT", bound=Family)


class Exchange(Protocol[Asked, FamilyT, Answered_co]):
    """One request as its kind of port reads, refuses and answers it. Methods that compute may be called in a thread."""

    PARSES: ClassVar[bool]
    """Whether `parse` is the whole grammar. Otherwise the family's `prepare` parses."""

    SHARES: ClassVar[bool]
    """Whether a unit may be answered by what an equal one is, or was, answered."""

    @property
    def timeout_ms(self) -> str | None:
        """What the client said in x-framehost-timeout-ms."""

    def check_head(self) -> None:
        """Raise `RequestError` for what the headers alone show to be wrong."""

    def alone(self, server: Server) -> Deployment | None:
        """The one deployment that this port serves, None when the body has to name it."""

    def admit(self) -> Permit:
        """The permit of this upload. Raises `RequestError`."""

    async def upload(self, permit: Permit) -> bytes:
        """The whole body, all of which `permit` has reserved. Raises `RequestError`."""

    def parse(self, body: bytes) -> Asked:
        """The request in a body. Raises `RequestError`."""

    def model(self, asked: Asked) -> str | None:
        """The name of the model that is asked; None means that the request names none."""

    def family(self, deployment: Deployment) -> FamilyT:
        """Who prepares and finishes."""

    def session(self, asked: Asked) -> str | None:
        """The client's name for the conversation that it is a turn of; None: it is of none."""

    def waits(self, deployment: Deployment) -> bool:
        """Whether a request waits for a host that is not ready."""

    def prepare(self, family: FamilyT, asked: Asked) -> Prepared:
        """The request rendered into units. Raises `RequestError`."""

    def absorbing(self, family: FamilyT) -> Absorbing:
        """Who is given each output before the next unit is queued."""

    def finish(self, family: FamilyT, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Answered_co:
        """The answer; `seconds` since the preparation. Raises `RequestError`."""

    def timed_out(self, record: RequestRecord, budget_s: float) -> RequestError:
        """What a request is told whose time is over."""


class Refused(NamedTuple):
    """That there was no slot, which is said when the body turns out to be valid. Asked once, and counted once."""

    deployment: Deployment
    error: QueueFull

    @classmethod
    def by(cls, deployment: Deployment, context: ExecutionContext, record: RequestRecord) -> Refused | None:
        """Reserve a slot of `deployment` in `context`; None when it has one."""
        error = intake.try_slot(deployment, context, record)
        return None if error is None else cls(deployment, error)


async def answered(
    server: Server,
    exchange: Exchange[Asked, FamilyT, Answered_co],
    record: RequestRecord,
    observe: Callable[[Signal], None],
) -> Answered_co:
    """The answer to one request. `observe` hears the runtime's signals.

    Raises `RequestError` for everything the client should be told. Cancelled before dispatch it leaves nothing
    behind; after it, the host's answer or death gives the permits back.
    """
    server.refuse_when_draining()
    exchange.check_head()
    deadline = record.received + server.timeout_s(exchange.timeout_ms)
    with (
        ExecutionContext(clock=server.clock, deadline=deadline, observer=observe) as context,
        context.cancel_on_exit() as guard,
    ):
        try:
            with server.deadlines.at(deadline):
                intake.pass_the_door(context, record)
                alone = exchange.alone(server)
                refused = None if alone is None else Refused.by(alone, context, record)
                with exchange.admit() as permit:
                    body = await exchange.upload(permit)
                    record.uploaded()
                    asked: Asked
                    if not exchange.PARSES:
                        asked = body  # type: ignore[assignment]
                    elif compute.fits_inline(len(body)):
                        asked = exchange.parse(body)
                    else:
                        asked = await compute.in_pool(server.parser, context, lambda: exchange.parse(body))
                    if exchange.PARSES:
                        permit.release()
                    answer = await resolved(server, exchange, asked, body, permit, context, record, refused)
        except (TimeoutError, DeadlineExceeded):
            # The timer, or the runtime's own look at the clock just before it.
            raise exchange.timed_out(record, deadline - record.received) from None
        guard.disarm()
    return answer


async def resolved(
    server: Server,
    exchange: Exchange[Asked, FamilyT, Answered_co],
    asked: Asked,
    body: bytes,
    permit: Permit,
    context: ExecutionContext,
    record: RequestRecord,
    refused: Refused | None = None,
) -> Answered_co:
    """Steps 4 to 9 of `body`, which `permit` has reserved: by what the name means, or what it means next when that
    changes before anything was prepared. Errors and cancellation as `answered`; `ExecutionStopped` at the
    deadline of `context`. `refused`: by the slots that were asked before the upload."""
    while True:
        deployment = server.resolve(exchange.model(asked))
        record.model = deployment.name
        if deployment.role is _HELD:
            _parsed(permit)  # waiting for the end of a swap is no upload
            await waiting.for_the_swap(deployment, context, record)
            continue
        with deployment.in_use:
            try:
                return await _carried_out(server, deployment, exchange, asked, body, permit, context, record, refused)
            except waiting.Moved:
                continue


async def _carried_out(
    server: Server,
    deployment: Deployment,
    exchange: Exchange[Asked, FamilyT, Answered_co],
    asked: Asked,
    body: bytes,
    permit: Permit,
    context: ExecutionContext,
    record: RequestRecord,
    refused: Refused | None,
) -> Answered_co:
    if refused is None or refused.deployment is not deployment:
        refused = Refused.by(deployment, context, record)
    if refused is not None and exchange.PARSES:
        raise refused.error
    if not exchange.waits(deployment):
        waiting.refuse_unless_ready(deployment)
    if not deployment.prepares:
        await waiting.for_a_processor(deployment, context, record)
    # The incarnation may change while we wait: what is prepared belongs to this one's weights.
    family, identity = exchange.family(deployment), deployment.identity
    size = len(body) * family.PREPARE_WEIGHT
    if compute.fits_inline(size):
        prepared = exchange.prepare(family, asked)
    else:
        prepared = await compute.in_pool(server.pool, context, lambda: exchange.prepare(family, asked))
    _parsed(permit)
    if refused is not None:
        raise refused.error
    if deployment.cold and prepared.units:
        # It is valid by what is in the folder. The host's facts decide how it is rendered.
        await waiting.for_a_host(deployment, prepared, context, record)
        warm, identity = exchange.family(deployment), deployment.identity
        prepared = await compute.wherever(server.pool, context, size, lambda: exchange.prepare(warm, asked))
        family = warm
    record.prepared()
    since = server.clock()
    outputs: list[object] = []
    if prepared.units:
        unpoisoned = functools.partial(server.poison.check, deployment, body)
        unpoisoned()
        intake.take_cost(deployment, prepared, context, record)
        context.count()
        waiting.refuse_unless_expected(deployment, context)
        absorbing = exchange.absorbing(family)
        session = exchange.session(asked)
        conversation = None if session is None else intake.conversation(server.devices, deployment, session, record)
        try:
            outputs = await intake.execute(
                deployment,
                absorbing,
                identity,
                prepared,
                context,
                record,
                unpoisoned,
                shares=exchange.SHARES and conversation is None,
                alone=server.poison.suspects(deployment, body),
                conversation=conversation,
            )
        except RequestError as error:
            server.poison.failed(deployment, body, error)
            raise
        finally:
            if conversation is not None:
                server.devices.conversations.asked(conversation)
        server.poison.answered(deployment, body)
    else:
        context.count()
    if compute.fits_inline(prepared.work):
        return exchange.finish(family, prepared, outputs, server.clock() - since)
    return await compute.in_pool(
        server.pool, context, lambda: exchange.finish(family, prepared, outputs, server.clock() - since)
    )


def _parsed(permit: Permit) -> None:
    """The body has been parsed, or waits for a model: it is no upload any more."""
    if permit.state is _UNRELEASED:
        permit.release()
