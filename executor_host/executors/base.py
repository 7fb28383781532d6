"""The host's half of a model family: what an executor must do.

One executor per process. All of its methods are called from the main thread, in this order and never at
the same time:

    __init__ -> load -> warm_up -> (execute or execute_many)* -> close

so an executor needs no locks, and may use a device that only one thread can use. `close` is also called
after a method that raised. The errors are those of `executor_host.errors`; any other exception is a bug and
ends the call (or the start) with an internal error.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from executor_host.errors import Abandoned, ConfigurationError, FatalExecutionError, HostError
from protocol.errors import Malformed
from protocol.options import NO_OPTIONS, OptionError, OptionTable
from protocol.retention import Cost, Held

Progress: TypeAlias = Callable[[float, str], None]
"""Called with the fraction done, within [0, 1] and never falling, and a few words for people."""


class Call(Protocol):
    """What an executor may know about the call it executes. Both change while it runs."""

    @property
    def cancelled(self) -> bool:
        """Whether no client waits for the result any more."""
        ...

    @property
    def remaining_ms(self) -> int | None:
        """Milliseconds left of the request's own time, 0 when it is over; None = no limit."""
        ...


class Kept(Protocol):
    """What an executor keeps on its device between units (`backbones.kept.KeptPrefixes`)."""

    def cost(self) -> Cost:
        """What is kept of a text costs so much."""
        ...

    def clear(self) -> None:
        """Give up everything."""
        ...

    def allow(self, prefixes: int) -> None:
        """What no conversation has pinned may be so many bytes from now on."""
        ...

    def begin_turn(self) -> None:
        """What is read from now on belongs to one unit."""
        ...

    def end_turn(self, conversation: str | None) -> Held:
        """The unit has ended: pin what it has read for `conversation`; None or "": for none."""
        ...

    def drop(self, conversations: Iterable[str]) -> None:
        """Give up what is pinned for these."""
        ...


class WarmUpCall:
    """The call of a warm-up: no client leaves, and there is no limit."""

    cancelled = False
    remaining_ms = None


def check(call: Call) -> None:
    """Raise `Abandoned` when no client waits for `call` any more or its time is over."""
    if call.cancelled:
        raise Abandoned("the call was cancelled")
    remaining = call.remaining_ms
    if remaining is not None and remaining <= 0:
        raise Abandoned("the call ran out of time")


@contextlib.contextmanager
def warming_up() -> Iterator[None]:
    """Around a warm-up's decisions. What they raise is a `ConfigurationError`, since trying again would not help, but
    for a `FatalExecutionError`: another start may find the device whole."""
    try:
        yield
    except (ConfigurationError, FatalExecutionError):
        raise
    except Exception as error:
        raise ConfigurationError(f"the warm-up decision failed: {error}") from error


class Executor(ABC):
    """Loads one checkpoint and executes admitted units, one at a time."""

    OPTIONS: ClassVar[OptionTable] = NO_OPTIONS
    """The options of the family: `Family.options`."""

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        """`path`: the checkpoint, None for the family's default. `options`: the model's configuration; `self.options`
        has all options of the family with their values.

        Cheap: no heavy import, no file is read. Raises `ConfigurationError` for an option that `OPTIONS` refuses. The
        configuration was checked by the same table before this process was started; a host that is started by hand, or
        by a supervisor of another version, is not trusted to have done so.
        """
        self.path = path
        try:
            self.options = self.OPTIONS.complete(options)
        except OptionError as error:
            raise ConfigurationError(error.message) from None

    def relieve(self) -> None:
        """Give up what is only kept to be faster: the device had no memory left, and the next call is to find some.
        Here the kept prefixes that no conversation has pinned."""
        if self.kept is not None:
            self.kept.allow(0)

    @abstractmethod
    def load(self, progress: Progress) -> Mapping[str, object]:
        """Loads the weights; returns the facts of READY, made of msgpack types only.

        Every family reports `identity` (equal exactly for equal answers: a restarted host with another
        identity does not inherit the queue), `name`, `sha256`, `dtype`, `parameters`, `limits`.
        Raises `ConfigurationError` when trying again would not help.
        """

    @abstractmethod
    def warm_up(self) -> None:
        """Makes one real decision and checks its result. Raises `ConfigurationError` when it is none."""

    @abstractmethod
    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The outputs of one unit by name, made of msgpack types and arrays. The device is synchronised on return.

        A long execution looks at `call` between steps and raises `Abandoned`; looking is never an obligation.
        """

    max_units = 1
    """How many units one `execute_many` takes; fixed after `load`, which reports it in READY as `limits.units`. Of a
    larger batch it gets portions; at 1 each unit comes alone, to `execute`."""

    def execute_many(
        self, payloads: Sequence[object], calls: Sequence[Call]
    ) -> Sequence[Mapping[str, Any] | HostError | Malformed]:
        """The outputs of several units in one pass, in their order; in the place of one that fails alone, its error.

        What it raises concerns all of them: then each half is executed by itself, until one unit stands alone and has
        the error for its own, while its neighbours are answered. Of that a unit is executed log2(n) + 1 times at most.
        A `FatalExecutionError` is every unit's, and nothing is executed again, but for a `DeviceMemory`, since half as
        many may fit. A unit's outputs in any company are those that it has alone, within the family's bound. This
        default executes one after the other.
        """
        outcomes: list[Mapping[str, Any] | HostError | Malformed] = []
        for payload, call in zip(payloads, calls, strict=True):
            try:
                outcomes.append(self.execute(payload, call))
            except FatalExecutionError:
                raise
            except (HostError, Malformed) as error:
                outcomes.append(error)
        return outcomes

    @property
    def kept(self) -> Kept | None:
        """What stays on the device between units, after `load`; None for an executor that keeps nothing. Units of one
        that keeps something come alone, to `execute`."""
        return None

    def close(self) -> None:  # noqa: B027  an executor without resources has nothing to close
        """Gives back what `load` took. May be called twice, and without a load."""
