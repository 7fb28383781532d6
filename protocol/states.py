"""The lives of the server, its processes, a deployment and a request, as tables. An event that is not in its table is
a bug and raises."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from protocol.errors import BadTransition


class _Word(enum.Enum):
    """An enum whose members hash by identity: they are keys of tables that every request walks through, and
    the standard hash of an enum is computed in Python each time."""

    __hash__ = object.__hash__


class HostState(_Word):
    """Where one incarnation of an executor host is, seen from the supervisor and from itself."""

    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    DEAD = "dead"

    @property
    def final(self) -> bool:
        """No further event changes it."""
        return self in (HostState.STOPPED, HostState.DEAD)


class HostEvent(_Word):
    """What moves a host."""

    WELCOME = "welcome"
    LOADED = "loaded"
    READY = "ready"
    DRAIN = "drain"
    EXIT_CLEAN = "exit_clean"
    EXIT = "exit"


HOST: Final[Mapping[tuple[HostState, HostEvent], HostState]] = {
    (HostState.STARTING, HostEvent.WELCOME): HostState.LOADING,
    (HostState.LOADING, HostEvent.LOADED): HostState.WARMING,
    (HostState.WARMING, HostEvent.READY): HostState.READY,
    # A stop may come at any time: stopping cancels starting.
    (HostState.STARTING, HostEvent.DRAIN): HostState.DRAINING,
    (HostState.LOADING, HostEvent.DRAIN): HostState.DRAINING,
    (HostState.WARMING, HostEvent.DRAIN): HostState.DRAINING,
    (HostState.READY, HostEvent.DRAIN): HostState.DRAINING,
    # Exit is known from the process handle. Only a host that was asked to go is "stopped".
    (HostState.DRAINING, HostEvent.EXIT_CLEAN): HostState.STOPPED,
    (HostState.STARTING, HostEvent.EXIT_CLEAN): HostState.DEAD,
    (HostState.LOADING, HostEvent.EXIT_CLEAN): HostState.DEAD,
    (HostState.WARMING, HostEvent.EXIT_CLEAN): HostState.DEAD,
    (HostState.READY, HostEvent.EXIT_CLEAN): HostState.DEAD,
    (HostState.STARTING, HostEvent.EXIT): HostState.DEAD,
    (HostState.LOADING, HostEvent.EXIT): HostState.DEAD,
    (HostState.WARMING, HostEvent.EXIT): HostState.DEAD,
    (HostState.READY, HostEvent.EXIT): HostState.DEAD,
    (HostState.DRAINING, HostEvent.EXIT): HostState.DEAD,
}


class SlotState(_Word):
    """Where the supervisor is with one replica's processes, which follow each other in its slot."""

    EMPTY = "empty"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    LEAVING = "leaving"
    FAILED = "failed"

    @property
    def expected(self) -> bool:
        """A host is there, or comes without anybody's doing."""
        return self in (SlotState.STARTING, SlotState.RUNNING, SlotState.WAITING)


class SlotEvent(_Word):
    """What moves a slot."""

    START = "start"
    STARTED = "started"
    DIE = "die"
    RETRY = "retry"
    GIVE_UP = "give_up"
    STOP = "stop"
    GONE = "gone"


SLOT: Final[Mapping[tuple[SlotState, SlotEvent], SlotState]] = {
    (SlotState.EMPTY, SlotEvent.START): SlotState.STARTING,
    # The launcher has made a process, or found one elsewhere.
    (SlotState.STARTING, SlotEvent.STARTED): SlotState.RUNNING,
    # It has ended, or could not be made; the next one is started after a while.
    (SlotState.STARTING, SlotEvent.DIE): SlotState.WAITING,
    (SlotState.RUNNING, SlotEvent.DIE): SlotState.WAITING,
    (SlotState.WAITING, SlotEvent.RETRY): SlotState.STARTING,
    # It has ended, and starting another one is of no use.
    (SlotState.STARTING, SlotEvent.GIVE_UP): SlotState.FAILED,
    (SlotState.RUNNING, SlotEvent.GIVE_UP): SlotState.FAILED,
    # An operator, or a request for the model, insists.
    (SlotState.FAILED, SlotEvent.START): SlotState.STARTING,
    # No other one is wanted. What is there ends when it is asked to, or by itself.
    (SlotState.STARTING, SlotEvent.STOP): SlotState.LEAVING,
    (SlotState.RUNNING, SlotEvent.STOP): SlotState.LEAVING,
    (SlotState.WAITING, SlotEvent.STOP): SlotState.EMPTY,
    (SlotState.LEAVING, SlotEvent.GONE): SlotState.EMPTY,
}


