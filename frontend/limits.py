"""Every number of the frontend, with where it comes from and what happens above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""One request body, counted after decompression. The largest legal text request is far below it. Above: 413."""

INGRESS_REQUESTS: Final = 256
"""Uploads in progress on the port. Above: 429. Small bodies arrive with their headers and pass in microseconds."""

INGRESS_BYTES: Final = 64 * 1024 * 1024
"""Bodies of all uploads in progress together, as far as they have come. Above: 429."""

INGRESS_STEP_BYTES: Final = 64 * 1024
"""An upload reserves this much at first, or what it announces where that is less, and whenever it has grown beyond what
it has: 256 uploads that stand still hold a quarter of the budget, and a body of the usual size never asks again."""

REQUEST_TIMEOUT_S: Final = 30.0
"""Upload, queue and execution of one request together, and the most a client may ask for. Above: 504."""

UPLOAD_IDLE_S: Final = 10.0
"""No byte of a body for this long: 408. Clients of the field give up after 10 s themselves."""

UPLOAD_BYTES_PER_S: Final = 1024
"""The slowest upload: one that has brought less, after `UPLOAD_IDLE_S`, is 408."""

UPLOAD_SLOW_BYTES_PER_S: Final = 64 * 1024
"""An upload below this gives way when there is no room for others: a body of the largest size would not be there within
the time of a request."""

UPLOAD_GIVES_WAY_S: Final = 1.0
"""Not before this: a body that was sent at once is there long before."""

INLINE_WORK_BYTES: Final = 64 * 1024
"""`prepare` and `finish` run on the event loop below this many bytes and in the pool above it. Two pool hops
cost 1.6 times the latency of a small request (measured); 64 KiB of JSON is about 1 ms of the loop's time."""

POOL_THREADS: Final = 2
"""Threads for large requests. They contend for one interpreter lock, so more would only add waiting."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop waits for the interpreter lock before a thread of the pool has to give it up; Python's default is
ten times that. Beside two threads that parse megabytes the loop came to 31 turns, beside one and with this to 52 while
less time passed, and nine of ten turns were late by up to 80 ms and not 460 (measured)."""

POISON_S: Final = 600.0
"""How long a request is refused that has ended two hosts: longer than any client tries again by itself, and short
enough that what was mended is found out."""

MAX_POISONED: Final = 1_024
"""Requests that are remembered because a host ended while it executed them, with 100 bytes each."""

REPORT_ENTRIES: Final = 64
"""Of what a host reports of itself, the first so many are kept; it has a dozen."""

REPORT_TEXT_CHARS: Final = 200
"""A longer text in such a report is left out; the longest is the name of a state."""

RESTART_WAIT_S: Final = 5.0
"""A newcomer waits for a host that is expected back within this time, else it is refused with Retry-After.
The longest Retry-After we send: what we would tell the client to wait, we may as well wait for it."""

TIMER_SLACK_S: Final = 0.01
"""A timer may fire this much early by the clock that it was set by: the loop counts in milliseconds."""

PROCESSOR_LIMIT_S: Final = 60.0
"""Making a processor reads a few files of a checkpoint, which takes a second where it is large. Above: the deployment
is unusable, and a host that has loaded it is refused."""

KEEPALIVE_S: Final = 75.0
"""Idle client connections are closed after this; the library's default is an hour."""

MAX_HEAD_LINE_BYTES: Final = 8190
"""Of the request line, and of one header field; the library's default, which is Apache's."""

MAX_HEADER_FIELDS: Final = 128
"""Of one request; the library's default."""

LINGERING_S: Final = 2.0
"""After a refused upload, how long the rest of it is still read and dropped, so that the client can read the
answer before its connection is reset; the library's default is 10 s."""

STREAM_FLUSH_S: Final = 10.0
"""What a reader of events has not taken this long after the decision's end is dropped with its connection. Nothing but
the connection is held by then; clients of the field give up after 10 s themselves."""

WRITE_S: Final = 10.0
"""A client that has read less in this time than `WRITE_BYTES_PER_S` times it, and not all of its answer, is aborted.
Until then the answer is in our memory; clients of the field give up after 10 s themselves."""

WRITE_BYTES_PER_S: Final = 64 * 1024
"""The slowest reading that is waited for. What the kernel holds for a connection comes on top."""

