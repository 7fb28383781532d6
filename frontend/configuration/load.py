"""The configuration: one TOML schema, checked before anything is started, with file, line and key in every error.

[server]
host = "127.0.0.1"          # an address, not a name
port = 8080                 # 0 lets the system choose
default = "NAME"            # what jev-latest means; else the first model
request_timeout = 30.0      # seconds: upload, queue and execution together
max_body = 8388608          # bytes, after decompression
drain = 30.0                # seconds a stop may take
access_log = false          # a log line for every request, not only for server errors
tracing = false             # OpenTelemetry spans; needs the extra otel
max_resident = 4            # optional: how many models may have hosts at once
max_resident_bytes = 0      # optional: how much memory these may take together
turn = 10.0                 # seconds a model that is asked for waits before busy ones make room for it; 0: never
restarts = 5                # how often in a row a process that was never ready is started again; 0: never
front_limit = 60.0          # seconds the front may be silent before it is replaced; 0: for ever
admin = "127.0.0.1:8082"    # optional: where operators swap, load and unload models over HTTP
health = "127.0.0.1:8081"   # optional: where probes are answered from the first moment on
keys = "keys.toml"          # optional: API keys; without, everyone who can connect may ask
cors = ["https://a.example"] # optional: origins of web pages whose scripts may read the answers
allowed_hosts = ["judge.example"] # optional: names it answers to beside localhost (frontend/http/names.py)

[server.limits]             # optional: what the main port takes; here the defaults
uploads = 256               # in progress at once
upload_bytes = 67108864     # of all uploads in progress together
depth = 64                  # objects and arrays inside each other
questions = 1000            # of one request
question_id_chars = 1024    # characters
options = 255               # of a choice
option_name_chars = 4096    # characters
levels = 10                 # of a score

[models.NAME]
family = "sparrow"
path = "..."                # checkpoint folder or file; optional where the family brings weights, or hosts dial in
max_requests = 1024         # optional: requests of this model at once
max_cost = 4000000          # optional: their total cost (tokens, or bytes for text families)
resident = true             # false: its hosts are started when a request needs them
replicas = 1                # hosts of this model; each request goes to the least loaded one
pin = false                 # true: they are never stopped to make room for others, nor by keep_alive
keep_alive = 0              # seconds without a request after which they are stopped; 0: never
execution_limit = 600.0     # optional: seconds one unit may take before its host is ended; 0: no limit
load_limit = 1800.0         # optional: seconds from start to ready before the host is ended; 0: no limit

[models.NAME.options]       # what the family takes
truncate = true

[models.NAME.native]        # optional, for families that have one: their original server's own HTTP dialect
listen = "127.0.0.1:8001"   # ADDRESS:PORT, [ADDRESS]:PORT for IPv6; port 0 lets the system choose
"""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontend import limits
from frontend.configuration import fetched, keys, limits_table, schema
from frontend.configuration.model import (
    DEFAULT_DRAIN_S,
    DEFAULT_FRONT_LIMIT_S,
    DEFAULT_RESTARTS,
    DEFAULT_TURN_S,
    Configuration,
    Endpoint,
    HostsConfig,
    ModelConfig,
)
from frontend.configuration.toml_file import ConfigurationError, Key, TomlDocument
from frontend.families.base import Processor
from frontend.requests.questions import ALIASES, PREFIXES
from protocol import families
from protocol.errors import ProtocolError
from protocol.frames import encode
from protocol.limits import MAX_NAME_CHARS
from protocol.messages import Deployment
from protocol.options import OptionError

EMBEDDED_MODEL = "sparrow"
TRACING_MODULE = "opentelemetry.exporter.otlp.proto.http"
"""What of the extra `otel` needs all the rest of it."""

DEFAULT_LEASE_S = 10.0


def load(path: Path) -> Configuration:
    """The checked configuration of a TOML file. Raises `ConfigurationError` for everything wrong with it."""
    return _build(TomlDocument.read(path))


