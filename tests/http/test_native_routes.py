"""The native listener: the order of its checks and the words of its errors, with a fake family and a fake host."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import zmq
from aiohttp import web

from frontend import limits
from frontend.configuration.keys import ApiKey, KeyRing
from frontend.errors import InternalError
from frontend.families.base import Prepared
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.http import native
from frontend.http.connection import ClientConnection
from frontend.serving.deployment import Deployment
from frontend.serving.replica import Availability
from frontend.serving.server import Server, ServerLimits
from protocol import families
from protocol.messages import Result
from protocol.payloads import TextRequest
from tests.helpers import fake_family
from tests.helpers.fake_host import FakeHost, failure, until, zmq_context

JSON = {"Content-Type": "application/json"}
BODY = 64


class Plain(NativeProfile):
    """The body is a word: "bad" and "bug" are refused in two ways, "none" asks nothing, "cost:N" costs N."""

    MAX_BODY_BYTES = BODY

    def prepare(self, body: bytes) -> Prepared:
        word, _, number = body.decode().strip().partition(":")
        if word == "bad":
            raise NativeRefusal(422, "a bad word")
        if word == "bug":
            raise ZeroDivisionError
        units = () if word == "none" else (TextRequest(b"[]"),)
        return Prepared(units, cost=int(number) if word == "cost" else 1, work=1, context=word)

    def finish(self, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Mapping[str, Any]:
        if prepared.context == "unfinished":
            raise InternalError("not an answer")
        return {"said": prepared.context, "units": len(outputs), "timed": seconds >= 0.0}

    def health(self, host: HostView) -> Mapping[str, Any]:
        return {"ready": host.ready, "identity": host.facts.get("identity"), "statistics": dict(host.statistics)}


class Strict(Plain):
    READY_FIRST = True


class Other(Plain):
    ERROR_FIELD = "error"
    JSON_ONLY = False
    TOO_COSTLY = 413
    FAILED = "it failed"


def deployment(server: Server, context: zmq.Context[Any], **bounds: int) -> Deployment:
    """What the name "m" means."""
    row = {"id": "m@1", "name": "m", "role": "current", "family": "fake", "options": {}}
    return Deployment(
        {**row, "max_requests": None, "max_cost": None, **bounds},
        loop=server.loop,
        zmq_context=context,
        epoch="front-1",
    )


class Listener:
    """A front with the one model "m" and its native listener."""

    def __init__(
        self,
        context: zmq.Context[Any],
        profile: type[NativeProfile],
        keys: KeyRing | None = None,
        *,
        loopback: bool = False,
        **bounds: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.zmq = context
        self.server = Server(loop, ServerLimits(ingress_requests=5), keys=keys)
        self.deployment = deployment(self.server, context, **bounds)
        self.server.deployments["m"] = self.deployment
        self.loopback = loopback
        self.port = 0
        self._hosts: list[FakeHost] = []

    async def open(self) -> None:
        application = native.build(self.server, "m", loopback=self.loopback)
        self.runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        http = self.runner.server
        assert http is not None
        render = native.protocol_error(self.server, "m")
        self.listener = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(http, render), "127.0.0.1", 0
        )
        self.port = self.listener.sockets[0].getsockname()[1]

    async def host(self, incarnation: str = "1-a") -> FakeHost:
        host = FakeHost(self.zmq, incarnation)
        self._hosts.append(host)
        self.deployment.host_up(host.up())
        await until(lambda: self.deployment.availability is Availability.READY, "ready")
        return host

    async def connect(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def raw(self, sent: bytes) -> tuple[int, dict[str, str], Any]:
        """Status, headers and document of the answer to `sent`."""
        reader, writer = await self.connect(sent)
        async with asyncio.timeout(30):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = [line.partition(": ") for line in head[1:] if line]
            headers = {name.lower(): value for name, _, value in fields}
            body = await reader.readexactly(int(headers["content-length"]))
        writer.close()
        return int(head[0].split()[1]), headers, json.loads(body)

    async def post(self, body: str, headers: Mapping[str, str] = JSON) -> tuple[int, dict[str, str], Any]:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        return await self.raw(head.encode() + body.encode())

    async def get(self, path: str, method: str = "GET", host: str = "localhost") -> tuple[int, dict[str, str], Any]:
        return await self.raw(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    def held(self) -> list[int]:
        layers = self.deployment.statistics().admissions
        return [self.server.ingress.statistics().outstanding, *(layer.outstanding for layer in layers)]

    async def close(self) -> None:
        self.listener.close()
        await self.runner.cleanup()
        self.deployment.close()
        for host in self._hosts:
            host.close()
        self.server.pool.shutdown()
        self.server.parser.shutdown()


@pytest.fixture
async def listener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    """Parametrized by the profile's name; one request slot, and a cost of 10."""
    name = getattr(request, "param", "Plain")
    family = dataclasses.replace(fake_family.FAKE, native=f"{__name__}:{name}")
    monkeypatch.setitem(families.BUILT_IN, "fake", family)
    with zmq_context() as context:
        made = Listener(context, globals()[name], max_requests=1, max_cost=10)
        await made.open()
        yield made
        await made.close()


