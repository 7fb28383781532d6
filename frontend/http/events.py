"""The streaming extension of System One: the same decision as server-sent events, told as it comes about.

    refused before admission   ─▶ the plain JSON error, nothing of a stream
    admitted                   ─▶ `admitted`, then an `answer` for each question, then `done`, or one `error`

    event      data
    --------   ----------------------------------------------------------------------
    admitted   {"model"}: every budget said yes, the request is queued
    answer     {"id", "answer"}: provisional until `done`
    done       {"model", "usage", extras}: every answer was sent, and all are valid
    error      {"status", "detail", "retry_after"?}: what was sent before is to be discarded

A task of its own writes, so a reader that is slow or gone delays no request: the decision runs on at its own pace,
gives its permits back and ends its record, and what has not been read by then has `limits.STREAM_FLUSH_S` to go.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import hdrs, web

from frontend import limits
from frontend.errors import RequestError
from frontend.http import systemone
from frontend.requests.answers import Answer

MEDIA_TYPE = "text/event-stream"

_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)")
"""A kind with the weight 0 is one that the client does not take."""


def wanted(request: web.Request) -> bool:
    """Whether the client asks for a stream. One that takes JSON as well gets JSON."""
    accept = request.headers.get(hdrs.ACCEPT, "").lower()
    if MEDIA_TYPE not in accept:
        return False
    kinds = {kind.partition(";")[0].strip() for kind in accept.split(",") if not _REFUSED.search(kind)}
    return MEDIA_TYPE in kinds and "application/json" not in kinds


class EventStream(web.StreamResponse):
    """The response of one streamed decision. Belongs to the loop's thread; its methods do not wait for the reader."""

    def __init__(self, request: web.Request, encode: Callable[[object], bytes], headers: Mapping[str, str]) -> None:
        """`encode` makes one line of JSON of a document; `headers` are those of every response."""
        fields = {
            **headers,
            hdrs.CONTENT_TYPE: MEDIA_TYPE,
            hdrs.CACHE_CONTROL: "no-store",
            "X-Accel-Buffering": "no",  # a proxy that collects the events first would make them useless
        }
        super().__init__(headers=fields)
        self._client = request
        self._encode = encode
        self._answered: set[str] = set()
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()
        self._ended = False
        self._writer: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Whether the verdict is out: from then on an error is an event."""
        return self._writer is not None

    def admitted(self, model: str) -> None:
        """The head of the response and the first event leave now."""
        self._send("admitted", {"model": model})

    def answer(self, question: str, answer: Answer) -> None:
        """One question is answered, while others may not be yet."""
        self._answered.add(question)
        self._send("answer", {"id": question, "answer": answer.to_json()})

    def done(self, body: dict[str, Any]) -> None:
        """The whole answer as the plain response would have it; what was not sent before is sent now."""
        for question, answer in body.pop("answers").items():
            if question not in self._answered:
                self._send("answer", {"id": question, "answer": answer})
        self._send("done", body)
        self._end()

    def error(self, error: RequestError) -> None:
        """The decision has failed after its admission."""
        status, document, headers = systemone.render_error(error)
        wait = {"retry_after": int(headers[hdrs.RETRY_AFTER])} if hdrs.RETRY_AFTER in headers else {}
        self._send("error", {"status": status, **document, **wait})
        self._end()

    def abandon(self) -> None:
        """The client is gone: nothing more is written."""
        if self._writer is not None:
            self._writer.cancel()

    async def write_eof(self, data: bytes = b"") -> None:
        """The library's end of a response: what was not read yet, then the end. Raises `ConnectionError` when the
        reader does not take it in time; its connection is dropped."""
        if self._writer is not None:
            try:
                async with asyncio.timeout(limits.STREAM_FLUSH_S):
                    await self._writer
            except TimeoutError:
                if self._client.transport is not None:
                    self._client.transport.abort()
                raise ConnectionResetError("the events were not read") from None
        await super().write_eof(data)

    def _send(self, event: str, document: object) -> None:
        self._waiting.append(b"event: %b\ndata: %b\n\n" % (event.encode(), self._encode(document)))
        self._news.set()
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_events())

    def _end(self) -> None:
        self._ended = True
        self._news.set()

    async def _write_events(self) -> None:
        try:
            await self.prepare(self._client)
            while self._waiting or not self._ended:
                await self._news.wait()
                self._news.clear()
                events, self._waiting = b"".join(self._waiting), []
                if events:
                    await self.write(events)
        except ConnectionError:
            pass  # its handler is being cancelled, or has answered and need not know
