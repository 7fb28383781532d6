"""An event loop whose clock jumps: a test with a 30 second deadline takes no time at all.

When nothing is ready, time moves to the next timer in one step, exactly. When nothing is
ready and there is no timer either, nothing could ever wake anybody, so the loop says which
tasks hang instead of waiting. Errors that reach the loop's exception handler (a callback
that raised, an exception nobody retrieved) fail the test.

Only for code without sockets, threads and processes: those move in real time.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Stuck(BaseException):
    """Every task waits and nothing is left that could wake one. Not an Exception: no handler may eat it."""


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Instead of sleeping until the next timer, tell the loop that it is time."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Stuck(f"at {self.loop.time()}: {sorted(map(repr, asyncio.all_tasks(self.loop)))}")
        self.loop.jump()
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at 0.0 and is a number that only `jump` and `advance` move."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        self._now = 0.0
        super().__init__(selector)
        selector.loop = self
        self.reported: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.reported.append(context))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock by hand, without running anything: timers that came due run in the next turn."""
        self._now += seconds

    def jump(self) -> None:
        # The timer's own number rather than now + timeout: a deadline must not be missed by a rounding error.
        self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]

    def quiet(self) -> bool:
        """Whether nothing else would run now, without time moving."""
        timers = self._scheduled  # type: ignore[attr-defined]
        return not self._ready and not (timers and timers[0].when() <= self._now)  # type: ignore[attr-defined]


def run_virtual(coroutine: Coroutine[Any, Any, T], loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop) -> T:
    """Run to completion in a fresh virtual-time loop; fail on anything the loop had to report."""
    gc.freeze()  # what was there before is nobody's business here, and looking through it takes most of a second
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualTimeLoop)
            result = runner.run(coroutine)
            # A future that nobody asked for its exception only says so when it is collected.
            gc.collect()
            assert not loop.reported, loop.reported
    finally:
        gc.unfreeze()
    return result


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate an async test: it runs in virtual time and pytest sees a plain function."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def virtual_loop() -> VirtualTimeLoop:
    """The running loop, which has to be a virtual one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


async def settle() -> None:
    """Let every other task run as far as it gets, without moving time."""
    loop = virtual_loop()
    await asyncio.sleep(0)
    while not loop.quiet():
        await asyncio.sleep(0)
