"""The front of the simulation: everything below HTTP is the real one; clients call the pipeline."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from executor_host.launch.base import ProcessExit, ProcessHandle
from frontend.errors import RequestError
from frontend.limits import ServerLimits
from frontend.requests.questions import DecisionRequest, Noul
from frontend.serving import pipeline
from frontend.serving.management import Management, until_idle
from frontend.serving.server import Server
from protocol.curve import KeyPair, Security
from protocol.exits import HostExit
from protocol.states import RequestEvent
from tests.helpers.asking import Asking

if TYPE_CHECKING:
    from frontend.runtime.admission import Permit
    from tests.simulation.world import World


class Question(Asking):
    """A request whose body is its own: equal bodies that end hosts are refused after a while."""

    async def upload(self, permit: Permit) -> bytes:
        return repr(self._asked.state).encode()


class SimulatedFront(ProcessHandle):
    """One front process."""

    def __init__(self, world: World, epoch: str) -> None:
        self._world, self.epoch = world, epoch
        self._ended: asyncio.Future[ProcessExit] = world.loop.create_future()
        # In the order of coming: a run is to run again exactly, and a set has another order each time.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._requests: dict[asyncio.Task[str], None] = {}
        self.alive, self.serving = True, False
        self.server = Server(world.loop, ServerLimits(), clock=world.loop.time)
        self._management: Management | None = None
        world.loop.call_later(world.start_s(), self._begin)

    def _begin(self) -> None:
        if not self.alive:
            return
        self._management = Management(
            self.server,
            None,  # type: ignore[arg-type]
            "management",
            self.epoch,
            on_open=lambda: self._spawn(self._open()),
            on_drain=lambda budget_s: self._spawn(self._drain(budget_s)),
            on_failure=self._world.failed,
            secure=lambda key: Security(KeyPair(b"", b""), 1.0, server=key.encode()) if key else None,
        )

    def _spawn(self, work: Any) -> None:
        task = self._world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _open(self) -> None:
        await self.server.hosts_greeted()
        assert self._management is not None
        self._management.serving("a port of the simulation")
        self.serving = True

    async def _drain(self, budget_s: float) -> None:
        self.server.begin_stop()
        drained = await until_idle(self.server, budget_s)
        await self._exit(ProcessExit(HostExit.CLEAN if drained else HostExit.LOAD_FAILED, None))

    # Requests

    def ask(self, model: str, number: int, units: int, timeout_s: float) -> asyncio.Task[str]:
        """The word for how a request ends; cancelled when the front dies."""
        task = self._world.loop.create_task(self._ask(model, number, units, timeout_s))
        self._requests[task] = None
        task.add_done_callback(self._requests.pop)
        return task

    async def _ask(self, model: str, number: int, units: int, timeout_s: float) -> str:
        record = self.server.requests.begin("id")
        question = Noul("q", "is it?", None)
        asking = Question(DecisionRequest(model, [number, units], (question,)), 10, max(1, int(timeout_s * 1000)))
        event = RequestEvent.FAIL
        try:
            await pipeline.answered(self.server, asking, record, record.observe)
            event = RequestEvent.ANSWER
            return "answered"
        except RequestError as error:
            return type(error).__name__
        except asyncio.CancelledError:
            event = RequestEvent.CANCEL
            raise
        finally:
            record.end(event)

    # The end

    def kill(self) -> None:
        """SIGKILL: its requests are gone with it, and its sockets."""
        if self.alive:
            self._world.loop.create_task(self._exit(ProcessExit(None, signal.SIGKILL)))

    async def _exit(self, ended: ProcessExit) -> None:
        if not self.alive:
            return
        self.alive = self.serving = False
        self._world.network.cut(self.epoch)
        gone = [*self._requests, *(task for task in self._tasks if task is not asyncio.current_task())]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        for deployment in (*self.server.deployments.values(), *self.server.others.values()):
            deployment.close()
        self.server.metrics.close()
        for pool in (self.server.parser, self.server.pool):
            pool.shutdown()
        await asyncio.sleep(self._world.network.delay())
        self._ended.set_result(ended)

    # What the supervisor knows

    @property
    def pid(self) -> int:
        return 0

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        pass

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return "a front of the simulation"
