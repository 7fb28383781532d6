"""Every message of the lanes: frozen, typed, checked when made into bytes and when read from them. They are one file
because together they are the protocol: a change of any is a change of its version.

    lane         from          to            messages
    ----------   -----------   -----------   ---------------------------------------------------------
    data         front         host          EXECUTE
                 host          front         RESULT, FAILURE
    control      front,        host          HELLO, CANCEL, STATUS (ask), DRAIN
                 supervisor
                 host          front,        WELCOME, PROGRESS, READY, CANCELLED, STATUS (report), BYE,
                               supervisor    FAILURE (a host that cannot load says why)
    management   front         supervisor    HELLO, SERVING, WANT, OVERDUE, DRAINED, ORDER, STATUS (both ways), BYE
                 supervisor    front         WELCOME, DEPLOYMENT, HOST_UP, HOST_DOWN, DRAIN, STATUS, PROGRESS, OUTCOME
                 cli           supervisor    STATUS, ORDER
                 supervisor    cli           STATUS, PROGRESS, OUTCOME
    arrival      remote host   supervisor    DIAL_IN, LISTENING, LEAVING
                 supervisor    remote host   ASSIGNED, REFUSED

A field is declared once, with its check; a body with an unknown, missing or ill-typed field is
refused, because within one protocol version an unknown field would be a meaning silently dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from protocol import limits
from protocol.errors import FAILURES, Malformed
from protocol.fields import (
    Check,
    boolean,
    counts,
    describe,
    exactly,
    fraction,
    integer,
    number,
    numbers,
    one_of,
    optional,
    path,
    text,
    texts,
    tree,
    trees,
)


class Lane(enum.Enum):
    """Which socket a message belongs on."""

    DATA = "data"
    CONTROL = "control"
    MANAGEMENT = "management"
    ARRIVAL = "arrival"


class Kind(enum.IntEnum):
    """The kind byte. Numbers are never reused."""

    HELLO = 1
    WELCOME = 2
    PROGRESS = 3
    READY = 4
    EXECUTE = 5
    RESULT = 6
    FAILURE = 7
    CANCEL = 8
    CANCELLED = 9
    STATUS = 10
    DRAIN = 11
    BYE = 12
    HOST_UP = 32
    HOST_DOWN = 33
    DEPLOYMENT = 34
    WANT = 35
    SERVING = 36
    OVERDUE = 37
    DRAINED = 38
    ORDER = 39
    OUTCOME = 40
    DIAL_IN = 64
    ASSIGNED = 65
    REFUSED = 66
    LISTENING = 67
    LEAVING = 68


_new: Final = object.__new__

_NAME = text(limits.MAX_NAME_CHARS, empty=False)
_DEPLOYMENT = text(limits.MAX_DEPLOYMENT_CHARS, empty=False)
_DEPLOYMENTS = texts(limits.MAX_DEPLOYMENT_CHARS)
_TEXT = text(limits.MAX_TEXT_CHARS)
_COUNT = integer(0, limits.MAX_CALL_ID)
_PUBLIC_KEY = exactly(limits.CURVE_KEY_CHARS)
_INCARNATION = text(limits.MAX_INCARNATION_CHARS, empty=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base of all messages. Subclasses declare their kind, their lanes and their fields with checks."""

    KIND: ClassVar[Kind]
    KIND_BYTE: ClassVar[bytes]
    LANES: ClassVar[tuple[Lane, ...]]
    CHECKS: ClassVar[Mapping[str, Check]]
    STORES: ClassVar[tuple[tuple[str, Check, Callable[[object, object], None]], ...]]
    """Name, check and setter of each field: a decoded message is filled without the frozen type's own, slower way."""

    def to_body(self) -> dict[str, Any]:
        """The body map, before packing; raises if a field does not hold what it is declared to hold.

        Shallow: the values are the message's own.
        """
        body = {}
        for name, check in self.CHECKS.items():
            value = body[name] = getattr(self, name)
            if not check(value):
                raise Malformed(f"{type(self).__name__}.{name} is not valid: {describe(value)}")
        return body

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Self:
        """The message of a decoded body map; raises when its fields are not exactly the declared ones."""
        message = _new(cls)
        stores = cls.STORES
        if len(body) != len(stores):
            raise cls._other_fields(body)
        for name, check, store in stores:
            if name not in body:
                raise cls._other_fields(body)
            value = body[name]
            if not check(value):
                raise Malformed(f"{cls.__name__}.{name} is not valid: {describe(value)}")
            store(message, value)
        return message

    @classmethod
    def _other_fields(cls, body: dict[str, Any]) -> Malformed:
        # The peer's own names are not repeated: they can be of any type and of any length.
        missing, unknown = cls.CHECKS.keys() - body.keys(), len(body.keys() - cls.CHECKS.keys())
        return Malformed(f"{cls.__name__}: missing fields {sorted(missing)}, and {unknown} unknown")


