"""The keys of each table of the configuration, what each may be, and in words what is expected there."""

from __future__ import annotations

from typing import Final

from frontend.configuration.toml_file import Schema
from protocol.limits import MAX_BUDGET_MS

MAX_SECONDS: Final = MAX_BUDGET_MS // 1000
"""A day: the longest budget that the wire carries."""

MAX_AMOUNT: Final = 2**40
"""Bytes, requests, costs: far above any machine, and far below the largest integer of the wire."""

LEASE_S: Final = (1.0, 600.0)
"""Shorter ones end hosts over a hiccup of the network, longer ones keep requests waiting for nobody."""

MAX_REPLICAS: Final = 64
"""Hosts of one model: more than any machine has devices."""

MAX_RESTARTS: Final = 1000
"""In a row, the later ones half a minute apart: a night of trying."""

SERVER: Final[Schema] = {
    "host": ((str,), "an IP address"),
    "port": ((int,), "a port number 0..65535"),
    "default": ((str,), "the name of a model"),
    "request_timeout": ((int, float), f"seconds above 0 and at most {MAX_SECONDS}"),
    "max_body": ((int,), f"bytes above 0 and at most {MAX_AMOUNT}"),
    "drain": ((int, float), f"seconds above 0 and at most {MAX_SECONDS}"),
    "access_log": ((bool,), "true or false"),
    "tracing": ((bool,), "true or false"),
    "keys": ((str,), "the path of a key file"),
    "cors": ((list,), "a list of origins, as https://app.example"),
    "allowed_hosts": ((list,), "a list of host names, as framehost.example"),
    "restarts": ((int,), f"a number of restarts, 0 or more and at most {MAX_RESTARTS}"),
    "max_resident": ((int,), f"a number of models, 1 or more and at most {MAX_AMOUNT}"),
    "max_resident_bytes": ((int,), f"bytes above 0 and at most {MAX_AMOUNT}"),
    "turn": ((int, float), f"seconds, 0 (never) to {MAX_SECONDS}"),
    "front_limit": ((int, float), f"seconds, 0 (no limit) to {MAX_SECONDS}"),
    "health": ((str,), "ADDRESS:PORT"),
    "limits": ((dict,), "a table"),
    "admin": ((str,), "ADDRESS:PORT"),
}
MODEL: Final[Schema] = {
    "family": ((str,), "the name of a family"),
    "path": ((str,), "a path"),
    "max_requests": ((int,), "a number of requests above 0"),
    "max_cost": ((int,), "a cost above 0"),
    "resident": ((bool,), "true or false"),
    "replicas": ((int,), f"a number of hosts, 1 or more and at most {MAX_REPLICAS}"),
    "pin": ((bool,), "true or false"),
    "keep_alive": ((int, float), f"seconds, 0 (for ever) to {MAX_SECONDS}"),
    "execution_limit": ((int, float), f"seconds, 0 (no limit) to {MAX_SECONDS}"),
    "load_limit": ((int, float), f"seconds, 0 (no limit) to {MAX_SECONDS}"),
    "options": ((dict,), "a table"),
    "native": ((dict,), "a table"),
    "remote": ((bool,), "true or false"),
    "ray": ((dict,), "a table"),
}
RAY: Final[Schema] = {
    "address": ((str,), "the address of a Ray cluster, auto or local"),
    "num_cpus": ((int, float), "a number of CPUs"),
    "num_gpus": ((int, float), "a number of GPUs"),
    "memory": ((int,), "bytes"),
    "resources": ((dict,), "a table of your cluster's own resources"),
}
HOSTS: Final[Schema] = {
    "listen": ((str,), "ADDRESS:PORT"),
    "key": ((str,), "the path of this server's NAME.key_secret"),
    "allow": ((str,), "the path of a folder with the NAME.key of every host that may dial in"),
    "lease": ((int, float), f"seconds, {LEASE_S[0]:g} to {LEASE_S[1]:g}"),
}
SWAP: Final[Schema] = {
    "family": ((str,), "a family's name"),
    "path": ((str, type(None)), "a path"),
    "options": ((dict,), "a table"),
    "mode": ((str,), "start-first or stop-first"),
}

NATIVE: Final[Schema] = {"listen": ((str,), "ADDRESS:PORT")}
