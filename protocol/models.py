"""What is configured of a model, once: from the table `[models.NAME]` to the host's command line and the front's table.

    [models.NAME] ─▶ Model ─▶ NamedModel: defaults filled in ─▶ DeploymentSpec: an id ─▶ a row: its Standing
    (a TOML file)             (frontend/configuration)          (the supervisor)       (the front)

Each is the former one and a few fields. The types say what a value may be; `Meta.description` says it in words, which a
refusal repeats after "is not" (frontend/configuration/decode.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from protocol.limits import MAX_BATCH_PARTS, MAX_BUDGET_MS, MAX_MESSAGE_BYTES

MAX_SECONDS: Final = MAX_BUDGET_MS // 1000
"""A day: the longest budget that the wire carries."""

MAX_AMOUNT: Final = 2**40
"""Bytes, requests, costs: far above any machine, and far below the largest integer of the wire."""

MAX_REPLICAS: Final = 64
"""Hosts of one model: more than any machine has devices."""

MAX_ANSWER_CACHE_MB: Final = 2**20
"""A tebibyte: more than a front is given."""

_LIMIT: Final = Meta(ge=0, le=MAX_SECONDS, description=f"seconds, 0 (no limit) to {MAX_SECONDS}")


def admitting(what: str) -> Meta:
    """Of a bound on admission: 0 would be a model that no client can ask."""
    below, above = "{} admits nothing; give a number above 0", f"{{}} is above the limit of {MAX_AMOUNT}"
    return Meta(ge=1, le=MAX_AMOUNT, description=f"{what} above 0", extra={"below": below, "above": above})


class Batch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.batch]`: what the host is sent at once. One request is never above a limit: it is sent alone."""

    units: Annotated[int, Meta(ge=1, le=MAX_BATCH_PARTS, description=f"a number of units, 1 to {MAX_BATCH_PARTS}")] = 32
    tokens: Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"a number of tokens, 1 to {MAX_AMOUNT}")] = 16_384
    """Padded: all rows times the longest one."""
    bytes: Annotated[int, Meta(ge=1, le=MAX_MESSAGE_BYTES, description=f"bytes, 1 to {MAX_MESSAGE_BYTES}")] = 2**25
    """Of all payloads."""
    wait_ms: Annotated[float, Meta(ge=0, le=1000, description="milliseconds, 0 to 1000")] = 0.0
    """How long an idle host waits for company of the first unit."""


