"""What a deployment brings is foreign: whatever is wrong with it fails this deployment, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from frontend import limits
from frontend.errors import Unavailable
from frontend.serving.making import MAX_IDENTITY_CHARS
from frontend.serving.management import Management
from frontend.serving.replica import Availability
from protocol import families
from protocol.contracts import decider
from protocol.limits import MAX_NAME_CHARS
from protocol.messages import Deployment, HostVerdict, Message
from tests.helpers import fake_family
from tests.helpers.fake_host import FakeHost, until, zmq_context
from tests.unit.test_deployment import Bench


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    fake_family.GATE.clear()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with zmq_context() as context:
        made = Bench(context)
        yield made
        made.close()
        fake_family.GATE.set()


def newcomer(bench: Bench, incarnation: str = "1-a", **changes: Any) -> FakeHost:
    """A warm host, told to the deployment with `changes` of its facts."""
    host = FakeHost(bench.zmq, incarnation)
    bench.hosts.append(host)
    up = host.up()
    bench.deployment.host_up(dataclasses.replace(up, facts={**up.facts, **changes}))
    return host


async def verdict(bench: Bench) -> str:
    await until(lambda: bool(bench.verdicts), "a verdict")
    (_, refusal) = bench.verdicts.pop()
    return refusal


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"identity": "foreign"}, "these are other weights"),
        ({"identity": "hostile"}, "its processor cannot be made: ZeroDivisionError: not mine"),
        ({"identity": "final"}, "its processor cannot be made: SystemExit: 3"),
        ({"identity": "x" * (MAX_IDENTITY_CHARS + 1)}, f"a text of at most {MAX_IDENTITY_CHARS} characters"),
        ({"identity": ["x"]}, "its identity is not a text"),
        ({"assets": 5}, "not a table of files"),
    ],
    ids=str,
)
async def test_a_host_with_an_unusable_processor_is_refused_in_words(
    bench: Bench, facts: dict[str, Any], said: str
) -> None:
    """The supervisor is told why, requests get 503 with the reason, and a better host is served afterwards."""
    refused = newcomer(bench, **facts)
    assert said in await verdict(bench)
    assert bench.deployment.availability is Availability.FAILED
    assert said in bench.deployment.statistics().last_death
    with pytest.raises(Unavailable):
        await bench.ask()
    assert refused.hellos.empty(), "it was not dialled"
    bench.deployment.host_down(refused.down())
    host = newcomer(bench, "2-b")
    assert await verdict(bench) == ""
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked


@pytest.mark.parametrize(
    "address", [{"data": "nowhere"}, {"control": "tcp://"}, {"data": "ipc://" + "x" * 500}], ids=str
)
async def test_an_address_that_is_none_refuses_its_host(bench: Bench, address: dict[str, str]) -> None:
    """It is the host's word: the front goes on, and nothing of the attempt stays."""
    host = FakeHost(bench.zmq)
    bench.hosts.append(host)
    bench.deployment.host_up(dataclasses.replace(host.up(), **address))
    assert "its addresses are none" in await verdict(bench)
    assert bench.deployment.availability is Availability.FAILED
    assert bench.deployment.statistics().link is None


async def test_a_file_that_cannot_be_read_stops_nobody_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns while the processor of one deployment is being made, and after its time the host is refused."""
    monkeypatch.setattr(limits, "PROCESSOR_LIMIT_S", 0.2)
    other = Bench(bench.zmq)
    host = await other.host()
    newcomer(bench, identity="silent")
    asked = other.ask()
    host.answer((await host.unit()).call)
    await asked
    assert "was not made within 0.2 s" in await verdict(bench)
    fake_family.GATE.set()
    other.close()


async def test_a_folder_with_a_pipe_in_it_stops_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before there is a host, too: who asks for it waits for as long as it may, and then hears why."""
    os.mkfifo(tmp_path / "config.json")

    class Reading(fake_family.FakeProcessor):
        def __init__(self, facts: Any, options: Any, path: str | None = None) -> None:
            super().__init__(facts, options, path)
            (tmp_path / "config.json").read_text()

    monkeypatch.setattr(fake_family, "FakeProcessor", Reading)
    monkeypatch.setattr(limits, "PROCESSOR_LIMIT_S", 0.2)
    blocked = Bench(bench.zmq)
    blocked.deployment.assume({"role": "current", "present": False})
    with pytest.raises(Unavailable, match=r"cannot be prepared for: its processor was not made within 0\.2 s"):
        await blocked.ask()
    # Somebody opens the other end, and the thread goes on.
    writer = os.open(tmp_path / "config.json", os.O_WRONLY)
    os.close(writer)
    blocked.close()


async def test_a_host_that_is_gone_before_its_processor_is_made_is_forgotten(bench: Bench) -> None:
    """No verdict, no dialling; its successor is served."""
    first = newcomer(bench, identity="silent")
    bench.deployment.host_down(first.down())
    assert bench.deployment.availability is Availability.RESTARTING
    fake_family.GATE.set()
    host = newcomer(bench, "2-b")
    await until(lambda: bool(bench.verdicts), "a verdict")
    assert bench.verdicts == [("2-b", "")]
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked
    assert first.hellos.empty()


async def test_requests_wait_for_a_processor_that_is_being_made(bench: Bench) -> None:
    """A front that is new, over warm hosts: whoever was in the backlog is answered when the files are read."""
    asked = bench.ask()
    await until(lambda: bench.deployment.statistics().requests == 1, "it is here")
    host = newcomer(bench)
    assert bench.deployment.greeting
    host.answer((await host.unit()).call)
    await asked


async def test_a_table_with_a_hostile_family_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is known, and its requests hear the reason; nothing fails but that."""

    class Hostile(fake_family.FakeProcessor):
        def __init__(self, *_: object) -> None:
            raise KeyError("hostile")

    monkeypatch.setattr(fake_family, "FakeProcessor", Hostile)
    with zmq_context() as context:
        bench = Bench(context)
        failures: list[Exception] = []
        management = Management(
            bench.server,
            context,
            f"ipc://{tmp_path}/m",
            "e",
            on_open=lambda: None,
            on_drain=lambda _: None,
            on_failure=failures.append,
        )
        told: list[Message] = []
        monkeypatch.setattr(management, "tell", lambda message, call=0: told.append(message))
        rows = [
            {"id": "m@2", "name": "m", "role": "current", "present": True, "family": "fake", "options": {}}
            | {"max_requests": None, "max_cost": None}
        ]
        management._act(Deployment(models=rows, default="m", server={}, open=False), 0)
        host = FakeHost(context)
        management._act(dataclasses.replace(host.up(), deployment="m@2"), 0)
        await until(lambda: any(isinstance(message, HostVerdict) for message in told), "a verdict")
        (verdict_,) = [message for message in told if isinstance(message, HostVerdict)]
        assert (verdict_.deployment, verdict_.refusal) == (
            "m@2",
            "its processor cannot be made: KeyError: 'hostile'",
        )
        with pytest.raises(Unavailable, match="KeyError"):
            await bench.ask()
        assert failures == []
        bench.server.deployments["m"].close()
        management.close("done")
        host.close()
        bench.close()
        await asyncio.sleep(0)


def test_the_identity_of_a_built_in_family_is_taken() -> None:
    """It names every file of the checkpoint with its sha256, which no name of a model would have room for."""
    files = dict.fromkeys((*decider.FRONT_FILES, "config.json", "model.safetensors"), "a" * 64)
    identity = decider.identity(files, "bfloat16", "cuda:0", "packed", 4, 4096)
    assert MAX_NAME_CHARS < len(identity) < MAX_IDENTITY_CHARS