class FrontState(_Word):
    """Where the supervisor is with the fronts, which follow each other."""

    STARTING = "starting"
    GREETED = "greeted"
    SERVING = "serving"
    ENDING = "ending"
    WAITING = "waiting"
    GONE = "gone"

    @property
    def connected(self) -> bool:
        """It is told what happens."""
        return self in (FrontState.GREETED, FrontState.SERVING)


class FrontEvent(_Word):
    """What moves the front."""

    HELLO = "hello"
    SERVE = "serve"
    END = "end"
    EXIT = "exit"
    RETRY = "retry"
    GIVE_UP = "give_up"


_LIVING: Final = (FrontState.STARTING, FrontState.GREETED, FrontState.SERVING)

FRONT: Final[Mapping[tuple[FrontState, FrontEvent], FrontState]] = {
    (FrontState.STARTING, FrontEvent.HELLO): FrontState.GREETED,
    # It listens on the ports.
    (FrontState.GREETED, FrontEvent.SERVE): FrontState.SERVING,
    # It stands still, and is killed after a look at its stacks.
    **{(state, FrontEvent.END): FrontState.ENDING for state in _LIVING},
    **{(state, FrontEvent.EXIT): FrontState.WAITING for state in (*_LIVING, FrontState.ENDING)},
    (FrontState.WAITING, FrontEvent.RETRY): FrontState.STARTING,
    # The restarts are used up, or the server stops.
    (FrontState.WAITING, FrontEvent.GIVE_UP): FrontState.GONE,
}


class ServerState(_Word):
    """Where the whole server is, seen from the supervisor."""

    STARTING = "starting"
    OPEN = "open"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ServerEvent(_Word):
    """What moves the server."""

    WARM = "warm"
    SERVE = "serve"
    STOP = "stop"
    END = "end"


SERVER: Final[Mapping[tuple[ServerState, ServerEvent], ServerState]] = {
    # Every resident model has been ready: the ports may be listened on.
    (ServerState.STARTING, ServerEvent.WARM): ServerState.OPEN,
    # A front has listened on them.
    (ServerState.OPEN, ServerEvent.SERVE): ServerState.SERVING,
    # A signal, or a failure that it cannot go on with.
    (ServerState.STARTING, ServerEvent.STOP): ServerState.STOPPING,
    (ServerState.OPEN, ServerEvent.STOP): ServerState.STOPPING,
    (ServerState.SERVING, ServerEvent.STOP): ServerState.STOPPING,
    # The last line of the log is written.
    (ServerState.STOPPING, ServerEvent.END): ServerState.STOPPED,
}


class Role(_Word):
    """What a deployment is to the name it was made for."""

    COMING = "coming"
    CURRENT = "current"
    HELD = "held"
    RETIRED = "retired"

    @property
    def named(self) -> bool:
        """The name means this deployment. One deployment of a name is that at any time, and only one."""
        return self in (Role.CURRENT, Role.HELD)


class RoleEvent(_Word):
    """What moves a deployment."""

    SWITCH = "switch"
    HOLD = "hold"
    RESTORE = "restore"
    REPLACE = "replace"


ROLES: Final[Mapping[tuple[Role, RoleEvent], Role]] = {
    # Its hosts are warm and the name means it from now.
    (Role.COMING, RoleEvent.SWITCH): Role.CURRENT,
    # It could not be started.
    (Role.COMING, RoleEvent.REPLACE): Role.RETIRED,
    # Its successor is started only after it has stopped: newcomers wait at the name.
    (Role.CURRENT, RoleEvent.HOLD): Role.HELD,
    # The successor could not be started.
    (Role.HELD, RoleEvent.RESTORE): Role.CURRENT,
    # The name means another one: what it has, it finishes.
    (Role.CURRENT, RoleEvent.REPLACE): Role.RETIRED,
    (Role.HELD, RoleEvent.REPLACE): Role.RETIRED,
}