class Native(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.native]`: a listener that speaks the dialect of the family's original server."""

    listen: Annotated[str, Meta(description="ADDRESS:PORT", extra={"missing": "the key listen is missing"})]


MAX_THREADS: Final = 1024
"""Of one host: more than a machine has processors."""


class Ray(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[models.NAME.ray]`: where Ray places the hosts, and options of the actor."""

    address: Annotated[str, Meta(description="the address of a Ray cluster, auto or local")] | None = None
    num_cpus: Annotated[float, Meta(description="a number of CPUs")] | None = None
    num_gpus: Annotated[float, Meta(description="a number of GPUs")] | None = None
    memory: Annotated[int, Meta(description="bytes")] | None = None
    resources: Annotated[dict[str, Any], Meta(description="a table of your cluster's own resources")] | None = None


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a model. An attribute that is a time ends in `_s`; its key has no ending.

    Another key is a field here and a read of it in what it is about: the hosts (`executor_host/supervision/hosts.py` or
    `fleet.py`) or the requests (`frontend/serving/deployment.py`). One with a default of the family, or with a rule
    between keys, has a line in `frontend/configuration/models.py`, too. So at most four files; nothing in between
    repeats the field. The sample in the documentation is compared with the fields by a test.
    """

    family: Annotated[str, Meta(description="the name of a family", extra={"missing": "the family is missing"})]
    path: Annotated[str, Meta(description="a path")] | None = None
    """The checkpoint; None: what the family brings, or what hosts elsewhere have."""
    max_requests: Annotated[int, admitting("a number of requests")] | None = None
    """Requests at once; absent: as the family has it, and then None: no bound."""
    max_cost: Annotated[int, admitting("a cost")] | None = None
    """Their total cost, in tokens or bytes; absent: as the family has it, and then None: no bound."""
    resident: bool = True
    """Whether its hosts are started with the server, and not by the first request."""
    replicas: Annotated[
        int, Meta(ge=1, le=MAX_REPLICAS, description=f"a number of hosts, 1 or more and at most {MAX_REPLICAS}")
    ] = 1
    threads: (
        Annotated[int, Meta(ge=1, le=MAX_THREADS, description=f"a number of threads, 1 to {MAX_THREADS}")] | None
    ) = None
    """Of each of its hosts on this machine; None: an equal share of the processors."""
    spare: bool = False
    """Whether one more host is kept loaded and warm, which takes over when one of the others dies."""
    pin: bool = False
    """Its hosts are never stopped to make room, nor because they are idle."""
    keep_alive_s: (
        Annotated[float, Meta(ge=0, le=MAX_SECONDS, description=f"seconds, 0 (for ever) to {MAX_SECONDS}")] | None
    ) = field(name="keep_alive", default=None)
    """How long its hosts are kept without a request; None: for ever."""
    execution_limit_s: Annotated[float, _LIMIT] | None = field(name="execution_limit", default=None)
    """How long its host may owe an answer before it is ended; None: for ever."""
    load_limit_s: Annotated[float, _LIMIT] | None = field(name="load_limit", default=None)
    """How long its host may load and warm up before it is ended; None: for ever."""
    join: bool = True
    """Whether equal requests that are there at the same time are executed once; never on the native listener."""
    answer_cache_mb: Annotated[
        float, Meta(ge=0, le=MAX_ANSWER_CACHE_MB, description=f"MiB, 0 (none) to {MAX_ANSWER_CACHE_MB}")
    ] = 0.0
    """Memory of the front for answers of the host, which are given again to equal requests."""
    batch: Batch | None = None
    """What its host is sent at once; absent: as the family has it, and then None: one unit."""
    look_ahead: bool | None = None
    """Whether a further batch is sent while one is executed; absent: as the family has it, and not with a native
    listener."""
    temperature: Annotated[float, Meta(ge=0.01, le=100, description="a number, 0.01 to 100")] = 1.0
    """What the logits behind its answers are divided by, as `framehost eval --fit` proposes it; winners stay. Native
    listeners answer as the original does."""
    options: dict[str, Any] = {}
    """What the family takes, as given: `Family.options` has checked it and knows the defaults."""
    native: Native | None = None
    """The listener that speaks the family's own dialect."""
    remote: bool | None = None
    """Whether its hosts are elsewhere and dial in; absent: where Ray places them."""
    ray: Ray | None = None
    """Where Ray places its hosts; None: not Ray's."""

    @property
    def pinned(self) -> bool:
        """Whether its hosts stay: a host that others start cannot be started again for a request, either."""
        return self.pin or bool(self.remote)


class NamedModel(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model as configured and checked: a limit of 0 has become None, and what was absent the family's default."""

    name: str


class DeploymentSpec(NamedModel, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One deployment, immutable: another checkpoint, option or bound under the same name is another deployment.

    Its row in the table that the front is told has the fields of its `Standing` beside its own.
    """

    id: str
    """Unique for the life of the supervisor: the model's name and a number."""


class HostStanding(Struct, frozen=True, kw_only=True):
    """Where one replica's host is at the moment of the table."""

    state: Literal["none", "coming", "ready", "failed"]
    """`none`: there is none, and none comes by itself. `ready`: HOST_UP has told it, or follows."""
    retry_after_s: float = 0.0
    """Of one that comes after a death: for how long it will probably take."""
    last_death: str = ""


class Standing(Struct, frozen=True, kw_only=True):
    """What a deployment is to its name and to the room there is, as the supervisor's table tells it to the front."""

    role: str
    """Of `protocol.states.Role`."""
    present: bool = True
    """Whether it has hosts, or they are being started, and are not about to be stopped for room."""
    refusal: str = ""
    """Why there cannot be a host, when that is certain."""
    hosts: tuple[HostStanding, ...] = ()
    """One for each replica: the whole truth, so that a front needs to remember nothing of what it was told before."""
