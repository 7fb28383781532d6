"""The way in: how a body is read, under which limits, and what is released when it is not.

Ingress admission is taken before the first byte of the body is read, for what the client announces, and given back
when the body has been parsed. A body that has more bytes than its permit (a chunked upload announces nothing, a
compressed one less than comes out) reserves them as they come, `limits.INGRESS_STEP_BYTES` at a time.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import TransferEncodingError
from aiohttp.web_exceptions import HTTPException

from frontend import limits
from frontend.errors import BadEncoding, RequestTooLarge, UnsupportedEncoding, UploadTimeout, UsageError
from frontend.http import encodings
from frontend.requests.questions import printable
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.serving.refusals import permit, refused

ENCODINGS = encodings.NAMES | {"identity"}
"""Content encodings that are read; others are refused."""

SUPPORTED = f"supported: {', '.join(sorted(ENCODINGS))}"

MAX_REASON_CHARS = 200
"""Of what the HTTP library says; it repeats bytes of the client's."""


def admit(request: web.Request, ingress: BoundedAdmission, limit: int) -> Permit:
    """A permit for this upload, or `RequestTooLarge` / `QueueFull` / `UnsupportedEncoding` before a byte is read."""
    encoding = _encoding(request)
    if encoding not in ENCODINGS:
        raise UnsupportedEncoding(f"Content-Encoding {encoding[:40]!r} is not supported; {SUPPORTED}")
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    return permit(ingress, min(limit, limits.INGRESS_STEP_BYTES) if announced is None else announced)


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

    Raises `RequestTooLarge` as soon as the limit is passed, `QueueFull` when the budget of the permit is in use,
    `UploadTimeout` when no byte came for `limits.UPLOAD_IDLE_S`, `BadEncoding` when it does not decompress or ends
    early. The overall deadline is the caller's. Cancelled: nothing is kept.
    """
    if request.version == HttpVersion11 and _continues(request):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the response itself has not begun
    encoding = _encoding(request)
    unpacker = None if encoding == "identity" else encodings.Unpacker(encoding)
    content = request.content
    chunks: list[bytes] = []
    received = size = 0
    try:
        while True:
            if content.is_eof() or content.total_bytes > received:
                chunk = content.read_nowait()  # the bytes are there, or all of them have been read
            else:
                async with asyncio.timeout(limits.UPLOAD_IDLE_S):
                    chunk = await content.readany()
            if not chunk:
                break
            received += len(chunk)
            for piece in (chunk,) if unpacker is None else unpacker.feed(chunk):
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                if size > permit.cost:
                    _grow(permit, size, limit)
                chunks.append(piece)
                if unpacker is not None and len(piece) == encodings.STEP_BYTES:
                    await asyncio.sleep(0)
    except TimeoutError:
        raise UploadTimeout(f"no byte of the body arrived for {limits.UPLOAD_IDLE_S:g} s") from None
    except (TransferEncodingError, web.RequestPayloadError, HTTPException) as error:
        raise BadEncoding(f"the body could not be read: {reason(error)}") from None
    if unpacker is not None:
        unpacker.end()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _grow(permit: Permit, size: int, limit: int) -> None:
    step = limits.INGRESS_STEP_BYTES
    refusal = permit.try_grow(min(limit, -(-size // step) * step) - permit.cost)
    if refusal is not None:
        raise refused(refusal)


def reason(error: BaseException) -> str:
    """One line of what the HTTP library says about a client's bytes: the rest of it draws them."""
    told = error.__cause__ or error
    return one_line(str(getattr(told, "message", "") or told)) or type(told).__name__


def one_line(text: str) -> str:
    """The first line of a text of the HTTP library."""
    return printable(text.strip().partition("\n")[0].rstrip(" :"), MAX_REASON_CHARS)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body is larger than the limit of {limit} bytes")
