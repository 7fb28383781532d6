"""Who holds what, and from when on: the model's slot before the upload, a key's bounds at every port."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frontend.configuration.keys import ApiKey, KeyRing
from frontend.http.app import POST
from frontend.http.openapi import MISDIRECTED
from protocol import families
from protocol.messages import Result
from tests.helpers import fake_family
from tests.helpers.fake_host import until
from tests.http.main_port import QUESTION, Main, main_port
from tests.http.test_native_routes import JSON, Listener, Plain

KEY = "a-key-of-16-characters"
OTHER = "another-key-of-16-characters"

SYSTEM_ONE = {"state": "x", "questions": QUESTION}


def ring(**bounds: int) -> KeyRing:
    """Alice, whose key has `bounds`, and Bob, whose key has none."""
    return KeyRing(
        None,
        [
            ApiKey("alice", hashlib.sha256(KEY.encode()).digest(), **bounds),
            ApiKey("bob", hashlib.sha256(OTHER.encode()).digest()),
        ],
    )


def raw(body: bytes, *headers: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = ["POST /v1/systemone HTTP/1.1", "Host: localhost", f"Content-Length: {size}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
async def keyed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Main]:
    """The main port of a server where Alice may have one request, of a cost of 5."""
    async with main_port(monkeypatch, keys=ring(max_requests=1, max_cost=5)) as made:
        yield made


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(20):
        return int((await reader.readline()).split()[1])


async def test_the_slot_of_the_only_model_is_taken_before_the_upload(main: Main) -> None:
    """A slow upload cannot lose it to somebody who came later and was faster."""
    body = json.dumps(SYSTEM_ONE).encode()
    port = int(main.url.rpartition(":")[2])
    slow = []
    for _ in range(2):  # as many as there are slots
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw(body[:10], length=len(body)))
        slow.append((reader, writer))
    await until(lambda: main.server.ingress.statistics().outstanding == 2, "both upload")
    assert main.deployment.statistics().admissions[0].outstanding == 2
    refused = await main.post()
    assert refused.status == 429
    for reader, writer in slow:
        writer.write(body[10:])
        main.host.answer((await main.host.unit()).call)
        assert await status(reader) == 200
        writer.close()


QUESTION_LIST = [{"type": "predicate", "name": "q", "instructions": "is it so?"}]

BODIES: dict[str, dict[str, Any]] = {
    path: (
        {"input": "x", "questions": QUESTION_LIST}
        if path in ("/v1/decisions", "/decisions")
        else {"input": "x", "questions": QUESTION}
        if path.startswith("/v1beta")
        else SYSTEM_ONE
    )
    for path, _ in POST
    if path not in MISDIRECTED
}
"""A valid body in a dialect of each decision path."""


@pytest.mark.parametrize("path", BODIES)
async def test_a_keys_bounds_hold_in_every_dialect(keyed: Main, path: str) -> None:
    """One request of Alice's is open: her second is 429 and names her budget, and Bob's is queued."""
    alice, bob = {"x-api-key": KEY}, {"x-api-key": OTHER}
    url = f"{keyed.url}{path}"
    first = asyncio.create_task(keyed.client.post(url, json=BODIES[path], headers=alice))
    unit = await keyed.host.unit()
    async with keyed.client.post(url, json=BODIES[path], headers=alice) as refused:
        assert refused.status == 429
        assert "'alice key requests'" in await refused.text()
    second = asyncio.create_task(keyed.client.post(url, json=BODIES[path], headers=bob))
    await until(lambda: keyed.deployment.scheduler.statistics().waiting == 1, "Bob's waits")
    keyed.host.answer(unit.call)
    keyed.host.answer((await keyed.host.unit()).call)
    assert (await first).status == (await second).status == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_keys_cost_holds_in_every_dialect(keyed: Main, path: str) -> None:
    """A request dearer than its key's whole budget is 413, or what the dialect has for it; Bob's is answered."""
    text = json.dumps(BODIES[path]).replace('"x"', '"cost:9"')
    headers = {"content-type": "application/json"}
    async with keyed.client.post(f"{keyed.url}{path}", data=text, headers={**headers, "x-api-key": KEY}) as refused:
        assert refused.status == 413
        assert "'alice key cost'" in await refused.text()
    asked = asyncio.create_task(
        keyed.client.post(f"{keyed.url}{path}", data=text, headers={**headers, "x-api-key": OTHER})
    )
    keyed.host.answer((await keyed.host.unit()).call)
    assert (await asked).status == 200


async def test_a_keys_bounds_are_asked_at_the_door(keyed: Main) -> None:
    """An open upload is an open request: the key's next one is refused before a byte of its body is read."""
    body = json.dumps(SYSTEM_ONE).encode()
    port = int(keyed.url.rpartition(":")[2])
    slow, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw(body[:10], f"x-api-key: {KEY}", length=len(body)))
    await until(lambda: keyed.server.ingress.statistics().outstanding == 1, "it uploads")
    reader, other = await asyncio.open_connection("127.0.0.1", port)
    other.write(raw(b"", f"x-api-key: {KEY}", length=len(body)))
    assert await status(reader) == 429
    assert keyed.server.ingress.statistics().admitted == 1
    writer.write(body[10:])
    keyed.host.answer((await keyed.host.unit()).call)
    assert await status(slow) == 200
    other.close()
    writer.close()


