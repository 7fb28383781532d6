"""The runtime directory of one server: made private, locked against a second start, cleaned of the last one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protocol import addresses

INCARNATION_DIRECTORY_CHARS = 18
"""Longest name of an incarnation: a counter, a dash and eight hexadecimal digits."""

LOCK_TRIES = 100
"""How often a lock is taken anew because it went with the server that had it. Once is rare."""

ANOTHER_PORT = "choose another port with --port (make serve PORT=...)"
"""What to do about a port that cannot be had."""


class DirectoryError(Exception):
    """The runtime directory cannot be used; the text says why and which path."""


class AlreadyRunning(DirectoryError):
    """Another supervisor holds the lock of this port."""


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Whatever the system has against using `path` is a `DirectoryError`."""
    try:
        yield
    except OSError as error:
        where = path if error.filename is None else error.filename
        raise DirectoryError(f"cannot use the runtime directory {path}: {where}: {error.strerror}") from error


def socket_is_there(address: str) -> bool:
    """Whether a newcomer finds the socket file of a ZeroMQ address. Sockets of other kinds have none."""
    return not address.startswith("ipc://") or Path(address.removeprefix("ipc://")).exists()


class RuntimeDirectory:
    """Owned by one supervisor for its life. `launch` is this launch's own, fresh directory.

    Raises `AlreadyRunning` when the port's lock is held, `DirectoryError` when the directory is not ours
    alone or holds something we did not make, `protocol.LimitExceeded` when its socket paths are too long.
    """

    def __init__(self, port: int, *, base: str | None = None) -> None:
        self.path = addresses.runtime_directory(port, base=base)
        self.launch = self.path / secrets.token_hex(4)
        # The longest path of this launch, checked before anything exists.
        addresses.control(self.launch / ("0" * INCARNATION_DIRECTORY_CHARS))
        root = self.path.parent.parent
        if not root.is_dir():
            raise DirectoryError(f"{root} is no directory; make it, or set XDG_RUNTIME_DIR to one that is there")
        for _ in range(LOCK_TRIES):
            try:
                self._lock = self._take_lock()
                break
            except DirectoryError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                # The server that had it has just ended, and taken it away.
        else:
            raise DirectoryError(f"the runtime directory {self.path} is removed again and again")
        try:
            with _usable(self.path):
                self._clean()
                self.launch.mkdir(mode=0o700)
        except BaseException:
            os.close(self._lock)
            raise
        self._published: dict[str, Any] | None = None

    def _take_lock(self) -> int:
        """The descriptor of the locked lock file. A `DirectoryError` whose cause is a `FileNotFoundError` says that the
        folder or the file went meanwhile: what we hold then, if anything, keeps no server out."""
        self._make_private(self.path.parent)
        self._make_private(self.path)
        path = self.path / addresses.LOCK_NAME
        with _usable(path):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _usable(path):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise AlreadyRunning(
                        f"a framehost is already running on port {self.path.name} (lock {path}); {ANOTHER_PORT}"
                    ) from None
                if not self._is_there(lock):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _is_there(self, lock: int) -> bool:
        """Whether a process that opens the lock file's path now gets the file that we have open."""
        try:
            found = (self.path / addresses.LOCK_NAME).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(lock))

    @staticmethod
    def _make_private(path: Path) -> None:
        with _usable(path):
            path.mkdir(mode=0o700, exist_ok=True)
            facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise DirectoryError(f"{path} must be a directory of this user alone (mode 0700); remove or fix it")

    def _clean(self) -> None:
        """Remove what a dead predecessor left: directories with sockets. Anything else is not ours to remove."""
        for entry in self.path.iterdir():
            if entry.name in (addresses.LOCK_NAME, addresses.INFO_NAME):
                continue
            for found in [entry, *entry.rglob("*")] if entry.is_dir() and not entry.is_symlink() else [entry]:
                mode = found.lstat().st_mode
                if not (stat.S_ISSOCK(mode) or stat.S_ISDIR(mode)) or found.lstat().st_uid != os.getuid():
                    raise DirectoryError(f"{found} is not a socket that framehost left; move it away")
            shutil.rmtree(entry)

    def incarnation(self, name: str) -> Path:
        """A fresh 0700 directory for one host incarnation."""
        self._make_launch()
        path = self.launch / name
        path.mkdir(mode=0o700)
        return path

    def restore(self) -> bool:
        """Make anew what was removed: folders, the lock, what was published; whether anything was missing.

        Cleaners of temporary folders, and the end of a user's session, take ours away under a running server. Raises
        `DirectoryError` when it cannot be made; `AlreadyRunning` when another server, on this port of another address,
        has taken the lock meanwhile: then only the folder of this launch is ours, and is there.
        """
        info = self.path / addresses.INFO_NAME
        with _usable(self.path):
            whole = self.launch.is_dir() and self._is_there(self._lock)
            if whole and (self._published is None or info.exists()):
                return False
            self._make_launch()
            if not self._is_there(self._lock):
                lock = self._take_lock()
                os.close(self._lock)
                self._lock = lock
            if self._published is not None:
                self._write_info(self._published)
        return True

    def _make_launch(self) -> None:
        """The folder of this launch, and what is above it, where it is missing."""
        with _usable(self.path):
            # As its owner makes it: what is ours begins below.
            self.path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_private(self.path.parent)
        self._make_private(self.path)
        self._make_private(self.launch)

    def publish(self, *, management: str, url: str) -> None:
        """Say where this supervisor can be asked; replaced in one step, so a reader never sees half of it.

        Raises `DirectoryError`.
        """
        self._published = {"pid": os.getpid(), "management": management, "url": url}
        with _usable(self.path):
            self._write_info(self._published)

    def _write_info(self, info: dict[str, Any]) -> None:
        temporary = self.launch / "info"
        temporary.write_text(json.dumps(info))
        temporary.replace(self.path / addresses.INFO_NAME)

    def close(self) -> None:
        """Remove what is ours, the lock file last, and release the lock. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.launch, ignore_errors=True)
            with contextlib.suppress(OSError):
                # If a cleaner has taken ours away, another server may have made its own.
                if self._is_there(self._lock):
                    (self.path / addresses.INFO_NAME).unlink(missing_ok=True)
                    (self.path / addresses.LOCK_NAME).unlink()
                    self.path.rmdir()  # not empty when the next server has begun in it
            os.close(self._lock)
            self._lock = -1