every = pytest.mark.parametrize("listener", ["Plain", "Strict", "Other"], indirect=True)
strict = pytest.mark.parametrize("listener", ["Strict"], indirect=True)
other = pytest.mark.parametrize("listener", ["Other"], indirect=True)


async def answered(listener: Listener, host: FakeHost, body: str = "word", **reply: Any) -> tuple[int, Any, Any]:
    """The answer to one request whose unit the host answers with `reply`."""
    asked = asyncio.create_task(listener.post(body))
    unit = await host.unit()
    host.answer(unit.call, reply.get("message") or Result(outputs=reply.get("outputs", {}), elapsed_us=1))
    return await asked


async def test_a_decision(listener: Listener) -> None:
    """The family's body as it is, plain JSON, no field and no header of another dialect."""
    status, headers, document = await answered(listener, await listener.host())
    assert (status, document) == (200, {"said": "word", "units": 1, "timed": True})
    assert "server-timing" not in headers
    assert headers["content-type"] == "application/json"
    assert {name for name in headers if name.startswith("x-")} == set()
    assert listener.held() == [0, 0, 0]
    assert listener.server.requests.statistics().ended == {"answered": 1}


async def test_a_native_listener_needs_a_key_where_the_server_has_keys(listener: Listener) -> None:
    """There is no way around the door: 401 in the family's own body for all but its health, answered with a key."""
    key = "a-key-of-16-characters"
    ring = KeyRing(None, [ApiKey("alice", hashlib.sha256(key.encode()).digest())])
    guarded = Listener(listener.zmq, Plain, keys=ring)
    await guarded.open()
    try:
        host = await guarded.host()
        status, headers, document = await guarded.post("word")
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert list(document) == [Plain.ERROR_FIELD]
        assert (await guarded.get("/other"))[0] == 401
        assert (await guarded.get("/health"))[0] == 200
        asked = asyncio.create_task(guarded.post("word", {**JSON, "Authorization": f"Bearer {key}"}))
        host.answer((await host.unit()).call, Result(outputs={}, elapsed_us=1))
        assert (await asked)[0] == 200
    finally:
        await guarded.close()


async def test_on_loopback_a_native_listener_answers_at_its_own_names(listener: Listener) -> None:
    """A web page that makes its name point here is 403 in the family's own body, also where the original asks nothing
    of anybody."""
    guarded = Listener(listener.zmq, Plain, loopback=True)
    await guarded.open()
    try:
        await guarded.host()
        assert (await guarded.get("/health"))[0] == 200
        for path in ("/health", "/v1/systemone"):
            status, _, document = await guarded.get(path, host="evil.example")
            assert (status, list(document)) == (403, [Plain.ERROR_FIELD])
    finally:
        await guarded.close()


async def test_a_request_id_comes_back_when_one_was_sent(listener: Listener) -> None:
    """Also with an error; ours are for our log only."""
    await listener.host()
    _, headers, _ = await listener.post("bad", {**JSON, "x-request-id": "mine-1"})
    assert headers["x-request-id"] == "mine-1"


