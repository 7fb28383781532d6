"""Every number of the wire, with where it comes from. Checked when encoding and when decoding.

A limit above a sender's own is no use to the receiver, so both ends check the same numbers:
the sender gets an error where the mistake is, and the receiver survives a sender that lies.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Bumped when a message changes meaning. Peers with another version are refused in the handshake."""

MAX_BODY_BYTES: Final = 48 * 1024 * 1024
"""Largest msgpack body. The HTTP edge takes 32 MiB at most (image models); the rest is envelope."""

MAX_BUFFERS: Final = 256
"""Out-of-band buffers of one message: a packed request has a handful of arrays, never hundreds."""

MAX_BUFFER_BYTES: Final = 512 * 1024 * 1024
"""One buffer. The largest legal one is a checkpoint asset in READY (letter rows, tokenizer): tens of MiB."""

MAX_MESSAGE_BYTES: Final = 1024 * 1024 * 1024
"""All frames of one message together; a hostile peer can make a receiver hold this much and no more."""

SOCKET_MAX_FRAME_BYTES: Final = MAX_BUFFER_BYTES + 1
"""ZMQ_MAXMSGSIZE, per frame. Above our own limit on purpose: libzmq drops the connection in silence
(measured), so it guards against foreign peers only and our own check always speaks first."""

SOCKET_HIGH_WATER_MARK: Final = 1_000
"""ZMQ_SNDHWM and ZMQ_RCVHWM. A front keeps one unit per host on the data lane and a few control
messages, so reaching this means a bug; it then raises (MANDATORY, non-blocking) instead of growing."""

OUT_OF_BAND_BYTES: Final = 4096
"""Arrays and blobs of at least this size travel as their own frame. Below it, a copy inside the body
costs less than one more frame (measured: a frame costs about 2 microseconds, a 4 KiB copy 0.2)."""

MAX_DEPTH: Final = 16
"""Nesting of a body. Ours need 4; the codec library fails in its own way only beyond 500."""

MAX_ITEMS: Final = 1_000_000
"""Elements of one list or map: 400 questions of 255 options are 102,000 probabilities."""

MAX_ITEMS_IN_ALL: Final = 2_000_000
"""Elements of all lists and maps of a body together. Numbers take their reader 64 MB and a tenth of a second."""

MAX_CONTAINERS: Final = 65_536
"""Lists and maps of one body. Each costs its reader 56 bytes and half a microsecond, so 5 MB of empty ones took 4 s of
the loop and 350 MiB (measured); ours have some hundreds. A body of fewer bytes cannot have more."""

MAX_BATCH_PARTS: Final = 256
"""Messages of one batch. What a batch may hold is the executor's limit, which is far below."""

MAX_BATCH_FRAMES: Final = 3 + 4 * MAX_BATCH_PARTS
"""Frames of one batch: a body and three large arrays for each part on average."""

MAX_ARRAY_DIMENSIONS: Final = 8
"""Dimensions of one array. Ours have one to three."""

MAX_INCARNATION_CHARS: Final = 40
"""Incarnations and epochs. Ours are a count and 8 random characters; they name a directory, so they are short."""

MAX_HEADER_BYTES: Final = 4 * MAX_INCARNATION_CHARS + 32
"""An incarnation of 4-byte characters, three integers in their widest form and the bytes that say so take 183."""

MAX_NAME_CHARS: Final = 200
"""Model, family, unit and role names. They are shown in logs and URLs, never used as paths."""

MAX_DEPLOYMENT_CHARS: Final = MAX_NAME_CHARS + 20
"""Ids of deployments: a model's name and a number."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""One human-readable text on the wire (error text, last words, progress note)."""

MAX_CALL_ID: Final = 2**63 - 1
"""Call ids count up from 1 within an epoch; a signed 64-bit integer of any language holds them."""

MAX_BUDGET_MS: Final = 24 * 60 * 60 * 1000
"""Remaining time travels as a budget, because two processes do not share a clock; a day is "no limit"."""

INT_MIN: Final = -(2**63)
"""The smallest integer msgpack can carry."""

INT_MAX: Final = 2**64 - 1
"""The largest integer msgpack can carry."""

MAX_IPC_PATH_BYTES: Final = 107
"""sun_path minus its terminator. Longer paths fail at bind with ENAMETOOLONG, so they are refused early."""

CURVE_KEY_CHARS: Final = 40
"""A key of ZeroMQ's encryption: 32 bytes as Z85."""
