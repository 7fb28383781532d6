"""A request that ends host after host is refused for a while, and nobody else is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from frontend import limits
from frontend.errors import HostDied, HostRetires, InternalError, Poisoned
from frontend.serving.poison import Poison
from protocol import families
from tests.helpers import fake_family
from tests.helpers.fake_host import failure, zmq_context
from tests.unit.test_deployment import Bench


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with zmq_context() as context:
        made = Bench(context)
        made.now = 0.0  # type: ignore[attr-defined]
        made.server.poison = Poison(lambda: made.now)  # type: ignore[attr-defined]
        yield made
        made.close()


async def ends_a_host(bench: Bench, number: int, *, size: int = 10) -> None:
    host = await bench.host(f"{number}-a")
    asked = bench.ask(size=size)
    await host.unit()
    bench.deployment.host_down(host.down(taken=None))
    with pytest.raises(HostDied):
        await asked


async def test_a_request_that_has_ended_two_hosts_is_refused_and_others_are_not(bench: Bench) -> None:
    """422, before it is queued; another body of the same model is answered; after its time it is tried again."""
    await ends_a_host(bench, 1)
    await ends_a_host(bench, 2)
    host = await bench.host("3-a")
    with pytest.raises(Poisoned, match="2 hosts of model 'm' have ended") as caught:
        await bench.ask()
    assert (caught.value.status, caught.value.error_type) == (422, "poisoned")
    assert caught.value.retry_after is None
    assert host.units.empty()
    assert bench.server.poison.report() == {"requests": 1, "suspected": 0, "refused": 1}
    other = bench.ask(size=11)
    host.answer((await host.unit()).call)
    await other
    bench.now += limits.POISON_S  # type: ignore[attr-defined]
    again = bench.ask()
    host.answer((await host.unit()).call)
    await again
    assert bench.server.poison.report() == {"requests": 0, "suspected": 0, "refused": 1}


async def test_copies_that_wait_behind_it_are_refused_when_they_would_be_sent(bench: Bench) -> None:
    """They came before anybody knew. The third host gets none of them."""
    host = await bench.host("1-a")
    copies = [bench.ask() for _ in range(4)]
    for number in (2, 3):
        await host.unit()
        bench.deployment.host_down(host.down(taken=None))
        host = await bench.host(f"{number}-a")
    for copy, error in zip(copies, (HostDied, HostDied, Poisoned, Poisoned), strict=True):
        with pytest.raises(error):
            await copy
    assert host.units.empty()


async def test_an_answer_in_between_clears_it(bench: Bench) -> None:
    """The host was killed by somebody else."""
    await ends_a_host(bench, 1)
    host = await bench.host("2-a")
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked
    assert not bench.server.poison.watches
    bench.deployment.host_down(host.down())
    await ends_a_host(bench, 3)
    await bench.host("4-a")
    assert bench.server.poison.report() == {"requests": 0, "suspected": 1, "refused": 0}


async def test_other_weights_are_asked_again(bench: Bench) -> None:
    """What ended the old ones may be answered by these."""
    await ends_a_host(bench, 1)
    await ends_a_host(bench, 2)
    host = await bench.host("3-a", identity="other")
    asked = bench.ask()
    host.answer((await host.unit()).call)
    await asked


@pytest.mark.parametrize("code", ["non_finite", "executor_error"])
async def test_a_host_that_retires_because_of_a_request_is_500_without_a_next_try(bench: Bench, code: str) -> None:
    """Trying again would end the next host. The second one makes the request a poisoned one."""
    for number in (1, 2):
        host = await bench.host(f"{number}-a")
        asked = bench.ask()
        host.answer((await host.unit()).call, failure(code, 500, fatal=True))
        with pytest.raises(HostRetires) as caught:
            await asked
        assert isinstance(caught.value, InternalError)
        assert (caught.value.status, caught.value.retry_after) == (500, None)
        bench.deployment.host_down(host.down())
    await bench.host("3-a")
    with pytest.raises(Poisoned):
        await bench.ask()
