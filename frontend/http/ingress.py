"""The way in: how a body is read, under which limits, and what is released when it is not.

Ingress admission is taken before the first byte of the body is read, and given back when the body has been parsed.
Bytes are reserved as they come, or come out of a compressed body, `limits.INGRESS_STEP_BYTES` at a time: what a client
announces costs it nothing, and would keep others out.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import TransferEncodingError
from aiohttp.web_exceptions import HTTPException

from frontend import limits
from frontend.errors import (
    BadEncoding,
    QueueFull,
    RequestError,
    RequestTooLarge,
    UnsupportedEncoding,
    UploadTimeout,
    UsageError,
)
from frontend.http import encodings
from frontend.requests.questions import printable
from frontend.runtime.admission import Permit
from frontend.serving.uploads import Upload, Uploads

UPLOADS = web.AppKey("uploads", Uploads)

ENCODINGS = encodings.NAMES | {"identity"}
"""Content encodings that are read; others are refused."""

SUPPORTED = f"supported: {', '.join(sorted(ENCODINGS))}"

MAX_REASON_CHARS = 200
"""Of what the HTTP library says; it repeats bytes of the client's."""


def admit(request: web.Request, limit: int) -> Permit:
    """A permit for this upload, or `RequestTooLarge` / `QueueFull` / `UnsupportedEncoding` before a byte is read."""
    encoding = _encoding(request)
    if encoding not in ENCODINGS:
        raise UnsupportedEncoding(f"Content-Encoding {encoding[:40]!r} is not supported; {SUPPORTED}")
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    step = min(limit, limits.INGRESS_STEP_BYTES)
    return request.app[UPLOADS].admit(step if announced is None else min(step, announced))


def _encoding(request: web.Request) -> str:
    said = request.headers.get(hdrs.CONTENT_ENCODING)
    return "identity" if said is None else said.strip().lower()


def refuse_form(request: web.Request) -> None:
    """Raise `UsageError` for a body in parts, before a byte of it is read: clients send one when there are images.
    Any other media type is taken for JSON, which is what callers mean who do not say what they send."""
    said = request.headers.get(hdrs.CONTENT_TYPE)
    # The library's own reading of the header is not cheap.
    if said is not None and "multipart" in said.lower() and request.content_type.startswith("multipart/"):
        raise UsageError(
            f"the body is {printable(request.content_type)}, which is for images, and the models of this server read "
            "text only: send the request alone, as application/json"
        )


async def expectation(request: web.Request) -> None:
    """What a route makes of an `Expect` header before it runs: nothing yet, `read_body` asks for the body when it
    wants it. So a request that is refused on its headers is never asked for its body."""
    if request.version == HttpVersion11 and not _continues(request):
        raise web.HTTPExpectationFailed(text=f"Unknown Expect: {request.headers[hdrs.EXPECT]}")


def _continues(request: web.Request) -> bool:
    return request.headers.get(hdrs.EXPECT, "").lower() == "100-continue"


async def read_body(request: web.Request, permit: Permit, limit: int) -> bytes:
    """The whole body, decompressed, at most `limit` bytes, all of which `permit` has reserved.

    Raises `RequestTooLarge` as soon as the limit is passed, `QueueFull` when the budget of the permit is in use, or
    when it gives way to others, `UploadTimeout` when no byte came for `limits.UPLOAD_IDLE_S` or fewer than
    `limits.UPLOAD_BYTES_PER_S`, `BadEncoding` when it does not decompress or ends early. The overall deadline is the
    caller's. Cancelled: nothing is kept.
    """
    if request.version == HttpVersion11 and _continues(request):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the response itself has not begun
    encoding = _encoding(request)
    unpacker = None if encoding == "identity" else encodings.Unpacker(encoding)
    content = request.content
    if unpacker is None and content.is_eof() and content.total_bytes <= permit.cost:
        return content.read_nowait()  # all of it came with its head
    uploads = request.app[UPLOADS]
    received = size = 0
    chunks: list[bytes] = []
    with uploads.waiting(permit) as upload:
        try:
            while True:
                if content.is_eof() or content.total_bytes > received:
                    chunk = content.read_nowait()  # the bytes are there, or all of them have been read
                else:
                    async with upload.patience():
                        chunk = await content.readany()
                if not chunk:
                    break
                received += len(chunk)
                upload.received = received
                for piece in (chunk,) if unpacker is None else unpacker.feed(chunk):
                    size += len(piece)
                    if size > limit:
                        raise _too_large(limit)
                    if size > permit.cost:
                        uploads.grow(permit, _step(size, limit) - permit.cost)
                    chunks.append(piece)
                    if unpacker is not None and len(piece) == encodings.STEP_BYTES:
                        await asyncio.sleep(0)
                if upload.gives_way:
                    raise TimeoutError
        except TimeoutError:
            raise _too_slow(upload) from None
        except (TransferEncodingError, web.RequestPayloadError, HTTPException) as error:
            raise BadEncoding(f"the body could not be read: {reason(error)}") from None
    if unpacker is not None:
        unpacker.end()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _step(size: int, limit: int) -> int:
    step = limits.INGRESS_STEP_BYTES
    return min(limit, -(-size // step) * step)


def _too_slow(upload: Upload) -> RequestError:
    if upload.gives_way:
        return QueueFull(
            f"the upload gave way to others: it had brought {upload.received} bytes, fewer than "
            f"{limits.UPLOAD_SLOW_BYTES_PER_S} a second, and the budget 'ingress' is in use",
            retry_after=1,
        )
    return UploadTimeout(
        f"no byte of the body arrived for {limits.UPLOAD_IDLE_S:g} s, or fewer than "
        f"{limits.UPLOAD_BYTES_PER_S} a second"
    )


def reason(error: BaseException) -> str:
    """One line of what the HTTP library says about a client's bytes: the rest of it draws them."""
    told = error.__cause__ or error
    return one_line(str(getattr(told, "message", "") or told)) or type(told).__name__


def one_line(text: str) -> str:
    """The first line of a text of the HTTP library."""
    return printable(text.strip().partition("\n")[0].rstrip(" :"), MAX_REASON_CHARS)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body is larger than the limit of {limit} bytes")