SWEEP_S: Final = 1.0
"""How often the connections are looked at for answers that no client reads; a look costs a microsecond for each."""

LISTEN_BACKLOG: Final = 1024
"""Connections the kernel may hold while a new front takes over the socket."""

FILES_KEPT_FREE: Final = 256
"""Descriptors for everything that is not a client: a host takes half a dozen. Where few files may be open at all,
clients get half of them."""

CLIENT_IDLE_S: Final = 1.0
"""A connection may be ended to make room for another when nothing came for this long: what a client sends first is here
long before that, and perhaps not read yet."""

FILES_WARNING_S: Final = 60.0
"""The log says at most this often that descriptors run out."""

MAX_TIMEOUT_DIGITS: Final = 15
"""Of a time budget in milliseconds: 30,000 years. Python's own limit is 4,300, and a float's 308."""

MAX_HEADER_REQUEST_ID: Final = 128
"""A longer x-request-id is not echoed but replaced."""

MAX_MESSAGE_CHARS: Final = 1_000
"""Characters of one message of an error body, whatever it was made from: a sentence and what it is about."""

# JSON bodies

MAX_DEPTH: Final = 64
"""Objects and arrays inside each other, the outermost included. The scanner, the encoder and
every renderer of ours recurse per level, and Python's own limit is near 1,000."""

CEILING_OF_MAX_DEPTH: Final = 200
"""What a caller may pass as `max_depth`: the deepest family contract allows 127, and a level costs a few of
the 1,000 frames of Python's own limit in the scanner, the encoder and the second pass."""

MAX_INTEGER_DIGITS: Final = 4300
"""Python's default bound on converting digits to an integer, which is quadratic. Longer ones cannot be
echoed or rendered, so they are refused with their place and not with a crash."""

MAX_FAULTS: Final = 20
"""Faults listed for one body. People fix a few at a time, and the answer must stay small."""

MAX_EXPLAINED_BYTES: Final = 1024 * 1024
"""The second pass takes up to 0.5 s per MiB of hostile text (measured), all of it pure Python. Larger bodies
of real clients come from a program, which needs the reason and not the path."""

# System One requests and answers

MAX_QUESTIONS: Final = 1_000
"""Questions of one request. The most that any dialect of the field states; clients were seen sending 400."""

MAX_QUESTION_ID_CHARS: Final = 1_024
"""Characters of a question id. It is echoed with every answer and in messages; real ones are words."""

MAX_OPTIONS: Final = 255
"""Options of a choice: the hosted service's documented number."""

MAX_OPTION_NAME_CHARS: Final = 4_096
"""Characters of an option name. Whole sentences are sent as names, and each name comes back in the answer."""

MAX_LEVELS: Final = 10
"""Levels of a score: the hosted service's documented number."""

RETRY_AFTER_SECONDS: Final = (1, 5)
"""Bounds of the Retry-After header. Below 1 is not an integer; a client of the field caps waits at 5 s, and
the official one gives up at once when the value is above its remaining budget of 30 s."""


SESSION_IDLE_S: Final = 600.0
"""Without a turn for so long a conversation is over: as long as caches of prompts in the field are kept."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of the main port that an operator may set, with their defaults. The last six are one request's."""

    max_body_bytes: int = MAX_BODY_BYTES
    request_timeout_s: float = REQUEST_TIMEOUT_S
    ingress_requests: int = INGRESS_REQUESTS
    ingress_bytes: int = INGRESS_BYTES
    depth: int = MAX_DEPTH
    questions: int = MAX_QUESTIONS
    question_id_chars: int = MAX_QUESTION_ID_CHARS
    options: int = MAX_OPTIONS
    option_name_chars: int = MAX_OPTION_NAME_CHARS
    levels: int = MAX_LEVELS

    def report(self) -> dict[str, Any]:
        """For clients and for `framehost status`, by the names of the configuration and with units."""
        return {
            "body_bytes": self.max_body_bytes,
            "request_timeout_s": self.request_timeout_s,
            "uploads": self.ingress_requests,
            "upload_bytes": self.ingress_bytes,
            "depth": self.depth,
            "questions": self.questions,
            "question_id_chars": self.question_id_chars,
            "options": self.options,
            "option_name_chars": self.option_name_chars,
            "levels": self.levels,
        }


DEFAULTS: Final = ServerLimits()
