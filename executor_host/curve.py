"""Key files of CURVE, ZeroMQ's encryption: made, read, and asked for who may connect.

A pair is made by `framehost curve NAME`: NAME.key may be given to everyone, NAME.key_secret stays where it is used,
readable by its owner alone. The format is ZeroMQ's own certificate format, so other tools read it, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import zmq.auth

from executor_host.errors import ConfigurationError
from protocol.curve import KeyPair


def create(directory: Path, name: str) -> tuple[Path, Path]:
    """Make a new pair; returns the public file and the secret one. Raises `ConfigurationError` instead of replacing."""
    public, secret = directory / f"{name}.key", directory / f"{name}.key_secret"
    for path in (public, secret):
        if path.exists():
            raise ConfigurationError(f"{path} is there already; a new key under an old name locks out its holders")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = os.umask(0o077)
        try:
            zmq.auth.create_certificates(directory, name)
        finally:
            os.umask(before)
        public.chmod(0o644)
    except OSError as error:
        raise ConfigurationError(f"{directory}: keys cannot be written: {error.strerror}") from error
    return public, secret


def read_pair(path: Path) -> KeyPair:
    """Both keys of a secret file. Raises `ConfigurationError`; also when others could read the file."""
    public, secret = _read(path)
    if secret is None:
        raise ConfigurationError(f"{path} holds no secret key; the file is called NAME.key_secret")
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(f"{path} can be read by others: chmod 600 {path}")
    return KeyPair(public, secret)


def read_public(path: Path) -> bytes:
    """The public key of a file. Raises `ConfigurationError`; also for a secret file, which has no business there."""
    public, secret = _read(path)
    if secret is not None:
        raise ConfigurationError(
            f"{path} holds a secret key, which stays where it was made; the public file is called NAME.key"
        )
    return public


def read_allowed(folder: Path) -> frozenset[bytes]:
    """The public keys of all NAME.key files of a folder, at least one. Raises `ConfigurationError`."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".key")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise ConfigurationError(f"{folder} holds no NAME.key file, so no host could dial in")
    return frozenset(read_public(path) for path in files)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a key file: {error}") from error
    for key in (public, secret):
        if key is not None and len(key) != 40:
            raise ConfigurationError(f"{path} is not a key file: a key has 40 characters, not {len(key)}")
    return public, secret


class Allowed:
    """What an authenticator of pyzmq asks: whether the holder of a public key may connect."""

    def __init__(self, keys: Collection[bytes]) -> None:
        self.keys = set(keys)

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the library with the key in Z85."""
        return key in self.keys