async def test_a_request_that_asks_nothing_is_answered_without_the_host(listener: Listener) -> None:
    """Nor does it wait for one; still a request with its slot and its one end."""
    status, _, document = await listener.post("none")
    assert (status, document["units"]) == (200, 0)
    assert listener.server.requests.statistics().ended == {"answered": 1}
    assert listener.held() == [0, 0, 0]


@pytest.mark.parametrize("given", ["text/plain", "application/jsonp", "", "json"])
async def test_another_media_type_is_refused_first(listener: Listener, given: str) -> None:
    """415 before the body is read: it never comes here."""
    status, _, document = await listener.raw(
        f"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: {given}\r\nContent-Length: 10\r\n\r\n".encode()
    )
    assert (status, document) == (415, {"detail": "Content-Type must be application/json"})
    assert listener.held() == [0, 0, 0]


@pytest.mark.parametrize("given", ["Application/JSON", "application/json; charset=utf-8", " application/json ;x"])
async def test_the_media_type_counts_without_case_and_parameters(listener: Listener, given: str) -> None:
    await listener.host()
    assert (await listener.post("bad", {"Content-Type": given}))[0] == 422


@other
async def test_a_family_may_take_any_media_type(listener: Listener) -> None:
    await listener.host()
    assert (await listener.post("bad", {}))[2] == {"error": "a bad word"}


@every
async def test_a_large_body_is_413_in_the_familys_words(listener: Listener) -> None:
    """The family's limit, not the server's: announced or found while reading."""
    await listener.host()
    field = listener.deployment.native.ERROR_FIELD
    status, _, document = await listener.post("x" * (BODY + 1))
    assert (status, document) == (413, {field: "request body too large"})
    chunk = f"{BODY + 1:x}\r\n{'x' * (BODY + 1)}\r\n0\r\n\r\n"
    status, _, document = await listener.raw(
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunk.encode()
    )
    assert (status, document) == (413, {field: "request body too large"})
    assert (await listener.post("bad" + " " * (BODY - 3)))[0] != 413


async def test_the_slot_is_taken_before_the_upload(listener: Listener) -> None:
    """An upload that has not ended holds the model's slot; it goes back when the client leaves."""
    await listener.host()
    _, writer = await listener.connect(
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    )
    await until(lambda: listener.held() == [1, 1, 0], "the slot is held")
    status, headers, document = await listener.post("word")
    assert (status, document) == (503, {"detail": "native execution capacity exhausted"})
    assert headers["retry-after"] == "1"
    writer.close()
    await until(lambda: listener.held() == [0, 0, 0], "the slot is back")


async def test_a_bad_body_is_said_also_while_everything_is_in_use(listener: Listener) -> None:
    """422 before 503: trying again would not help."""
    host = await listener.host()
    running = asyncio.create_task(listener.post("word"))
    unit = await host.unit()
    assert (await listener.post("bad"))[0] == 422
    assert (await listener.post("word"))[0] == 503
    host.answer(unit.call)
    assert (await running)[0] == 200


@strict
async def test_a_strict_family_says_first_that_it_is_not_ready(listener: Listener) -> None:
    """503 also for a bad body, and at once, also when a host is expected back."""
    for body in ("bad", "word"):
        status, headers, document = await listener.post(body)
        assert (status, document) == (503, {"detail": "model unavailable"})
        assert 1 <= int(headers["retry-after"]) <= 5
    host = await listener.host()
    listener.deployment.host_down(host.down(will_restart=True, retry_after_s=0.1))
    assert (await listener.post("bad"))[0] == 503
    assert (await listener.post("word"))[2] == {"detail": "model unavailable"}


@strict
async def test_a_strict_family_waits_for_the_hello_of_a_warm_host(listener: Listener) -> None:
    """After a restart of the front the host is as warm as before; if it dies before it answers, it is not there."""
    shy = FakeHost(listener.zmq, "1-a", shy=True)
    listener.deployment.host_up(shy.up())
    assert (await listener.post("bad"))[0] == 422
    listener.deployment.host_down(shy.down())
    assert (await listener.post("bad"))[0] == 503
    shy.close()
    shy = FakeHost(listener.zmq, "2-b", shy=True)
    listener.deployment.host_up(shy.up())
    asked = asyncio.create_task(listener.post("word"))
    await until(lambda: listener.deployment.scheduler.statistics().waiting == 1, "it waits")
    async with asyncio.timeout(20):
        await shy.hellos.get()
    shy.welcome()
    shy.answer((await shy.unit()).call)
    assert (await asked)[0] == 200
    shy.close()


