"""Where the sockets and files of one launch are. Pure naming: nothing here touches the file system.

    <base>/framehost-<uid>/<port>/          0700, one per port
        lock                                held (flock) by the running supervisor
        supervisor.json                     {"pid", "management", "url"}: how `framehost status` finds it
        <launch>/                           0700, random per launch
            m                               management socket
            <incarnation>/                  0700, one per host incarnation
                c  d                        its control and data sockets

Model names never become part of a path, and every socket path is checked against the kernel's limit
before anything is started.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from protocol import limits
from protocol.errors import LimitExceeded

_TCP = re.compile(r"tcp://(?:\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.-]+)?\]|[0-9A-Za-z_.-]+):([0-9]{1,5})")

LOCK_NAME = "lock"
INFO_NAME = "supervisor.json"


def runtime_directory(port: int, *, base: str | None = None, uid: int | None = None) -> Path:
    """The directory of the server on `port`. `base` defaults to XDG_RUNTIME_DIR, else /tmp."""
    root = base or os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - 0700, owned by us, checked when made
    return Path(root) / f"framehost-{os.getuid() if uid is None else uid}" / str(port)


def management(launch_directory: Path) -> str:
    """The management lane: the supervisor binds, the front and the command line dial."""
    return ipc(launch_directory / "m")


def control(directory: str | Path) -> str:
    """A host's control lane; the host binds at its start."""
    return ipc(Path(directory) / "c")


def data(directory: str | Path) -> str:
    """A host's data lane; the host binds after its warm-up."""
    return ipc(Path(directory) / "d")


def ipc(path: Path) -> str:
    """The ZeroMQ address of a socket file; `LimitExceeded` names the path and the limit when it is too long."""
    length = len(os.fsencode(path))
    if length > limits.MAX_IPC_PATH_BYTES:
        raise LimitExceeded(
            f"the socket path {path} has {length} bytes, the system allows {limits.MAX_IPC_PATH_BYTES}: "
            "set XDG_RUNTIME_DIR to a shorter directory"
        )
    return f"ipc://{path}"


def usable(address: str) -> bool:
    """Whether `address`, which another process has told us, can be dialled at all: `ipc://` and an absolute path within
    the system's limit, or `tcp://`, a host and a port."""
    if address.startswith("ipc:///"):
        return "\0" not in address and len(os.fsencode(address.removeprefix("ipc://"))) <= limits.MAX_IPC_PATH_BYTES
    tcp = _TCP.fullmatch(address)
    return tcp is not None and 1 <= int(tcp[1]) <= 65_535