def from_models(arguments: Sequence[str]) -> Configuration:
    """The configuration of `--model NAME=FAMILY[:PATH]` options; without any, the embedded model."""
    document: dict[str, Any] = {"models": {}}
    for argument in arguments or [f"{EMBEDDED_MODEL}={EMBEDDED_MODEL}"]:
        name, equals, rest = argument.partition("=")
        family, _, path = rest.partition(":")
        if not (name and equals and family):
            raise ConfigurationError(f"--model {argument}: expected NAME=FAMILY or NAME=FAMILY:PATH")
        if name in document["models"]:
            raise ConfigurationError(f"--model {argument}: there are two models called {name!r}")
        document["models"][name] = {"family": family, **({"path": path} if path else {})}
    return _build(TomlDocument("--model", None, document))


def endpoint(text: str) -> Endpoint:
    """The address and port of `ADDRESS:PORT`. Raises `ConfigurationError`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host) != bracketed or not (port.isascii() and port.isdecimal()):
        raise ConfigurationError(f"{text!r} is not ADDRESS:PORT, as 127.0.0.1:8001 or [::1]:8001")
    if len(port) > 5 or int(port) > 65535:
        raise ConfigurationError(f"{text!r}: a port is 0..65535")
    return Endpoint(check_host(host[1:-1] if bracketed else host), int(port))


def check_host(host: str) -> str:
    """`host` if it is an IP address; names are refused, because what they mean can change under a running server."""
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(f"{host!r} is not an IP address to listen on") from None
    return host


def check_keys(path: Path) -> Path:
    """`path`, absolute, when the key file there is right. Raises `ConfigurationError`."""
    keys.distinct((*keys.from_environment(), *keys.read(path)))
    return path.absolute()


_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
"""As a client may have it in `Host`, without a port; an underscore is none of DNS's, and service names have it."""

_ORIGIN = re.compile(r"https?://[a-z0-9.\[\]:-]+")
"""As a browser sends it: scheme, host in lower case, perhaps a port, and no slash at the end."""


