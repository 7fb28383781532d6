"""Uploads in progress: what each has brought, and which one gives way when there is no room for others.

    no room for a newcomer ─▶ has one that is waited for brought less than SLOW bytes a second? ─▶ it is ended, 429
                                 └── no ─▶ the newcomer is refused, 429

Bytes are reserved as they come, not as they are announced: announcing costs nothing. An upload that brings less than
`limits.UPLOAD_BYTES_PER_S` is ended whether or not a client waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from frontend import limits
from frontend.errors import QueueFull
from frontend.runtime.admission import BoundedAdmission, Permit, PermitState
from frontend.serving.refusals import permit, refused


class Uploads:
    """Those of all ports that wait for bytes. Belongs to the event loop's thread."""

    def __init__(self, ingress: BoundedAdmission, clock: Callable[[], float]) -> None:
        """`ingress`: their number and their bytes. `clock`: the loop's."""
        self.gave_way = 0
        """Uploads that were ended for others."""
        self._ingress, self._clock = ingress, clock
        self._waiting: dict[Upload, None] = {}

    def admit(self, size: int) -> Permit:
        """A permit for the first `size` bytes of another one. Raises `QueueFull` or `RequestTooLarge`."""
        while True:
            try:
                return permit(self._ingress, size)
            except QueueFull:
                if not self._make_room(None):
                    raise

    def grow(self, owner: Permit, more: int) -> None:
        """Reserve `more` bytes for an upload that has come to them. Raises `QueueFull` or `RequestTooLarge`."""
        while (refusal := owner.try_grow(more)) is not None:
            error = refused(refusal)
            if not isinstance(error, QueueFull) or not self._make_room(owner):
                raise error

    def waiting(self, permit: Permit) -> Upload:
        """A block in which the upload that holds `permit` waits for its bytes."""
        return Upload(self, permit, self._clock())

    def _make_room(self, owner: Permit | None) -> bool:
        """End the slowest of those that are slow; whether there was one."""
        now = self._clock()
        slow = [
            upload
            for upload in self._waiting
            if upload.permit is not owner
            and now - upload.since >= limits.UPLOAD_GIVES_WAY_S
            and upload.rate(now) < limits.UPLOAD_SLOW_BYTES_PER_S
        ]
        if not slow:
            return False
        self.gave_way += 1
        min(slow, key=lambda upload: upload.rate(now)).give_way()
        return True

    # For Upload

    def begin(self, upload: Upload) -> None:
        self._waiting[upload] = None

    def end(self, upload: Upload) -> None:
        self._waiting.pop(upload, None)

    def now(self) -> float:
        return self._clock()


class Upload:
    """One of them, while it is waited for."""

    __slots__ = ("_timeout", "_uploads", "gives_way", "permit", "received", "since")

    def __init__(self, uploads: Uploads, permit: Permit, since: float) -> None:
        self.permit = permit
        self.since = since
        self.received = 0
        """Bytes that have come since then."""
        self.gives_way = False
        """Whether it was ended for others; its permit is released already."""
        self._uploads = uploads
        self._timeout: asyncio.Timeout | None = None

    def rate(self, now: float) -> float:
        """Bytes a second so far."""
        return self.received / max(now - self.since, 1e-3)

    def patience(self) -> asyncio.Timeout:
        """How long its next bytes are waited for: `limits.UPLOAD_IDLE_S`, and never beyond what its rate has earned."""
        now = self._uploads.now()
        earned = self.since + limits.UPLOAD_IDLE_S + self.received / limits.UPLOAD_BYTES_PER_S
        self._timeout = asyncio.timeout_at(min(now + limits.UPLOAD_IDLE_S, earned))
        return self._timeout

    def give_way(self) -> None:
        """End it. For `Uploads`."""
        self.gives_way = True
        self._uploads.end(self)
        if self.permit.state is PermitState.HELD:
            self.permit.release()
        if self._timeout is not None:
            self._timeout.reschedule(self._uploads.now())

    def __enter__(self) -> Self:
        self._uploads.begin(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._uploads.end(self)
