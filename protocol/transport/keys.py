"""Key files of CURVE, ZeroMQ's encryption: made, read, and asked for who may connect.

A pair is made by `framehost curve NAME`: NAME.key may be given to everyone, NAME.key_secret stays where it is used,
readable by its owner alone. The format is ZeroMQ's own certificate format, so other tools read it, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

import zmq
import zmq.auth

from protocol.curve import KeyPair
from protocol.limits import CURVE_KEY_CHARS

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_NOT_OF_ROOT: Final = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO
"""What a file that root gave to our group must not allow: a pod's secret is root's, and readable by the group that the
pod was given (`fsGroup`), which no other user is in."""


class KeyFileError(Exception):
    """A key file that cannot be used; the text names the file and says why."""


def create(directory: Path, name: str) -> tuple[Path, Path]:
    """Make a new pair; returns the public file and the secret one. Raises `KeyFileError` instead of replacing, and
    for a name that is none of a file in `directory`."""
    if not name or "/" in name or "\0" in name:
        raise KeyFileError(f"{name!r} is no name: one without a slash, of a file in {directory}, is expected")
    public, secret = directory / f"{name}.key", directory / f"{name}.key_secret"
    for path in (public, secret):
        if path.exists():
            raise KeyFileError(f"{path} is there already; a new key under an old name locks out its holders")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = os.umask(0o077)
        try:
            zmq.auth.create_certificates(directory, name)
        finally:
            os.umask(before)
        public.chmod(0o644)
    except OSError as error:
        raise KeyFileError(f"{directory}: keys cannot be written: {error.strerror}") from error
    return public, secret


def pair() -> KeyPair:
    """A new pair that is in no file."""
    return KeyPair(*zmq.curve_keypair())


def read_pair(path: Path) -> KeyPair:
    """Both keys of a secret file. Raises `KeyFileError`; also when others could read the file."""
    public, secret = _read(path)
    if secret is None:
        raise KeyFileError(f"{path} holds no secret key; the file is called NAME.key_secret")
    problem = exposed(path.stat(), os.geteuid())
    if problem:
        raise KeyFileError(f"{path} {problem}")
    return KeyPair(public, secret)


def exposed(status: os.stat_result, user: int) -> str:
    """Who but us could read or change a secret file with this `status`, for a message; "" when no other user could."""
    if status.st_uid == 0 and user != 0:
        if status.st_mode & _NOT_OF_ROOT:
            return (
                f"is root's, given to us by its group with mode {stat.S_IMODE(status.st_mode):04o}: "
                "the group may read it and no other user anything, as mode 0440 says"
            )
        return ""
    if status.st_mode & _OTHERS:
        return f"can be read by others (mode {stat.S_IMODE(status.st_mode):04o}): chmod 600"
    return ""


def read_public(path: Path) -> bytes:
    """The public key of a file. Raises `KeyFileError`; also for a secret file, which has no business there."""
    public, secret = _read(path)
    if secret is not None:
        raise KeyFileError(
            f"{path} holds a secret key, which stays where it was made; the public file is called NAME.key"
        )
    return public


def read_allowed(folder: Path) -> frozenset[bytes]:
    """The public keys of all NAME.key files of a folder, at least one. Raises `KeyFileError`."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".key")
    except OSError as error:
        raise KeyFileError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise KeyFileError(f"{folder} holds no NAME.key file, so no host could dial in")
    return frozenset(read_public(path) for path in files)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        path.open("rb").close()
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path} is not a key file: {error}") from error
    for key in (public, secret):
        if key is not None and len(key) != CURVE_KEY_CHARS:
            raise KeyFileError(f"{path} is not a key file: a key has {CURVE_KEY_CHARS} characters, not {len(key)}")
    return public, secret


class Allowed:
    """What an authenticator of pyzmq asks: whether the holder of a public key may connect."""

    def __init__(self, keys: Collection[bytes]) -> None:
        self.keys = set(keys)

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the library with the key in Z85."""
        return key in self.keys