class RequestState(_Word):
    """Where one request is in the front. The last five are ends, and a request has exactly one."""

    RECEIVED = "received"
    PREPARED = "prepared"
    QUEUED = "queued"
    RUNNING = "running"
    ANSWERED = "answered"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """The client has, or would have had, its one answer."""
        return self in _ENDS


class RequestEvent(_Word):
    """What moves a request."""

    PREPARE = "prepare"
    ADMIT = "admit"
    START = "start"
    UNIT_DONE = "unit_done"
    REQUEUE = "requeue"
    ANSWER = "answer"
    REFUSE = "refuse"
    FAIL = "fail"
    EXPIRE = "expire"
    CANCEL = "cancel"


_ENDS: Final = frozenset(
    (
        RequestState.ANSWERED,
        RequestState.REFUSED,
        RequestState.FAILED,
        RequestState.EXPIRED,
        RequestState.CANCELLED,
    )
)
_OPEN: Final = (RequestState.RECEIVED, RequestState.PREPARED, RequestState.QUEUED, RequestState.RUNNING)

REQUEST: Final[Mapping[tuple[RequestState, RequestEvent], RequestState]] = {
    (RequestState.RECEIVED, RequestEvent.PREPARE): RequestState.PREPARED,
    (RequestState.PREPARED, RequestEvent.ADMIT): RequestState.QUEUED,
    (RequestState.QUEUED, RequestEvent.START): RequestState.RUNNING,
    # Families with several units queue the next one after each.
    (RequestState.RUNNING, RequestEvent.UNIT_DONE): RequestState.QUEUED,
    # Its host died and had not taken the unit.
    (RequestState.RUNNING, RequestEvent.REQUEUE): RequestState.QUEUED,
    # The same of one that was sent while another one was executed.
    (RequestState.QUEUED, RequestEvent.REQUEUE): RequestState.QUEUED,
    (RequestState.QUEUED, RequestEvent.ANSWER): RequestState.ANSWERED,
    # A native dialect may ask nothing, and nothing is executed then.
    (RequestState.PREPARED, RequestEvent.ANSWER): RequestState.ANSWERED,
    # Before its first unit was sent; and of input whose fault only the host could see.
    (RequestState.RECEIVED, RequestEvent.REFUSE): RequestState.REFUSED,
    (RequestState.PREPARED, RequestEvent.REFUSE): RequestState.REFUSED,
    (RequestState.RUNNING, RequestEvent.REFUSE): RequestState.REFUSED,
    **{(state, RequestEvent.FAIL): RequestState.FAILED for state in _OPEN},
    **{(state, RequestEvent.EXPIRE): RequestState.EXPIRED for state in _OPEN},
    **{(state, RequestEvent.CANCEL): RequestState.CANCELLED for state in _OPEN},
}

StateT = TypeVar("StateT", bound=enum.Enum)
EventT = TypeVar("EventT", bound=enum.Enum)


class Machine(Generic[StateT, EventT]):
    """A state that moves only as its table says."""

    __slots__ = ("_table", "state")

    def __init__(self, table: Mapping[tuple[StateT, EventT], StateT], state: StateT) -> None:
        self._table = table
        self.state = state

    def advance(self, event: EventT) -> StateT:
        """Move and return the new state; `BadTransition` when the table has no such entry."""
        try:
            self.state = self._table[self.state, event]
        except KeyError:
            raise BadTransition(f"{event.value!r} is not possible while {self.state.value!r}") from None
        return self.state

    def allows(self, event: EventT) -> bool:
        """Whether `advance(event)` would succeed."""
        return (self.state, event) in self._table

    def __repr__(self) -> str:
        return f"<{type(self.state).__name__} {self.state.value}>"
