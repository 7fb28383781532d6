"""What the front tells the supervisor of who uses which deployment, after tables of the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frontend import limits
from frontend.observation.record import RequestTable
from frontend.requests.questions import DecisionRequest, Noul
from frontend.serving import pipeline
from frontend.serving.management import Management
from frontend.serving.server import Server, ServerLimits
from protocol import families
from protocol.messages import Deployment, Message, Want
from tests.helpers import fake_family
from tests.helpers.asking import Asking
from tests.helpers.fake_host import until, zmq_context


def table(**roles: str) -> Deployment:
    """Deployments of the one name "m" that have hosts, with what each is to it."""
    bounds = {"max_requests": None, "max_cost": None, "family": "fake", "options": {}}
    rows = [{"id": f"m@{key}", "name": "m", "role": role, "present": True, **bounds} for key, role in roles.items()]
    return Deployment(models=rows, default="m", server={}, open=False)


async def idle(management: Management, messages: list[Message], told: Deployment) -> set[str]:
    """Who is idle by the report that follows a table."""
    messages.clear()
    management._act(told, 0)
    async with asyncio.timeout(20):
        while not any(isinstance(message, Want) for message in messages):
            await asyncio.sleep(0)
    last = messages[-1]
    assert isinstance(last, Want)
    return set(last.idle)


async def test_what_a_swap_moves_is_idle_to_nobody_who_looks_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a name is held, neither of the two is said to be idle; and when it goes on, who has waited is there."""
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    with zmq_context() as context:
        loop = asyncio.get_running_loop()
        server = Server(loop, ServerLimits())
        management = Management(
            server,
            context,
            f"ipc://{tmp_path}/m",
            "e",
            on_open=lambda: None,
            on_drain=lambda _: None,
            on_failure=lambda _: None,
        )
        messages: list[Message] = []
        monkeypatch.setattr(management, "tell", lambda message, call=0: messages.append(message))
        assert await idle(management, messages, table(a="current")) == {"m@a"}
        assert await idle(management, messages, table(a="held", b="coming")) == set()
        record = RequestTable(loop.time).begin("id")
        # Its preparation takes as long as the test wants.
        asking = Asking(DecisionRequest("m", "held", (Noul("q", "is it?", None),)), limits.INLINE_WORK_BYTES + 1)
        user = asyncio.create_task(pipeline.answered(server, asking, record, record.observe))
        await until(lambda: record.waits_for != "", "it waits at the name")
        assert await idle(management, messages, table(b="current")) == set(), "it is in use from the first moment"
        user.cancel()
        await asyncio.wait([user])
        fake_family.GATE.set()
        assert await idle(management, messages, table(b="current")) == {"m@b"}
        management.close("done")
        server.metrics.close()
        server.pool.shutdown()
        server.parser.shutdown()