@strict
async def test_a_host_that_retires_is_not_ready_any_more(listener: Listener) -> None:
    """Its last failure said so; it need not be dead yet."""
    host = await listener.host()
    status, _, document = await answered(listener, host, message=failure("fatal", 503, fatal=True))
    assert (status, document) == (503, {"detail": "model inference failed"})
    assert (await listener.post("bad"))[0] == 503


async def test_another_family_waits_for_a_host_that_comes_back(listener: Listener) -> None:
    """The body is checked, and a good one is answered by the next incarnation."""
    host = await listener.host()
    listener.deployment.host_down(host.down(will_restart=True, retry_after_s=0.1))
    assert (await listener.post("bad"))[0] == 422
    asked = asyncio.create_task(listener.post("word"))
    await until(lambda: listener.deployment.scheduler.statistics().waiting == 1, "it waits")
    successor = await listener.host("2-b")
    successor.answer((await successor.unit()).call)
    assert (await asked)[0] == 200


async def test_a_host_that_will_not_come_back_is_unavailable(listener: Listener) -> None:
    host = await listener.host()
    listener.deployment.host_down(host.down(will_restart=False))
    assert (await listener.post("word"))[2] == {"detail": "model unavailable"}


async def test_a_queued_request_whose_host_will_not_come_back_is_unavailable(listener: Listener) -> None:
    """The model has not failed on it: it was never asked."""
    host = await listener.host()
    listener.deployment.host_down(host.down(will_restart=True, retry_after_s=0.1))
    asked = asyncio.create_task(listener.post("word"))
    await until(lambda: listener.deployment.scheduler.statistics().waiting == 1, "it waits")
    listener.deployment.host_down(host.down(will_restart=False))
    status, _, document = await asked
    assert (status, document) == (503, {"detail": "model unavailable"})


