"""Taking one request in: the budgets that may refuse it, the replica that gets it, and its units, one by one.

     key ─▶ slot ─▶ (upload, prepare) ─▶ cost ─▶ replica ─▶ unit, unit, ...
     429     429                        429, 413   503        one output each

First comes the key's bound of open requests; slot and cost are the deployment's, and a key has a cost of its own. Every
permit is retained by the request's context, and goes back when its last owner is gone. They count as admitted once the
last of them is there: a slot that was reserved for a body which turned out to be wrong has let nothing in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from frontend.errors import QueueFull, UsageError
from frontend.families.base import Prepared
from frontend.observation.record import RequestRecord
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.context import ExecutionContext
from frontend.serving import equal, shapes
from frontend.serving.absorbing import Absorbing
from frontend.serving.conversations import Conversation
from frontend.serving.deployment import Deployment
from frontend.serving.devices import Devices
from frontend.serving.refusals import permit
from frontend.serving.replica import Availability, Replica, replaced
from frontend.serving.retention import Turn
from protocol.payloads import Payload


def take_slot(deployment: Deployment, context: ExecutionContext, record: RequestRecord) -> None:
    """Admit the request to this model; nothing when `context` holds its slot already.

    Raises `QueueFull` when there is none, or when the request's key has its share of them (see `shares`).
    """
    slots, account = deployment.slots, record.account
    if slots is None or context.holds(slots):
        return
    if deployment.slot_shares is not None and account is not None and account.shares:
        with deployment.slot_shares.take(account) as counted:
            context.retain(permit(slots, 0, counted=False))
            context.retain(counted)
    else:
        context.retain(permit(slots, 0, counted=False))


def try_slot(deployment: Deployment, context: ExecutionContext, record: RequestRecord) -> QueueFull | None:
    """As `take_slot`, with the refusal returned: what is wrong with a request is said before that it has no slot."""
    try:
        take_slot(deployment, context, record)
    except QueueFull as refusal:
        return refusal
    return None


def pass_the_door(context: ExecutionContext, record: RequestRecord) -> None:
    """Admit the request to its key, before anything of its body is read. Raises `QueueFull`."""
    if record.account is not None and record.account.requests is not None:
        context.retain(permit(record.account.requests, 0, counted=False))


def take_cost(deployment: Deployment, prepared: Prepared, context: ExecutionContext, record: RequestRecord) -> None:
    """Admit what the request turned out to be. Raises `QueueFull`, or `RequestTooLarge` when waiting would not help."""
    for layer, cost in _layers(deployment, prepared, record):
        context.retain(permit(layer, cost, counted=False))


def would_admit(deployment: Deployment, prepared: Prepared, record: RequestRecord) -> None:
    """Raise what `take_cost` would raise now, and reserve nothing."""
    for layer, cost in _layers(deployment, prepared, record):
        permit(layer, cost, counted=False).release()


def conversation(devices: Devices, deployment: Deployment, session: str, record: RequestRecord) -> Conversation:
    """The conversation of the request's key with this model that the client calls `session`. Raises `UsageError` where
    the model keeps nothing between requests, `QueueFull` when there are too many."""
    if not any(replica.retention.keeps for replica in deployment.replicas):
        raise UsageError(
            f"x_session: the model {deployment.name!r} keeps nothing between requests; that needs a family which reads "
            "from left to right, and its option prefix_cache_mb above 0"
        )
    account = "" if record.account is None else record.account.name
    return devices.conversations.open(account, deployment.name, session)


def _layers(
    deployment: Deployment, prepared: Prepared, record: RequestRecord
) -> Sequence[tuple[BoundedAdmission, int]]:
    """What refuses a request by what it turned out to be, with what it asks of each."""
    account = record.account
    if deployment.cost is None and account is None:
        return ()
    layers = [] if deployment.cost is None else [(deployment.cost, prepared.cost)]
    if account is not None and account.cost is not None:
        layers.append((account.cost, prepared.cost))
    return layers


async def execute(
    deployment: Deployment,
    family: Absorbing,
    identity: str,
    prepared: Prepared,
    context: ExecutionContext,
    record: RequestRecord,
    check: Callable[[], None],
    *,
    shares: bool = False,
    alone: bool = False,
    conversation: Conversation | None = None,
) -> list[object]:
    """Run the units of an admitted request; one output each. `check` is called whenever one is about to be sent, and
    what it raises ends the request there.

    `identity`: of the weights it was prepared for, which must still be these. All units go to one replica, but for
    those whose answers are known. `shares`: whether a unit may be answered by what an equal one is, or was, answered;
    where the deployment does that. `alone`: whether it must not be sent in a batch with others. `conversation`: whose
    turn it is; it stays with its replica. Raises `RequestError`.
    Cancelled before dispatch it leaves nothing behind; after it, the host's answer or death gives the permits back.
    """
    replica: Replica | None = None
    turn: Turn | None = None
    outputs: list[object] = []
    for index, unit in enumerate(prepared.units):
        payload: Payload = unit  # type: ignore[assignment]
        fields = payload.to_wire()
        digested = None
        if shares and deployment.shares:
            digested = functools.cache(functools.partial(equal.digest, identity, fields))
        if replica is None:
            replica = choose(deployment, identity, digested, conversation)
            if replica is not None and replica.retention.keeps:
                turn = replica.retention.begin(conversation, max(map(_longest, prepared.units)))
                if turn is not None:
                    context.retain(turn)
        if replica is None or replica.identity != identity:
            raise replaced(deployment.name)
        answers = deployment.answers
        digest = digested() if digested is not None and answers.on else None
        known = answers.get(digest) if digest is not None else None
        if known is not None:
            replica.scheduler.admit_answered(context)
            record.unit_known()
        else:
            output = await replica.run(
                fields,
                context,
                record.request_id,
                check,
                shape=shapes.of(payload, fields) if deployment.batches and not alone else None,
                digest=digested if deployment.joins else None,
                turn=turn,
            )
            record.unit_done()
            known = deployment.last_output = output.values
            if digest is not None and deployment.identity == identity:
                answers.put(digest, known)
        outputs.append(family.absorb(prepared, index, known))
    if turn is not None and conversation is not None:
        record.session = turn.words
    return outputs


def _longest(unit: object) -> int:
    longest: int = unit.longest()  # type: ignore[attr-defined]
    return longest


def choose(
    deployment: Deployment,
    identity: str,
    digest: Callable[[], bytes | None] | None = None,
    conversation: Conversation | None = None,
) -> Replica | None:
    """The one that holds the conversation, or where equal work waits or is executed; else the least loaded replica that
    is ready, else that may be again; of equals the one that was chosen last the longest time ago. None when none has
    these weights."""
    replicas = deployment.replicas
    fit = [replica for replica in replicas if replica.identity == identity and replica.expected]
    if not fit:
        return None
    if len(fit) == 1:
        return fit[0]
    if conversation is not None:
        for replica in fit:
            if replica.retention is conversation.host:
                return replica
    if digest is not None and (digested := digest()) is not None:
        for replica in fit:
            if replica.scheduler.has_equal(digested):
                return replica
    chosen = min(
        fit,
        key=lambda replica: (
            replica.availability is not Availability.READY,
            replica.load,
            replica.last_used,
        ),
    )
    chosen.last_used = 1 + max(replica.last_used for replica in replicas)
    return chosen
