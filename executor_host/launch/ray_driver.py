"""The driver of one host that Ray places: owns the actor, and ends with it.

    python -m executor_host.launch.ray_driver DESCRIPTOR

The descriptor holds a JSON object with the host's keys and where it is to dial in: neither belongs into an argument
list. Needs the extra `ray`. On the machines of a cluster framehost must be installed, in the same version.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from executor_host.launch.local import ROOT
from protocol.curve import KeyPair
from protocol.exits import HostExit

CONNECT_TIMEOUT_S = 60.0


def be_host(order: dict[str, Any]) -> int:
    """In the actor, on its main thread: a remote host until it ends. Returns its `HostExit`."""
    from executor_host import remote

    return int(
        remote.serve(
            order["connect"],
            KeyPair(order["public"].encode(), order["secret"].encode()),
            order["server"].encode(),
            model=order["model"],
            family_name=order["family"],
            timeout_s=CONNECT_TIMEOUT_S,
        )
    )


def main(descriptor: int) -> int:
    """Place the actor, wait for its end; returns its `HostExit`."""
    with os.fdopen(descriptor) as file:
        order = json.load(file)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        print("cannot start: Ray is not installed here: pip install 'framehost[ray]'", file=sys.stderr)
        return HostExit.CONFIGURATION
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(HostExit.CLEAN))
    settings = dict(order["ray"])
    address = settings.pop("address", "auto")
    # A checkout that is not installed is found where the driver found it.
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    # Without a cluster ("local"), Ray runs inside this driver and ends with it.
    cluster = {} if address == "local" else {"address": address}
    ray.init(
        **cluster,
        include_dashboard=False if address == "local" else None,
        log_to_driver=True,
        namespace="framehost",
        runtime_env={"env_vars": {**order["variables"], "PYTHONPATH": path}},
    )
    # At most once: what Ray would do again has been answered by the server's own rules already.
    actor = ray.remote(max_restarts=0, max_task_retries=0)(_Actor).options(**settings).remote()
    try:
        return int(ray.get(actor.be_host.remote(order)))
    except ray.exceptions.RayActorError as error:
        print(f"the Ray actor died: {error}", file=sys.stderr)
        return HostExit.LOST
    finally:
        ray.kill(actor)
        ray.shutdown()


class _Actor:
    """What Ray makes an actor of. Not asynchronous and without threads: its methods run on the main thread."""

    def be_host(self, order: dict[str, Any]) -> int:
        return be_host(order)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