async def test_the_log_has_the_status_that_the_client_got(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """A full queue is 503 here and still no error of the server: its line is one for those who asked for all."""
    host = await listener.host()
    with caplog.at_level(logging.INFO, "framehost.access"):
        running = asyncio.create_task(listener.post("word"))
        unit = await host.unit()
        await listener.post("word")
        host.answer(unit.call, failure())
        await running
    lines = [(record.levelname, record.getMessage().split()[1:3]) for record in caplog.records]
    assert lines == [("INFO", ["outcome=refused", "status=503"]), ("WARNING", ["outcome=failed", "status=500"])]


async def test_the_profile_is_that_of_the_current_host(listener: Listener) -> None:
    """Its processor changes with the host, whose facts may be others."""
    host = await listener.host()
    first = listener.deployment.native
    assert first is listener.deployment.native
    listener.deployment.host_down(host.down())
    await listener.host("2-b")
    assert listener.deployment.native.processor is listener.deployment.processor
    assert listener.deployment.native is not first


@every
async def test_a_host_that_dies_with_the_request_has_failed_it(listener: Listener) -> None:
    """503 in the words of a failed inference, with Retry-After."""
    host = await listener.host()
    asked = asyncio.create_task(listener.post("word"))
    await host.unit()
    listener.deployment.host_down(host.down())
    status, headers, document = await asked
    profile = listener.deployment.native
    assert (status, document) == (503, {profile.ERROR_FIELD: profile.FAILED})
    assert 1 <= int(headers["retry-after"]) <= 5
    assert listener.held() == [0, 0, 0]


@every
async def test_a_failure_of_the_model_is_500(listener: Listener) -> None:
    """The host goes on; so is an output that is no answer. Nothing of our insides is told."""
    host = await listener.host()
    profile = listener.deployment.native
    failed = (500, {profile.ERROR_FIELD: profile.FAILED})
    status, _, document = await answered(listener, host, message=failure())
    assert (status, document) == failed
    status, _, document = await answered(listener, host, "unfinished")
    assert (status, document) == failed


async def test_a_host_that_refuses_the_input_is_believed(listener: Listener) -> None:
    """A 4xx of the host is the client's to read."""
    host = await listener.host()
    status, _, document = await answered(listener, host, message=failure("input", 400))
    assert (status, document) == (400, {"detail": "it failed"})


async def test_a_bug_in_the_preparation_is_500(listener: Listener) -> None:
    """In words of its own, and the next request is served."""
    host = await listener.host()
    status, _, document = await listener.post("bug")
    assert (status, document) == (500, {"detail": "request preparation failed"})
    assert (await answered(listener, host))[0] == 200


@every
async def test_a_cost_above_the_whole_budget_is_the_familys_status(listener: Listener) -> None:
    """Waiting would not help, so there is no Retry-After."""
    await listener.host()
    status, headers, document = await listener.post("cost:11")
    assert status == (413 if listener.deployment.native.ERROR_FIELD == "error" else 422)
    assert "retry-after" not in headers
    assert "11" in next(iter(document.values()))
    assert listener.held() == [0, 0, 0]


async def test_the_deadline_is_504_in_the_queue_and_in_the_upload(listener: Listener) -> None:
    """Both say where the time went."""
    hasty = {**JSON, "x-framehost-timeout-ms": "40"}
    await listener.host()
    status, headers, document = await listener.post("word", hasty)
    assert (status, document) == (504, {"detail": "request timed out"})
    assert "retry-after" not in headers
    status, _, document = await listener.raw(
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"x-framehost-timeout-ms: 40\r\nContent-Length: 9\r\n\r\n"
    )
    assert (status, document) == (504, {"detail": "request timed out while uploading"})
    assert (await listener.post("word", {**JSON, "x-framehost-timeout-ms": "soon"}))[0] == 400


async def test_an_upload_that_stands_still_is_408(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOAD_IDLE_S", 0.05)
    monkeypatch.setattr(limits, "LINGERING_S", 0.05)
    await listener.host()
    status, _, document = await listener.raw(
        b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\nx"
    )
    assert status == 408
    assert set(document) == {"detail"}
    assert listener.held() == [0, 0, 0]


async def test_health_follows_the_host(listener: Listener) -> None:
    """503 before the first host, 200 with it, 503 after it and during a stop; counts are those of this host."""
    unready = {"ready": False, "identity": None, "statistics": {}}
    status, headers, document = await listener.get("/health")
    assert (status, document, headers["retry-after"]) == (503, unready, "1")
    host = await listener.host()
    await answered(listener, host, outputs={"statistics": {"n": 3}})
    status, _, document = await listener.get("/health")
    assert (status, document) == (200, {"ready": True, "identity": "same", "statistics": {"n": 3}})
    listener.deployment.host_down(host.down())
    assert (await listener.get("/health"))[0] == 503
    await listener.host("2-b")
    status, _, document = await listener.get("/health")
    assert (status, document["statistics"]) == (200, {})
    listener.server.draining = True
    assert (await listener.get("/health"))[0] == 503
    assert (await listener.post("word"))[:3:2] == (503, {"detail": "model unavailable"})


@every
async def test_there_is_nothing_else_on_the_listener(listener: Listener) -> None:
    """Two routes in one spelling; everything else is the family's error shape."""
    field = listener.deployment.native.ERROR_FIELD
    for path in ("/", "/v1/systemone/", "/v1/models", "/healthz", "/health/"):
        status, _, document = await listener.get(path)
        assert (status, set(document)) == (404, {field}), path
    status, headers, document = await listener.get("/v1/systemone")
    assert (status, headers["allow"], set(document)) == (405, "POST", {field})
    status, headers, document = await listener.get("/health", "DELETE")
    assert (status, headers["allow"], set(document)) == (405, "GET, HEAD", {field})
    status, _, document = await listener.raw(b"NOT HTTP\r\n\r\n")
    assert (status, set(document)) == (400, {field})


async def test_a_family_without_a_native_dialect_has_none(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for it is a mistake of ours and loud."""
    monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    bare = deployment(listener.server, listener.zmq)
    with pytest.raises(LookupError, match="fake"):
        _ = bare.native
