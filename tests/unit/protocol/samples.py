"""One valid message of every type, and small ways to build frames by hand that `encode` would refuse to make."""

from __future__ import annotations

from typing import Any

import msgpack

from protocol import limits
from protocol.frames import Envelope, decode, encode
from protocol.messages import (
    Assigned,
    Bye,
    Cancel,
    CancelAnswer,
    Deployment,
    DialIn,
    Drain,
    Drained,
    Evict,
    Execute,
    Failure,
    Hello,
    HostDown,
    HostUp,
    HostVerdict,
    Lane,
    Leaving,
    Listening,
    Message,
    Order,
    Outcome,
    Overdue,
    Owed,
    Progress,
    Ready,
    Refused,
    Result,
    Serving,
    Status,
    Want,
    Welcome,
)
from protocol.tensors import Blob, Buffer

INCARNATION = "1-9f1c2ab4"

MESSAGES: tuple[Message, ...] = (
    Hello(role="front", epoch="3-aa", pid=4711, clock_ms=98),
    Welcome(role="host", pid=4712, state="loading", busy_call=9, busy_epoch="2-bb"),
    Progress(stage="weights", fraction=0.5, note="2 of 4 files"),
    Ready(address="ipc:///run/d", facts={"dtype": "f32", "letters": Blob(b"l" * limits.OUT_OF_BAND_BYTES)}),
    Execute(payload={"document": b"{}", "rows": [[1, -2], [2.5, None, True, "x"]]}, request="my-1", sent_ms=99),
    Owed(calls=[7, 8]),
    Evict(conversations=["bob\na"], prefixes=4096),
    Result(outputs={"probabilities": [[0.25, 0.75]]}, elapsed_us=431),
    Failure(code="input", status=422, message="no", error_type="bad", where=["questions", 0], dispatched=False),
    Cancel(epoch="3-aa"),
    CancelAnswer(outcome="running"),
    Status(report={"state": "ready"}),
    Drain(budget_s=2.5),
    Bye(reason="drained"),
    HostUp(deployment="m@1", replica=0, incarnation="1-cc", control="ipc://c", data="ipc://d", pid=7, facts={}),
    HostDown(
        deployment="m@1",
        replica=1,
        incarnation="1-cc",
        exit=None,
        signal="SIGKILL",
        last_words="",
        will_restart=True,
        retry_after_s=1,
        taken={"3-aa": 7},
    ),
    Deployment(models=[{"name": "m"}, {"name": "n"}], default="m", server={"port": 8000}, open=True),
    Want(wanted=["m@1"], idle={"n@2": 1.5}),
    Serving(address="127.0.0.1:8000"),
    HostVerdict(deployment="m@1", replica=1, incarnation="1-cc", refusal="the tokenizer is truncated"),
    Overdue(deployment="m@1", incarnation="1-cc", elapsed_s=60.5),
    Drained(deployment="m@1"),
    Order(action="swap", model="m", settings={"family": "sparrow"}),
    Outcome(code="done", message="m means m@2", report={"gap_s": 0.0}),
    DialIn(model="m", family="sparrow", version="0.1.0", machine="gpu-1", pid=9, public_key="k" * 40),
    Assigned(deployment="m@1", incarnation="1-cc", options={"truncate": True}, path=None, lease_s=10.0),
    Refused(code="not_wanted", message="it has its host"),
    Listening(control="tcp://127.0.0.1:7001"),
    Leaving(status=66, words="no memory"),
)


def lane_of(message: Message | type[Message]) -> Lane:
    """A lane the message may travel on."""
    return message.LANES[0]


def there_and_back(message: Message, **header: Any) -> Envelope:
    """What the other end has after one trip."""
    return decode(encode(message, incarnation=INCARNATION, **header), lane=lane_of(message), incarnation=INCARNATION)


def header(
    *, version: Any = limits.PROTOCOL_VERSION, incarnation: Any = INCARNATION, call: Any = 7, budget: Any = None
) -> bytes:
    """A header that may be wrong."""
    return bytes(msgpack.packb([version, incarnation, call, budget]))


def raw(body: bytes, *buffers: Buffer, kind: int = Execute.KIND) -> list[Buffer]:
    """A message with a good head and this body, which may be wrong."""
    return [bytes((kind,)), header(), body, *buffers]


def execute(value: bytes, *buffers: Buffer) -> list[Buffer]:
    """An EXECUTE whose payload is `{"x": value}`, where `value` is msgpack that may be wrong."""
    return raw(b"\x84\xa4keep\xc0\xa7request\xa0\xa7sent_ms\x00\xa7payload\x81\xa1x" + value, *buffers)


def extension(code: int, data: bytes) -> bytes:
    """A msgpack extension in its general form."""
    return bytes(msgpack.packb(msgpack.ExtType(code, data))) if code >= 0 else timestamp()


def timestamp() -> bytes:
    """msgpack's own extension, code -1."""
    return bytes(msgpack.packb(msgpack.Timestamp(1, 2)))


def reference(code: int, *fields: Any) -> bytes:
    """An array or blob reference with these fields."""
    return extension(code, msgpack.packb(list(fields)))
