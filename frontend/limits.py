"""Every number of the frontend, with where it comes from and what happens above it."""

from __future__ import annotations

from typing import Final

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""One request body, counted after decompression. The largest legal text request is far below it. Above: 413."""

INGRESS_REQUESTS: Final = 256
"""Uploads in progress on the port. Above: 429. Small bodies arrive with their headers and pass in microseconds."""

INGRESS_BYTES: Final = 64 * 1024 * 1024
"""Bodies of all uploads in progress together; a chunked upload counts as the largest body. Above: 429."""

REQUEST_TIMEOUT_S: Final = 30.0
"""Upload, queue and execution of one request together, and the most a client may ask for. Above: 504."""

UPLOAD_IDLE_S: Final = 10.0
"""No byte of a body for this long: 408. Clients of the field give up after 10 s themselves."""

INLINE_WORK_BYTES: Final = 64 * 1024
"""`prepare` and `finish` run on the event loop below this many bytes and in the pool above it. Two pool hops
cost 1.6 times the latency of a small request (measured); 64 KiB of JSON is about 1 ms of the loop's time."""

POOL_THREADS: Final = 2
"""Threads for large requests. They contend for one interpreter lock, so more would only add waiting."""

RESTART_WAIT_S: Final = 5.0
"""A newcomer waits for a host that is expected back within this time, else it is refused with Retry-After.
The longest Retry-After we send: what we would tell the client to wait, we may as well wait for it."""

RETRY_AFTER_MAX_S: Final = 5
"""Largest Retry-After, in whole seconds: one SDK has a total retry budget of 30 s and raises above it."""

KEEPALIVE_S: Final = 75.0
"""Idle client connections are closed after this; the library's default is an hour."""

LINGERING_S: Final = 2.0
"""After a refused upload, how long the rest of it is still read and dropped, so that the client can read the
answer before its connection is reset; the library's default is 10 s."""

LISTEN_BACKLOG: Final = 1024
"""Connections the kernel may hold while a new front takes over the socket."""

MAX_HEADER_REQUEST_ID: Final = 128
"""A longer x-request-id is not echoed but replaced."""
