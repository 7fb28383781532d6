"""The tables beside `[models.NAME]` (protocol/models.py): their keys, what each may be, and the defaults."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from frontend import limits
from frontend.limits import CEILING_OF_MAX_DEPTH
from protocol.models import MAX_AMOUNT, MAX_SECONDS

LEASE_S: Final = (1.0, 600.0)
"""Shorter ones end hosts over a hiccup of the network, longer ones keep requests waiting for a dead host."""

MAX_RESTARTS: Final = 1000
"""In a row, the later ones half a minute apart: a night of trying."""

DEFAULT_DRAIN_S: Final = 30.0
DEFAULT_FRONT_LIMIT_S: Final = 60.0
"""Twice the default deadline of a request: a client of a front that has stood still for so long has given up."""

DEFAULT_TURN_S: Final = 10.0
"""A third of the default deadline of a request: there is time to make the room, and to load the model in it."""

DEFAULT_RESTARTS: Final = 5
"""Restarts in a row before giving up. The first is immediate; five span about 8 s of trying."""

DEFAULT_LEASE_S: Final = 10.0

_ORIGIN: Final = r"\Ahttps?://[a-z0-9.\[\]:-]+\Z"
"""As a browser sends it: scheme, host in lower case, perhaps a port, and no slash at the end."""

_HOST_NAME: Final = r"\A(?=.{1,253}\Z)\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\Z"
"""As a client may have it in `Host`, without a port; an underscore is none of DNS's, and service names have it. With a
dot before it: all names below it."""

_SECONDS: Final = Meta(gt=0, le=MAX_SECONDS, description=f"seconds above 0 and at most {MAX_SECONDS}")
_BYTES: Final = Meta(ge=1, le=MAX_AMOUNT, description=f"bytes above 0 and at most {MAX_AMOUNT}")
_ADDRESS: Final = Meta(description="ADDRESS:PORT")


def _count(most: int, what: str, least: int = 1) -> Meta:
    return Meta(ge=least, le=most, description=f"{what}, {least} to {most}")


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.limits]`: what the main port takes. The depth is at least 4, which every request has: itself, its
    questions, one of them, its criteria. A family's own limits stay what they are: a model that reads letters A to Z is
    not asked about 27 options."""

    uploads: Annotated[int, _count(100_000, "uploads in progress")] = limits.INGRESS_REQUESTS
    upload_bytes: Annotated[int, _count(2**40, "bytes")] | None = None
    """Absent: the default, or what `max_body` is when that is more."""
    depth: Annotated[int, _count(CEILING_OF_MAX_DEPTH, "objects and arrays inside each other", 4)] = limits.MAX_DEPTH
    questions: Annotated[int, _count(10_000, "questions of one request")] = limits.MAX_QUESTIONS
    question_id_chars: Annotated[int, _count(100_000, "characters")] = limits.MAX_QUESTION_ID_CHARS
    options: Annotated[int, _count(10_000, "options of a choice")] = limits.MAX_OPTIONS
    option_name_chars: Annotated[int, _count(100_000, "characters")] = limits.MAX_OPTION_NAME_CHARS
    levels: Annotated[int, _count(1_000, "levels of a score")] = limits.MAX_LEVELS


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`."""

    host: Annotated[str, Meta(description="an IP address")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="a port number 0..65535")] = 8080
    default: Annotated[str, Meta(description="the name of a model")] | None = None
    request_timeout_s: Annotated[float, _SECONDS] = field(name="request_timeout", default=limits.REQUEST_TIMEOUT_S)
    max_body: Annotated[int, _BYTES] = limits.MAX_BODY_BYTES
    drain_s: Annotated[float, _SECONDS] = field(name="drain", default=DEFAULT_DRAIN_S)
    access_log: bool = False
    tracing: bool = False
    audit: Annotated[str, Meta(description="the path of a file")] | None = None
    """Where every answered decision is noted, without its state."""
    keys: Annotated[str, Meta(description="the path of a key file")] | None = None
    cors: Annotated[
        tuple[
            Annotated[
                str,
                Meta(pattern=_ORIGIN, description="an origin, as https://app.example or http://127.0.0.1:3000"),
            ],
            ...,
        ],
        Meta(description="a list of origins, as https://app.example"),
    ] = ()
    allowed_hosts: Annotated[
        tuple[
            Annotated[
                str, Meta(pattern=_HOST_NAME, description="a host name without a port, as judge.example or .example")
            ],
            ...,
        ],
        Meta(description="a list of host names, as framehost.example"),
    ] = ()
    restarts: Annotated[
        int, Meta(ge=0, le=MAX_RESTARTS, description=f"a number of restarts, 0 or more and at most {MAX_RESTARTS}")
    ] = DEFAULT_RESTARTS
    max_resident: (
        Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"a number of models, 1 or more and at most {MAX_AMOUNT}")]
        | None
    ) = None
    max_resident_bytes: Annotated[int, _BYTES] | None = None
    turn_s: Annotated[float, Meta(ge=0, le=MAX_SECONDS, description=f"seconds, 0 (never) to {MAX_SECONDS}")] = field(
        name="turn", default=DEFAULT_TURN_S
    )
    opens_with: Annotated[Literal["all", "first"], Meta(description="all or first")] = field(name="open", default="all")
    """Whether the port opens when every model that is started with the server answers, or the first of them."""
    session_idle_s: Annotated[float, _SECONDS] = field(name="session_idle", default=limits.SESSION_IDLE_S)
    """Without a turn for so long a conversation is over."""
    kept_bytes: Annotated[
        dict[str, Annotated[int, _BYTES]], Meta(description="a table of devices, as { cpu = 1073741824 }")
    ] = {}
    """What may stay on a device between requests, of all its models and conversations; absent: what the options
    `prefix_cache_mb` of its models add up to."""
    front_limit_s: Annotated[
        float, Meta(ge=0, le=MAX_SECONDS, description=f"seconds, 0 (no limit) to {MAX_SECONDS}")
    ] = field(name="front_limit", default=DEFAULT_FRONT_LIMIT_S)
    health: Annotated[str, _ADDRESS] | None = None
    admin: Annotated[str, _ADDRESS] | None = None
    limits: Limits = Limits()


class Hosts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[hosts]`: where hosts dial in that others start."""

    listen: Annotated[str, _ADDRESS]
    key: Annotated[str, Meta(description="the path of this server's NAME.key_secret")]
    allow: (
        Annotated[str, Meta(description="the path of a folder with the NAME.key of every host that may dial in")] | None
    ) = None
    lease_s: Annotated[
        float, Meta(ge=LEASE_S[0], le=LEASE_S[1], description=f"seconds, {LEASE_S[0]:g} to {LEASE_S[1]:g}")
    ] = field(name="lease", default=DEFAULT_LEASE_S)


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file. Each model is read by itself, so that what is wrong with it is told with its name."""

    server: Server = Server()
    models: dict[str, Any] = {}
    hosts: Hosts | None = None


class Swap(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a swap is given. `mode` is the supervisor's to read."""

    family: Annotated[str, Meta(description="a family's name", extra={"missing": "the family is missing"})]
    path: Annotated[str, Meta(description="a path")] | None = None
    options: dict[str, Any] | None = None
    mode: Annotated[str, Meta(description="start-first or stop-first")] | None = None
