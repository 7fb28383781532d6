"""Every message of the lanes: frozen, typed, checked when made into bytes and when read from them. They are one file
because together they are the protocol: a change of any is a change of its version.

    lane         from          to            messages
    ----------   -----------   -----------   ---------------------------------------------------------
    data         front         host          EXECUTE, several as one BATCH (`batches`); OWED; EVICT
                 host          front         RESULT, FAILURE; several as one BATCH
    control      front,        host          HELLO, CANCEL, STATUS (ask), DRAIN
                 supervisor
                 host          front,        WELCOME, PROGRESS, READY, CANCELLED, STATUS (report), BYE,
                               supervisor    FAILURE (a host that cannot load says why)
    management   front         supervisor    HELLO, SERVING, HOST_VERDICT, WANT, OVERDUE, DRAINED, ORDER,
                                             STATUS (both ways), BYE
                 supervisor    front         WELCOME, DEPLOYMENT, HOST_UP, HOST_DOWN, DRAIN, STATUS, PROGRESS, OUTCOME
                 cli           supervisor    STATUS, ORDER
                 supervisor    cli           STATUS, PROGRESS, OUTCOME
    arrival      remote host   supervisor    DIAL_IN, LISTENING, LEAVING
                 supervisor    remote host   ASSIGNED, REFUSED

A field is declared once, by its annotation: Python's type, and the `fields.Field` that checks it and names its limit.
A body with an unknown, missing or ill-typed field is refused, because within one protocol version an unknown field
would be a meaning silently dropped.
"""

# No `from __future__ import annotations`: a field's annotation is read here as the object that it is.

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from protocol import limits
from protocol.errors import FAILURES, Malformed
from protocol.fields import (
    COUNT,
    NUMBER,
    Boolean,
    Check,
    Count,
    DeploymentId,
    Field,
    Incarnation,
    Name,
    OptionalText,
    OptionalTree,
    Path,
    PublicKey,
    Seconds,
    Text,
    Tree,
    Trees,
    describe,
    integer,
    integers,
    mapped,
    number,
    one_of,
    optional,
    text,
    texts,
)
from protocol.retention import MAX_CONVERSATION_CHARS


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
    BATCH = 13
    OWED = 14
    EVICT = 15
    HOST_UP = 32
    HOST_DOWN = 33
    DEPLOYMENT = 34
    WANT = 35
    SERVING = 36
    OVERDUE = 37
    DRAINED = 38
    ORDER = 39
    OUTCOME = 40
    HOST_VERDICT = 41
    DIAL_IN = 64
    ASSIGNED = 65
    REFUSED = 66
    LISTENING = 67
    LEAVING = 68


_new: Final = object.__new__


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base of all messages. Subclasses declare their kind, their lanes and their fields."""

    KIND: ClassVar[Kind]
    KIND_BYTE: ClassVar[bytes]
    LANES: ClassVar[tuple[Lane, ...]]
    FIELDS: ClassVar[Mapping[str, Field]]
    STORES: ClassVar[tuple[tuple[str, Check, Callable[[object, object], None]], ...]]
    """Name, check and setter of each field: a decoded message is filled without the frozen type's own, slower way."""

    def to_body(self) -> dict[str, Any]:
        """The body map, before packing; raises if a field does not hold what it is declared to hold.

        Shallow: the values are the message's own.
        """
        body = {}
        for name, check, _ in self.STORES:
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
        missing, unknown = cls.FIELDS.keys() - body.keys(), len(body.keys() - cls.FIELDS.keys())
        return Malformed(f"{cls.__name__}: missing fields {sorted(missing)}, and {unknown} unknown")