async def test_a_keys_bounds_hold_on_a_native_listener(keyed: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no way around them: 503 in the family's words, as its own budgets have it."""
    family = dataclasses.replace(fake_family.FAKE, native=f"{Plain.__module__}:{Plain.__name__}")
    monkeypatch.setitem(families.BUILT_IN, "fake", family)
    listener = Listener(keyed.zmq, Plain, keys=ring(max_requests=1, max_cost=5))
    await listener.open()
    try:
        host = await listener.host()
        headers = {**JSON, "x-api-key": KEY}
        first = asyncio.create_task(listener.post("word", headers))
        unit = await host.unit()
        code, answer, _ = await listener.post("word", headers)
        assert (code, answer["retry-after"]) == (503, "1")
        host.answer(unit.call, Result(outputs={}, elapsed_us=1))
        assert (await first)[0] == 200
        assert (await listener.post("cost:6", headers))[0] == Plain.TOO_COSTLY
        other = asyncio.create_task(listener.post("cost:6", {**JSON, "x-api-key": OTHER}))
        host.answer((await host.unit()).call, Result(outputs={}, elapsed_us=1))
        assert (await other)[0] == 200
    finally:
        await listener.close()


async def test_one_key_leaves_others_their_share_of_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of them it gets no more, whoever else is there or not; a key that holds none finds one free."""
    async with main_port(monkeypatch, keys=ring(), max_requests=8) as main:
        alice, bob = {"x-api-key": KEY}, {"x-api-key": OTHER}
        url = f"{main.url}/v1/systemone"
        held = [asyncio.create_task(main.client.post(url, json=SYSTEM_ONE, headers=alice)) for _ in range(4)]
        await until(lambda: main.deployment.statistics().admissions[0].outstanding == 4, "Alice has half of them")
        async with main.client.post(url, json=SYSTEM_ONE, headers=alice) as refused:
            assert refused.status == 429
            assert "the key 'alice' has 4 of it, 4 are free" in await refused.text()
        held += [asyncio.create_task(main.client.post(url, json=SYSTEM_ONE, headers=bob)) for _ in range(2)]
        await until(lambda: main.deployment.statistics().admissions[0].outstanding == 6, "Bob has two")
        async with main.client.post(url, json=SYSTEM_ONE, headers=bob) as refused:
            assert refused.status == 429, "as many as he has are left"
        for _ in held:
            main.host.answer((await main.host.unit()).call)
        assert [(await one).status for one in held] == [200] * 6
        again = asyncio.create_task(main.client.post(url, json=SYSTEM_ONE, headers=alice))
        main.host.answer((await main.host.unit()).call)
        assert (await again).status == 200, "what she held is hers no more"


async def test_a_key_that_is_alone_has_all_of_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody to leave anything to."""
    alone = KeyRing(None, [ApiKey("alice", hashlib.sha256(KEY.encode()).digest())])
    async with main_port(monkeypatch, keys=alone) as main:
        url = f"{main.url}/v1/systemone"
        held = [
            asyncio.create_task(main.client.post(url, json=SYSTEM_ONE, headers={"x-api-key": KEY})) for _ in range(2)
        ]
        for _ in held:
            main.host.answer((await main.host.unit()).call)
        assert [(await one).status for one in held] == [200, 200]