def _build(source: TomlDocument) -> Configuration:
    document = source.content
    source.only(document, dict.fromkeys(("server", "hosts", "models"), ((dict,), "a table")), ())
    server = document.get("server", {})
    source.only(server, schema.SERVER, ("server",))
    host = str(server.get("host", "127.0.0.1"))
    try:
        host = check_host(host)
    except ConfigurationError as error:
        source.fail(("server", "host"), str(error))
    if not 0 <= server.get("port", 8080) <= 65535:
        source.fail(("server", "port"), f"{server['port']} is not a port number 0..65535")
    for key, largest in (
        ("request_timeout", schema.MAX_SECONDS),
        ("max_body", schema.MAX_AMOUNT),
        ("drain", schema.MAX_SECONDS),
    ):
        if key in server and not 0 < server[key] <= largest:
            source.fail(("server", key), f"{server[key]} is not {schema.SERVER[key][1]}")
    if not 0 <= server.get("restarts", 0) <= schema.MAX_RESTARTS:
        source.fail(("server", "restarts"), f"{server['restarts']} is not {schema.SERVER['restarts'][1]}")
    for key in ("max_resident", "max_resident_bytes"):
        if key in server and not 0 < server[key] <= schema.MAX_AMOUNT:
            source.fail(("server", key), f"{server[key]} is not {schema.SERVER[key][1]}")
    if not 0 <= server.get("turn", 0) <= schema.MAX_SECONDS:
        source.fail(("server", "turn"), f"{server['turn']} is not {schema.SERVER['turn'][1]}")
    if server.get("tracing") and not _installed(TRACING_MODULE):
        source.fail(("server", "tracing"), "needs OpenTelemetry, which the extra otel installs")
    if not 0 <= server.get("front_limit", 0) <= schema.MAX_SECONDS:
        source.fail(("server", "front_limit"), f"{server['front_limit']} is not {schema.SERVER['front_limit'][1]}")
    own: dict[str, Endpoint | None] = {}
    for key in ("health", "admin"):
        try:
            own[key] = endpoint(server[key]) if key in server else None
        except ConfigurationError as error:
            source.fail(("server", key), str(error))
    try:
        key_file = None if "keys" not in server else check_keys(Path(server["keys"]))
    except ConfigurationError as error:
        source.fail(("server", "keys"), str(error))
    origins = server.get("cors", [])
    for origin in origins:
        if not isinstance(origin, str) or _ORIGIN.fullmatch(origin) is None:
            source.fail(
                ("server", "cors"), f"{origin!r} is not an origin, as https://app.example or http://127.0.0.1:3000"
            )
    allowed_hosts = server.get("allowed_hosts", [])
    for name in allowed_hosts:
        if not isinstance(name, str) or _HOST_NAME.fullmatch(name) is None:
            source.fail(("server", "allowed_hosts"), f"{name!r} is not a host name without a port, as judge.example")
    timeout_s = float(server.get("request_timeout", limits.REQUEST_TIMEOUT_S))
    bounds = limits_table.read(server, timeout_s, source)
    models = tuple(_model(name, fields, timeout_s, source) for name, fields in document.get("models", {}).items())
    if not models:
        source.fail(("models",), "there is no model; add a table [models.NAME] with a family")
    _check_room(models, server.get("max_resident"), source)
    hosts = _hosts(document["hosts"], source) if "hosts" in document else None
    for model in models:
        if model.remote and hosts is None:
            key = "remote" if model.ray is None else "ray"
            source.fail(("models", model.name, key), "hosts can only dial in where there is a table [hosts]")
        if model.remote and model.ray is None and hosts is not None and hosts.allow is None:
            source.fail(("hosts",), f"the key allow is missing: it is {schema.HOSTS['allow'][1]}")
    default = server.get("default", models[0].name)
    if default not in {model.name for model in models}:
        source.fail(("server", "default"), f"there is no model {default!r}")
    # Locks and runtime directories are by port, so two listeners cannot share one on different addresses either.
    taken = {server.get("port", 8080): "the main port"}
    for model in models:
        if model.native is None or not model.native.port:
            continue
        port = model.native.port
        if port in taken:
            source.fail(("models", model.name, "native", "listen"), f"port {port} is {taken[port]} already")
        taken[port] = f"the native port of {model.name!r}"
    for key, place in own.items():
        if place is None or not place.port:
            continue
        if place.port in taken:
            source.fail(("server", key), f"port {place.port} is {taken[place.port]} already")
        taken[place.port] = f"the {key} port"
    return Configuration(
        models=models,
        default=default,
        host=host,
        port=server.get("port", 8080),
        limits=bounds,
        drain_s=float(server.get("drain", DEFAULT_DRAIN_S)),
        access_log=server.get("access_log", False),
        tracing=server.get("tracing", False),
        restarts=server.get("restarts", DEFAULT_RESTARTS),
        max_resident=server.get("max_resident"),
        max_resident_bytes=server.get("max_resident_bytes"),
        turn_s=server.get("turn", DEFAULT_TURN_S) or None,
        front_limit_s=server.get("front_limit", DEFAULT_FRONT_LIMIT_S) or None,
        health=own["health"],
        admin=own["admin"],
        keys=key_file,
        cors=tuple(origins),
        allowed_hosts=tuple(name.lower() for name in allowed_hosts),
        hosts=hosts,
    )


def _check_room(models: Sequence[ModelConfig], bound: int | None, source: TomlDocument) -> None:
    """Refuse what `max_resident` could never keep. What fits into bytes is known when models have been loaded."""
    if bound is None:
        return
    resident = [model.name for model in models if model.resident]
    if len(resident) > bound:
        source.fail(
            ("server", "max_resident"),
            f"{len(resident)} models are resident from the start and {bound} may be: "
            f"give resident = false to all but {bound} of {', '.join(resident)}",
        )
    pinned = [model.name for model in models if model.pin]
    if len(pinned) == bound and len(models) > bound:
        source.fail(
            ("server", "max_resident"),
            f"the pinned {', '.join(pinned)} take all the room: no other model could ever be loaded",
        )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # one of its parents
        return False