M = TypeVar("M", bound=Message)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _message(kind: Kind, *lanes: Lane, checks: Mapping[str, Check]) -> Callable[[type[M]], type[M]]:
    def declare(cls: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        if {entry.name for entry in fields(made)} != checks.keys():
            raise TypeError(f"{cls.__name__}: fields and checks differ")
        made.KIND = kind
        made.KIND_BYTE = bytes((kind,))
        made.LANES = lanes
        made.CHECKS = dict(checks)
        made.STORES = tuple((name, check, getattr(made, name).__set__) for name, check in checks.items())
        return made

    return declare


@_message(
    Kind.HELLO,
    Lane.CONTROL,
    Lane.MANAGEMENT,
    checks={"role": _NAME, "epoch": _INCARNATION, "pid": _COUNT},
)
class Hello(Message):
    """The first message of whoever dials. `epoch` is the dialer's own incarnation: of a front, its launch."""

    role: str
    epoch: str
    pid: int


@_message(
    Kind.WELCOME,
    Lane.CONTROL,
    Lane.MANAGEMENT,
    checks={
        "role": _NAME,
        "pid": _COUNT,
        "state": _NAME,
        "busy_call": _COUNT,
        "busy_epoch": text(limits.MAX_INCARNATION_CHARS),
    },
)
class Welcome(Message):
    """The answer to HELLO. `busy_epoch` and `busy_call` name the unit the host is executing, or are "" and 0."""

    role: str
    pid: int
    state: str
    busy_call: int = 0
    busy_epoch: str = ""


@_message(
    Kind.PROGRESS,
    Lane.CONTROL,
    Lane.MANAGEMENT,
    checks={"stage": _NAME, "fraction": optional(fraction), "note": _TEXT},
)
class Progress(Message):
    """A loading host is alive, or an order is being carried out, and this far. `fraction` is 0..1, or None when the
    end is not known."""

    stage: str
    fraction: float | None = None
    note: str = ""


@_message(Kind.READY, Lane.CONTROL, checks={"address": _TEXT, "facts": tree})
class Ready(Message):
    """Loaded and warmed up with a real decision; the data socket at `address` is bound.

    `facts`: model identity, dtype, limits, capabilities, parameter count: whatever the processor needs.
    """

    address: str
    facts: dict[str, Any]


@_message(Kind.EXECUTE, Lane.DATA, checks={"payload": tree, "request": text(limits.MAX_NAME_CHARS)})
class Execute(Message):
    """One admitted unit. `payload` is the family's payload type, as its fields. `request` is the id of the request that
    the unit belongs to, for the host's log; empty for a unit that is nobody's."""

    payload: dict[str, Any]
    request: str = ""


@_message(Kind.RESULT, Lane.DATA, checks={"outputs": tree, "elapsed_us": _COUNT})
class Result(Message):
    """The unit's outputs, raw. `elapsed_us` is the time inside the executor."""

    outputs: dict[str, Any]
    elapsed_us: int


@_message(
    Kind.FAILURE,
    Lane.DATA,
    Lane.CONTROL,
    checks={
        "code": one_of(FAILURES),
        "status": integer(400, 599),
        "error_type": _NAME,
        "where": path,
        "message": _TEXT,
        "dispatched": boolean,
        "fatal": boolean,
    },
)
class Failure(Message):
    """The unit ended without outputs. `message` is public text, safe to show to the client.

    `dispatched`: the executor may have started on it. `fatal`: the host retires now.
    `where`: the place in the request (keys and indexes) for input errors, else empty.
    """

    code: str
    status: int
    message: str
    error_type: str = "internal_error"
    where: list[Any] = field(default_factory=list)
    dispatched: bool = True
    fatal: bool = False


@_message(Kind.CANCEL, Lane.CONTROL, checks={"epoch": _INCARNATION})
class Cancel(Message):
    """Nobody waits for call `header.call` of this front any more. Idempotent; unknown calls are fine."""

    epoch: str


@_message(
    Kind.CANCELLED,
    Lane.CONTROL,
    checks={"outcome": one_of(("running", "not_running"))},
)
class CancelAnswer(Message):
    """What the cancel found: `running` (it ends when the executor lets go) or `not_running` (ended, or never seen)."""

    outcome: str


@_message(Kind.STATUS, Lane.CONTROL, Lane.MANAGEMENT, checks={"report": optional(tree)})
class Status(Message):
    """A question when `report` is None; otherwise the answer, or a report on the sender's own account."""

    report: dict[str, Any] | None = None


@_message(Kind.DRAIN, Lane.CONTROL, Lane.MANAGEMENT, checks={"budget_s": number})
class Drain(Message):
    """Take nothing new, finish what runs, report BYE, exit. The sender kills after the budget."""

    budget_s: float


@_message(Kind.BYE, Lane.CONTROL, Lane.MANAGEMENT, checks={"reason": _TEXT})
class Bye(Message):
    """The last message of a peer that ends on purpose."""

    reason: str


@_message(
    Kind.HOST_UP,
    Lane.MANAGEMENT,
    checks={
        "deployment": _DEPLOYMENT,
        "replica": _COUNT,
        "incarnation": _INCARNATION,
        "control": _TEXT,
        "data": _TEXT,
        "pid": _COUNT,
        "facts": tree,
        "public_key": text(limits.CURVE_KEY_CHARS),
    },
)
class HostUp(Message):
    """A warm host of `deployment` can be dialled at these addresses.

    `public_key`: the CURVE key that the host must prove to hold, "" for a local one.
    """

    deployment: str
    replica: int
    incarnation: str
    control: str
    data: str
    pid: int
    facts: dict[str, Any]
    public_key: str = ""


@_message(
    Kind.HOST_DOWN,
    Lane.MANAGEMENT,
    checks={
        "deployment": _DEPLOYMENT,
        "replica": _COUNT,
        "incarnation": _INCARNATION,
        "exit": optional(integer(-(2**31), 2**31 - 1)),
        "signal": _TEXT,
        "last_words": _TEXT,
        "will_restart": boolean,
        "retry_after_s": number,
        "taken": optional(counts(limits.MAX_INCARNATION_CHARS)),
    },
)
class HostDown(Message):
    """The process of this incarnation is gone (known from its handle). Ends all of its calls in the front.

    `taken`: by the epoch of each front, the last call that the host took from it; of a front that is not in it, none.
    The later ones it has not seen. None: not known.
    """

    deployment: str
    replica: int
    incarnation: str
    exit: int | None
    signal: str
    last_words: str
    will_restart: bool
    retry_after_s: float
    taken: dict[str, Any] | None = None


@_message(
    Kind.DEPLOYMENT,
    Lane.MANAGEMENT,
    checks={"models": trees, "default": _NAME, "server": tree, "open": boolean},
)
class Deployment(Message):
    """The whole table: every deployment there is, and what it is to its name.

    `open`: the listening socket may be listened on from now.
    """

    models: list[dict[str, Any]]
    default: str
    server: dict[str, Any]
    open: bool


@_message(Kind.WANT, Lane.MANAGEMENT, checks={"wanted": _DEPLOYMENTS, "idle": numbers(limits.MAX_DEPLOYMENT_CHARS)})
class Want(Message):
    """Which absent deployments valid requests wait for, in the order of coming, and which others have no request and
    for how long, in seconds. It replaces the former one."""

    wanted: list[Any]
    idle: dict[str, Any]


@_message(Kind.SERVING, Lane.MANAGEMENT, checks={"address": _TEXT})
class Serving(Message):
    """The front listens on the port it was given."""

    address: str


@_message(
    Kind.OVERDUE,
    Lane.MANAGEMENT,
    checks={"deployment": _DEPLOYMENT, "incarnation": _INCARNATION, "elapsed_s": number},
)
class Overdue(Message):
    """The host owes an answer for longer than its model's execution limit. Only the supervisor may act on it."""

    deployment: str
    incarnation: str
    elapsed_s: float


@_message(Kind.DRAINED, Lane.MANAGEMENT, checks={"deployment": _DEPLOYMENT})
class Drained(Message):
    """A deployment that is held, retired or to leave has no request left that needs its hosts."""

    deployment: str


@_message(
    Kind.ORDER,
    Lane.MANAGEMENT,
    checks={"action": one_of(("swap", "cancel", "load", "unload")), "model": _NAME, "settings": tree},
)
class Order(Message):
    """What an operator wants done. Answered by PROGRESS, any number of times, and one OUTCOME of the same call.

    `settings` of a swap: `family`, `path`, `options` and `mode`, as an operator gives them.
    """

    action: str
    model: str
    settings: dict[str, Any]


@_message(
    Kind.OUTCOME,
    Lane.MANAGEMENT,
    checks={"code": one_of(("done", "unknown", "invalid", "conflict", "failed")), "message": _TEXT, "report": tree},
)
class Outcome(Message):
    """How an order ended: `unknown` is the model, `invalid` the settings, `conflict` the moment; `failed` is tried."""

    code: str
    message: str
    report: dict[str, Any]


REFUSALS: Final = ("version", "unknown_model", "other_family", "not_wanted", "given_up")
"""Why a host is sent away: the first four when it dials in, the last one later."""

NOBODY: Final = "-"
"""The incarnation in the header of the arrival lane: a host that asks has none yet."""


@_message(
    Kind.DIAL_IN,
    Lane.ARRIVAL,
    checks={
        "model": _NAME,
        "family": _NAME,
        "version": _NAME,
        "machine": _NAME,
        "pid": _COUNT,
        "public_key": _PUBLIC_KEY,
    },
)
class DialIn(Message):
    """A host that somebody else started asks for work. It has loaded nothing yet.

    `version`: of framehost, which must be the server's own. `public_key`: the CURVE key of its sockets, Z85.
    """

    model: str
    family: str
    version: str
    machine: str
    pid: int
    public_key: str


@_message(
    Kind.ASSIGNED,
    Lane.ARRIVAL,
    checks={
        "deployment": _DEPLOYMENT,
        "incarnation": _INCARNATION,
        "options": tree,
        "path": optional(_TEXT),
        "lease_s": number,
    },
)
class Assigned(Message):
    """What the host is from now on. After `lease_s` without the server it ends itself.

    `path`: of the checkpoint, where the server's configuration has one and the host was not told another.
    """

    deployment: str
    incarnation: str
    options: dict[str, Any]
    path: str | None
    lease_s: float


@_message(Kind.REFUSED, Lane.ARRIVAL, checks={"code": one_of(REFUSALS), "message": _TEXT})
class Refused(Message):
    """The host is not wanted, or not any more. `message` is for the person who started it."""

    code: str
    message: str


@_message(Kind.LISTENING, Lane.ARRIVAL, checks={"control": _TEXT})
class Listening(Message):
    """The host's control lane is bound and can be dialled at `control`."""

    control: str


@_message(Kind.LEAVING, Lane.ARRIVAL, checks={"status": integer(0, 255), "words": _TEXT})
class Leaving(Message):
    """The host ends: with this exit status, and what it had to say about it."""

    status: int
    words: str


BY_KIND: Final[dict[int, type[Message]]] = {
    cls.KIND: cls
    for cls in (
        Hello, Welcome, Progress, Ready, Execute, Result, Failure, Cancel, CancelAnswer, Status, Drain, Bye,
        HostUp, HostDown, Deployment, Want, Serving, Overdue, Drained, Order, Outcome,
        DialIn, Assigned, Refused, Listening, Leaving,
    )
}  # fmt: skip
"""The message type of each kind byte."""