M = TypeVar("M", bound=Message)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def declare(kind: Kind, *lanes: Lane) -> Callable[[type[M]], type[M]]:
    """A message type of its annotated fields. Raises `TypeError` for one that does not say what it may hold."""

    def made_of(cls: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        made.KIND = kind
        made.KIND_BYTE = bytes((kind,))
        made.LANES = lanes
        made.FIELDS = {entry.name: _field(made, entry.name, entry.type) for entry in fields(made)}
        made.STORES = tuple((name, of.check, getattr(made, name).__set__) for name, of in made.FIELDS.items())
        return made

    return made_of


def _field(message: type[Message], name: str, annotation: Any) -> Field:
    for extra in getattr(annotation, "__metadata__", ()):
        if isinstance(extra, Field):
            return extra
    raise TypeError(f"{message.__name__}.{name} does not say what it may hold")


@declare(Kind.HELLO, Lane.CONTROL, Lane.MANAGEMENT)
class Hello(Message):
    """The first message of the side that dials. `epoch` is the dialer's own incarnation: of a front, its launch.
    `clock_ms`: the clock of its units' `sent_ms`, now; 0 of one that sends none."""

    role: Name
    epoch: Incarnation
    pid: Count
    clock_ms: Count = 0


@declare(Kind.WELCOME, Lane.CONTROL, Lane.MANAGEMENT)
class Welcome(Message):
    """The answer to HELLO. `busy_epoch` and `busy_call` name the unit the host is executing, or are "" and 0. `held`:
    what a host keeps for earlier fronts, by conversation: its tokens and its bytes (`retention`)."""

    role: Name
    pid: Count
    state: Name
    busy_call: Count = 0
    busy_epoch: Annotated[str, text(limits.MAX_INCARNATION_CHARS)] = ""
    held: Tree = field(default_factory=dict)


@declare(Kind.PROGRESS, Lane.CONTROL, Lane.MANAGEMENT)
class Progress(Message):
    """A loading host is alive, or an order is being carried out, and this far. `fraction` is 0..1, or None when the
    end is not known."""

    stage: Name
    fraction: Annotated[float | None, optional(number(0, 1))] = None
    note: Text = ""


@declare(Kind.READY, Lane.CONTROL)
class Ready(Message):
    """Loaded and warmed up with a real decision; the data socket at `address` is bound.

    `facts`: model identity, dtype, limits, capabilities, parameter count: whatever the processor needs.
    """

    address: Text
    facts: Tree


@declare(Kind.EXECUTE, Lane.DATA)
class Execute(Message):
    """One admitted unit. `payload` is the family's payload type, as its fields. `request` is the id of the request that
    the unit belongs to, for the host's log; empty for a unit of no request. `sent_ms`: when it was sent, by the
    sender's clock that only rises, in milliseconds; 0: not told. `keep`: a `retention.Keep`, for a host that keeps
    prefixes."""

    payload: Tree
    request: Annotated[str, text(limits.MAX_NAME_CHARS)] = ""
    sent_ms: Count = 0
    keep: OptionalTree = None


@declare(Kind.OWED, Lane.DATA)
class Owed(Message):
    """The front still waits for these calls, although it should not have to: a connection broke, or the host says that
    it is idle. Each is answered, with the answer that was on its way or with FAILURE `lost`."""

    calls: Annotated[list[Any], integers(0, limits.MAX_CALL_ID)]


@declare(Kind.RESULT, Lane.DATA)
class Result(Message):
    """The unit's outputs, raw. `elapsed_us` is the time inside the executor. `held`: a `retention.Held`, from a host
    that keeps prefixes."""

    outputs: Tree
    elapsed_us: Count
    held: OptionalTree = None


@declare(Kind.EVICT, Lane.DATA)
class Evict(Message):
    """Give up what these conversations have pinned, and of the other prefixes all that is above so many bytes. It is
    done before the next unit, and not answered."""

    conversations: Annotated[list[Any], texts(MAX_CONVERSATION_CHARS)]
    prefixes: Count


@declare(Kind.FAILURE, Lane.DATA, Lane.CONTROL)
class Failure(Message):
    """The unit ended without outputs. `message` is public text, safe to show to the client.

    `dispatched`: the executor may have started on it. `fatal`: the host retires now.
    `where`: the place in the request (keys and indexes) for input errors, else empty.
    """

    code: Annotated[str, one_of(*FAILURES, called="a code of the table below")]
    status: Annotated[int, integer(400, 599)]
    message: Text
    error_type: Name = "internal_error"
    where: Path = field(default_factory=list)
    dispatched: Boolean = True
    fatal: Boolean = False


@declare(Kind.CANCEL, Lane.CONTROL)
class Cancel(Message):
    """No client waits for call `header.call` of this front any more. Idempotent; unknown calls are fine."""

    epoch: Incarnation


@declare(Kind.CANCELLED, Lane.CONTROL)
class CancelAnswer(Message):
    """What the cancel found: `running` (it ends when the executor lets go), `not_begun` (it will be answered and not
    executed when it comes, or its turn does) or `not_running` (it has ended)."""

    outcome: Annotated[str, one_of("running", "not_begun", "not_running")]


@declare(Kind.STATUS, Lane.CONTROL, Lane.MANAGEMENT)
class Status(Message):
    """A question when `report` is None; otherwise the answer, or a report on the sender's own account."""

    report: OptionalTree = None


@declare(Kind.DRAIN, Lane.CONTROL, Lane.MANAGEMENT)
class Drain(Message):
    """Take nothing new, finish what runs, report BYE, exit. The sender kills after the budget."""

    budget_s: Seconds


@declare(Kind.BYE, Lane.CONTROL, Lane.MANAGEMENT)
class Bye(Message):
    """The last message of a peer that ends on purpose."""

    reason: Text


@declare(Kind.HOST_UP, Lane.MANAGEMENT)
class HostUp(Message):
    """A warm host of `deployment` can be dialled at these addresses.

    `public_key`: the CURVE key that the host must prove to hold, "" for a local one.
    """

    deployment: DeploymentId
    replica: Count
    incarnation: Incarnation
    control: Text
    data: Text
    pid: Count
    facts: Tree
    public_key: Annotated[str, text(limits.CURVE_KEY_CHARS)] = ""


@declare(Kind.HOST_DOWN, Lane.MANAGEMENT)
class HostDown(Message):
    """The process of this incarnation is gone (known from its handle). Ends all of its calls in the front.

    `taken`: by the epoch of each front, the last call that the host took from it; of a front that is not in it, none.
    The later ones it has not seen. None: not known.
    """

    deployment: DeploymentId
    replica: Count
    incarnation: Incarnation
    exit: Annotated[int | None, optional(integer(-(2**31), 2**31 - 1))]
    signal: Text
    last_words: Text
    will_restart: Boolean
    retry_after_s: Seconds
    taken: Annotated[dict[str, Any] | None, optional(mapped(limits.MAX_INCARNATION_CHARS, COUNT))] = None


@declare(Kind.DEPLOYMENT, Lane.MANAGEMENT)
class Deployment(Message):
    """The whole table: every deployment there is, and what it is to its name.

    `open`: the listening socket may be listened on from now.
    """

    models: Trees
    default: Name
    server: Tree
    open: Boolean


@declare(Kind.WANT, Lane.MANAGEMENT)
class Want(Message):
    """Which absent deployments valid requests wait for, in the order of coming, and which others have no request and
    for how long, in seconds. It replaces the former one."""

    wanted: Annotated[list[Any], texts(limits.MAX_DEPLOYMENT_CHARS)]
    idle: Annotated[dict[str, Any], mapped(limits.MAX_DEPLOYMENT_CHARS, NUMBER)]


@declare(Kind.SERVING, Lane.MANAGEMENT)
class Serving(Message):
    """The front listens on the port it was given."""

    address: Text


@declare(Kind.OVERDUE, Lane.MANAGEMENT)
class Overdue(Message):
    """The host owes an answer for longer than its model's execution limit. Only the supervisor may act on it."""

    deployment: DeploymentId
    incarnation: Incarnation
    elapsed_s: Seconds


@declare(Kind.HOST_VERDICT, Lane.MANAGEMENT)
class HostVerdict(Message):
    """The front's answer to HOST_UP: it has accepted what the host brings, or `refusal` says why it cannot. A host is
    ready for others when it is accepted; one that is refused fails, and no other because of it."""

    deployment: DeploymentId
    replica: Count
    incarnation: Incarnation
    refusal: Text = ""


@declare(Kind.DRAINED, Lane.MANAGEMENT)
class Drained(Message):
    """A deployment that is held, retired or to leave has no request left that needs its hosts."""

    deployment: DeploymentId


@declare(Kind.ORDER, Lane.MANAGEMENT)
class Order(Message):
    """What an operator wants done. Answered by PROGRESS, any number of times, and one OUTCOME of the same call.

    `settings` of a swap: `family`, `path`, `options` and `mode`, as an operator gives them; of a budget `bytes`, and
    `model` is the device; of a reload perhaps `dry_run`, and `model` is of no meaning.
    """

    action: Annotated[str, one_of("swap", "cancel", "load", "unload", "budget", "reload")]
    model: Name
    settings: Tree


@declare(Kind.OUTCOME, Lane.MANAGEMENT)
class Outcome(Message):
    """How an order ended: `unknown` is the model, `invalid` the settings, `conflict` the moment; `failed` is tried."""

    code: Annotated[str, one_of("done", "unknown", "invalid", "conflict", "failed")]
    message: Text
    report: Tree


REFUSALS: Final = ("version", "unknown_model", "other_family", "not_wanted", "given_up")
"""Why a host is sent away: the first four when it dials in, the last one later."""

NOBODY: Final = "-"
"""The incarnation in the header of the arrival lane: a host that asks has none yet."""


@declare(Kind.DIAL_IN, Lane.ARRIVAL)
class DialIn(Message):
    """A host that another machine started asks for work. It has loaded nothing yet.

    `version`: of framehost, which must be the server's own. `public_key`: the CURVE key of its sockets, Z85.
    """

    model: Name
    family: Name
    version: Name
    machine: Name
    pid: Count
    public_key: PublicKey


@declare(Kind.ASSIGNED, Lane.ARRIVAL)
class Assigned(Message):
    """What the host is from now on. After `lease_s` without the server it ends itself.

    `path`: of the checkpoint, where the server's configuration has one and the host was not told another.
    """

    deployment: DeploymentId
    incarnation: Incarnation
    options: Tree
    path: OptionalText
    lease_s: Seconds


@declare(Kind.REFUSED, Lane.ARRIVAL)
class Refused(Message):
    """The host is not wanted, or not any more. `message` is for the person who started it."""

    code: Annotated[str, one_of(*REFUSALS)]
    message: Text


@declare(Kind.LISTENING, Lane.ARRIVAL)
class Listening(Message):
    """The host's control lane is bound and can be dialled at `control`."""

    control: Text


@declare(Kind.LEAVING, Lane.ARRIVAL)
class Leaving(Message):
    """The host ends: with this exit status, and what it had to say about it."""

    status: Annotated[int, integer(0, 255)]
    words: Text


BY_KIND: Final[dict[int, type[Message]]] = {
    cls.KIND: cls
    for cls in (
        Hello, Welcome, Progress, Ready, Execute, Owed, Evict, Result, Failure, Cancel, CancelAnswer, Status, Drain,
        Bye, HostUp, HostDown, Deployment, Want, Serving, Overdue, Drained, Order, Outcome, HostVerdict,
        DialIn, Assigned, Refused, Listening, Leaving,
    )
}  # fmt: skip
"""The message type of each kind byte."""