def _model(name: str, fields: Any, timeout_s: float, source: TomlDocument) -> ModelConfig:
    key = ("models", name)
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        source.fail(key, f"a model name has 1..{MAX_NAME_CHARS} printable characters")
    if name in ALIASES:
        source.fail(key, f"{name!r} always means the default model, so no request could reach a model of this name")
    for prefix in PREFIXES.values():
        if name.startswith(prefix):
            source.fail(key, f"clients put {prefix!r} before any name, so no request could reach a model called so")
    if not isinstance(fields, dict):
        source.fail(key, "a table is expected: [models.NAME]")
    source.only(fields, schema.MODEL, key)
    if "family" not in fields:
        source.fail(key, "the family is missing")
    for bound in ("max_requests", "max_cost"):
        if bound in fields and fields[bound] <= 0:
            source.fail((*key, bound), f"{fields[bound]} admits nothing; give a number above 0")
        if fields.get(bound, 0) > schema.MAX_AMOUNT:
            source.fail((*key, bound), f"{fields[bound]} is above the limit of {schema.MAX_AMOUNT}")
    for limit in ("execution_limit", "load_limit", "keep_alive"):
        if not 0 <= fields.get(limit, 0) <= schema.MAX_SECONDS:
            source.fail((*key, limit), f"{fields[limit]} is not {schema.MODEL[limit][1]}")
    if not 1 <= fields.get("replicas", 1) <= schema.MAX_REPLICAS:
        source.fail((*key, "replicas"), f"{fields['replicas']} is not {schema.MODEL['replicas'][1]}")
    if fields.get("pin") and not fields.get("resident", True):
        source.fail((*key, "pin"), "what is pinned is resident from the start; leave out resident = false")
    options = fields.get("options", {})
    try:
        family = families.find(fields["family"])
    except families.UnknownFamily as error:
        source.fail((*key, "family"), str(error))
    _check_halves(family, (*key, "family"), source)
    try:
        family.options.complete(options)
    except OptionError as error:
        source.fail((*key, "options", error.key), error.message)
    path = fields.get("path")
    if path == "":
        source.fail((*key, "path"), "the path is empty; leave the key out for a family that brings its weights")
    if path is not None:
        try:
            path = fetched.located(path, family.name)
        except fetched.NotFetched as error:
            source.fail((*key, "path"), str(error))
    for part, value in (("options", options), ("path", path)):
        # The front is told both in the table of models: what does not fit in there would stop it at its start.
        try:
            encode(Deployment(models=[{part: value}], default=name, server={}, open=False), incarnation="check")
        except ProtocolError as error:
            source.fail((*key, part), str(error))
    if "ray" in fields:
        source.only(fields["ray"], schema.RAY, (*key, "ray"))
    remote = fields.get("remote", "ray" in fields)
    if "ray" in fields and not remote:
        source.fail((*key, "remote"), "a model whose hosts Ray places is remote")
    if path is not None and family.marks and path not in family.bundled and not remote:
        try:
            Path(path).stat()
        except (OSError, ValueError) as error:
            known = ", ".join((*family.bundled, *fetched.names(family.name)))
            names = f"; names instead of a path: {known}" if known else ""
            source.fail((*key, "path"), f"{path!r}: {getattr(error, 'strerror', error)}{names}")
    if path is None and family.needs_path and not remote:
        source.fail((*key, "path"), f"the path is missing: the {family.name} family needs {family.needs_path}")
    native = None
    if "native" in fields:
        source.only(fields["native"], schema.NATIVE, (*key, "native"))
        if not family.native:
            source.fail((*key, "native"), f"the family {family.name!r} has no native dialect")
        if "listen" not in fields["native"]:
            source.fail((*key, "native"), "the key listen is missing")
        try:
            native = endpoint(fields["native"]["listen"])
        except ConfigurationError as error:
            source.fail((*key, "native", "listen"), str(error))
    return ModelConfig(
        name=name,
        family=fields["family"],
        path=path,
        max_requests=fields.get("max_requests", family.default_max_requests),
        max_cost=fields.get("max_cost", family.default_max_cost),
        # By default never so short that a unit could be ended for which somebody still waits.
        execution_limit_s=fields.get("execution_limit", max(family.execution_limit_s, 2 * timeout_s)) or None,
        load_limit_s=fields.get("load_limit", 0) or None,
        resident=fields.get("resident", True),
        replicas=fields.get("replicas", 1),
        pin=fields.get("pin", False),
        keep_alive_s=fields.get("keep_alive", 0) or None,
        options=options,
        native=native,
        remote=remote,
        ray=fields.get("ray"),
    )


