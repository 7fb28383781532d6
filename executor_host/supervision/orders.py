"""What operators order, carried out: swap, load, unload, cancel, budget. The order is taken or refused at once, each
step is told while it happens, and the outcome when it has.

    ORDER ─▶ PROGRESS (received) ─▶ PROGRESS (a step) ... ─▶ OUTCOME {code, message, report}
    ORDER ─▶ OUTCOME {conflict, unknown, invalid}

Which steps these are, and one order per name at a time, is said in changes.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import reprlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from executor_host.supervision import swap as swapping
from executor_host.supervision.changes import Changes, Conflict, OrderFailed, Say
from executor_host.supervision.console import Console
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.life import ServerLife
from protocol.messages import Message, Order, Outcome, Progress
from protocol.models import MAX_AMOUNT, DeploymentSpec


class Invalid(Exception):
    """The settings of an order make no sense. The text says which and why."""


class Reloading(Protocol):
    """What the configuration file says now, beside what the server does."""

    @property
    def steps(self) -> Sequence[str]:
        """In words, what will be done."""
        ...

    @property
    def later(self) -> Sequence[str]:
        """The keys that take effect with the next start."""
        ...

    @property
    def kept_bytes(self) -> Mapping[str, int] | None:
        """By device, what may stay on it between requests; None: as it is."""
        ...

    @property
    def session_idle_s(self) -> float | None:
        """After how many seconds without a turn a conversation is over; None: as it is."""
        ...

    def successors(self) -> Sequence[tuple[DeploymentSpec, Callable[[], None]]]:
        """The deployments that names are to mean, each with what is to be called when its name does."""
        ...

    def accept(self) -> None:
        """The rest of it is done: the next look begins here."""
        ...


Successor = Callable[[str, Mapping[str, Any]], Awaitable[tuple[DeploymentSpec, Callable[[], None]]]]
"""What settings make of a name, and what is to be called when the name means it. Raises `Invalid`."""


class Orders:
    """The orders to one server. Everything runs in the supervisor's loop."""

    def __init__(
        self,
        life: ServerLife,
        console: Console,
        fleet: Fleet,
        changes: Changes,
        models: Sequence[str],
        successor: Successor,
        reload: Callable[[], Awaitable[Reloading]],
    ) -> None:
        """`models`: every configured name. `reload`: reads the configuration again; raises `Invalid`."""
        self.swaps = {name: {"done": 0, "failed": 0} for name in models}
        """How the swaps of each name have ended."""
        self._life = life
        self._console = console
        self._fleet = fleet
        self._changes = changes
        self._successor = successor
        self._reload = reload
        self._reloading = False
        self._models = models
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, order: Order, reply: Callable[[Message], None]) -> None:
        """Carry out what an operator wants, or say at once why not. `reply`: sends to that operator."""

        def answer(code: str, message: str, report: dict[str, Any] | None = None) -> None:
            if report is None:
                self._console.say("framehost", f"{order.action} of {order.model}: {message}")
            reply(Outcome(code=code, message=message, report=report or {}))

        def say(step: str) -> None:
            self._console.say("framehost", f"{order.action} of {order.model}: {step}")
            reply(Progress(stage=order.action, note=step))

        if self._life.stopping:
            answer("conflict", "the server is stopping")
        elif not self._life.open:
            answer("conflict", "the server is still starting its models")
        elif order.action == "budget":
            self._budget(order, answer)
        elif order.model not in self._models and order.action != "reload":
            answer("unknown", f"there is no model {order.model!r}; models here: {', '.join(self._models)}")
        else:
            # Received: from here on it may take as long as it takes.
            reply(Progress(stage=order.action))
            task = asyncio.get_running_loop().create_task(self._carry_out(order, answer, say))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._life.watch(task)

    def give_up(self) -> None:
        """The server stops: what is being carried out is answered with that."""
        for task in self._tasks:
            task.cancel()

    def _budget(self, order: Order, answer: Callable[..., None]) -> None:
        """What may stay on a device between requests. The front holds it to that at once."""
        size = order.settings.get("bytes")
        if order.settings.keys() != {"bytes"} or not (size is None or (type(size) is int and 0 <= size <= MAX_AMOUNT)):
            answer("invalid", f"a budget is bytes, 0 to {MAX_AMOUNT}, or null for what the models' own options say")
            return
        self._fleet.keep(order.model, size)
        words = "what the models' own options say" if size is None else f"{size} bytes"
        answer("done", f"the device {order.model!r} may keep {words} between requests")

    async def _carry_out(self, order: Order, answer: Callable[..., None], say: Say) -> None:
        try:
            if order.action == "swap":
                await self._swap(order, answer, say)
            elif order.action == "reload":
                await self._reloaded(order, answer, say)
            elif order.action == "cancel":
                answer("done", self._changes.cancel(order.model))
            elif order.action == "load":
                answer("done", await self._changes.load(order.model))
            else:
                answer("done", await self._changes.unload(order.model))
        except Invalid as error:
            answer("invalid", str(error))
        except Conflict as error:
            answer("conflict", str(error))
        except swapping.SwapFailed as error:
            self.swaps[order.model]["failed"] += 1
            answer("failed", str(error))
        except OrderFailed as error:
            answer("failed", str(error))
        except asyncio.CancelledError:
            answer("failed", f"the server is stopping; the {order.action} was given up")
            raise
        self._fleet.give_up_when_none_is_left()

    async def _reloaded(self, order: Order, answer: Callable[..., None], say: Say) -> None:
        """What has changed in the file, told and done; with the setting `dry_run` told alone."""
        if self._reloading:
            raise Conflict("the file is being reloaded already")
        self._reloading = True
        try:
            found = await self._reload()
            for step in found.steps:
                say(step)
            for key in found.later:
                say(f"{key}: takes effect with the next start")
            if order.settings.get("dry_run"):
                answer("done", f"{len(found.steps)} changes would be made, and nothing was")
                return
            self._fleet.keep_as(found.kept_bytes, found.session_idle_s)
            failed = []
            for spec, accept in found.successors():
                try:
                    await self._changes.swap(spec.name, spec, swapping.Mode.START_FIRST, say)
                except (swapping.SwapFailed, Conflict, OrderFailed) as error:
                    self.swaps[spec.name]["failed"] += 1
                    failed.append(f"{spec.name}: {error}")
                else:
                    accept()
                    self.swaps[spec.name]["done"] += 1
            found.accept()
            if failed:
                raise OrderFailed("; ".join(failed))
            answer("done", f"{len(found.steps)} changes made")
        finally:
            self._reloading = False

    async def _swap(self, order: Order, answer: Callable[..., None], say: Say) -> None:
        name = order.model
        try:
            mode = swapping.Mode(order.settings.get("mode", "start-first"))
        except ValueError as error:
            known = " or ".join(mode.value for mode in swapping.Mode)
            raise Invalid(f"swap, key mode: {reprlib.repr(order.settings['mode'])} is not {known}") from error
        spec, accept = await self._successor(name, order.settings)
        report = await self._changes.swap(name, spec, mode, say)
        accept()
        self.swaps[name]["done"] += 1
        text = f"{name} means {report.new}, {report.old} and its {report.freed_bytes >> 20} MiB are gone"
        if report.held_bytes:
            text = f"{name} means {report.new}; of {report.old}, {report.held_bytes} bytes are resident still"
        self._console.say("framehost", f"swap of {name}: {text} ({report.total_s:.2f} s)")
        answer("failed" if report.held_bytes else "done", text, dataclasses.asdict(report))