def _hosts(fields: Mapping[str, Any], source: TomlDocument) -> HostsConfig:
    key = ("hosts",)
    source.only(fields, schema.HOSTS, key)
    for needed in ("listen", "key"):
        if needed not in fields:
            source.fail(key, f"the key {needed} is missing: it is {schema.HOSTS[needed][1]}")
    try:
        listen = endpoint(fields["listen"])
    except ConfigurationError as error:
        source.fail((*key, "listen"), str(error))
    lease = fields.get("lease", DEFAULT_LEASE_S)
    if not schema.LEASE_S[0] <= lease <= schema.LEASE_S[1]:
        source.fail((*key, "lease"), f"{lease} is not {schema.HOSTS['lease'][1]}")
    allow = Path(fields["allow"]) if "allow" in fields else None
    return HostsConfig(listen, Path(fields["key"]), allow, float(lease))


def successor(model: ModelConfig, settings: Mapping[str, Any], timeout_s: float) -> ModelConfig:
    """What `model` becomes by a swap: `settings` has its `family`, and may have `path` and `options`;
    `timeout_s` is the request timeout of the server.

    Bounds stay, and options that are not given, as long as the family does; another family begins with its own.
    Raises `ConfigurationError` for everything that `framehost check --config` would refuse.
    """
    source = TomlDocument("swap", None, {})
    source.only(settings, schema.SWAP, ())
    if "family" not in settings:
        source.fail(("family",), "the family is missing")
    if model.remote:
        source.fail((), f"the hosts of {model.name!r} are started elsewhere: start others there, and end the old ones")
    same = settings["family"] == model.family
    fields = {key: settings[key] for key in ("family", "path", "options") if settings.get(key) is not None}
    if same:
        fields.setdefault("options", model.options)
    made = _model(model.name, fields, timeout_s, source)
    if model.native is not None and not families.find(made.family).native:
        source.fail(("family",), f"{model.name!r} has a native listener, and {made.family!r} has no native dialect")
    if same:
        return dataclasses.replace(model, path=made.path, options=made.options)
    return dataclasses.replace(
        made,
        native=model.native,
        load_limit_s=model.load_limit_s,
        resident=model.resident,
        replicas=model.replicas,
        pin=model.pin,
        keep_alive_s=model.keep_alive_s,
    )


def _check_halves(family: families.Family, key: Key, source: TomlDocument) -> None:
    """Refuse a family whose front half cannot be imported, or whose other halves are not there. A stranger's module can
    raise anything."""
    part = "processor"
    try:
        processor = families.resolve(family.processor)
        if not (isinstance(processor, type) and issubclass(processor, Processor)):
            raise TypeError("it is not a Processor")
        if family.options != processor.OPTIONS:
            raise TypeError("its OPTIONS are not those of the Family")
        for part in ("executor", "payload", *(["native"] if family.native else [])):
            families.locate(getattr(family, part))
    except Exception as error:
        reference = getattr(family, part)
        why = f"{type(error).__name__}: {error}"
        source.fail(key, f"the {part} {reference!r} of the family {family.name!r} cannot be loaded: {why}")
