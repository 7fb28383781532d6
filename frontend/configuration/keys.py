"""API keys: who may ask, how much of it at once, and how the file they are in may change under a running server.

    [keys.alice]
    key = "..."             # or sha256 = "...", the hexadecimal digest of it, so that the file holds no secret
    max_requests = 8        # optional: open requests of this key
    max_cost = 100000       # optional: their total cost (tokens, or bytes for text families)
    admin = false           # whether it may also use the admin routes

A key is compared by its digest under a secret of this process: how long a look-up takes says nothing about any
key. When the file turns out wrong, the keys read before stay valid and the reason is logged once; a server that
has none yet (it was just started again) lets no client in. Without a file and without keys in the environment there
is no access control at all, and that never changes while a server runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from frontend.configuration import decode
from frontend.configuration.toml_file import ConfigurationError, TomlDocument
from frontend.errors import Unauthenticated
from frontend.runtime.admission import AdmissionStatistics, BoundedAdmission

ENVIRONMENT: Final = "FRAMEHOST_API_KEYS"
"""The variable with keys, separated by commas; they have no bounds and no admin rights."""

MIN_KEY_CHARS: Final = 16
"""A shorter key could be guessed by asking. 16 characters of a random key are about 95 bits."""

MAX_KEY_CHARS: Final = 1024
"""Far below what one header line may hold."""

LOOK_AGAIN_S: Final = 0.5
"""How often a watched key file is looked at. What two looks have found alike is in force: a file that is caught while
it is being written may be valid, and mean something else than it will."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""Of a key file, which is read at every look: some 10,000 keys."""

MAX_AMOUNT: Final = 2**40
"""Of requests and costs: far above any machine."""

log = logging.getLogger("framehost.keys")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """A key file. Each key is read by itself, so that what is wrong with it is told with its name."""

    keys: dict[str, Any] = {}


class _Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[keys.NAME]`."""

    key: str | None = None
    sha256: str | None = None
    max_requests: (
        Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"a number of requests, 1 to {MAX_AMOUNT}")] | None
    ) = None
    max_cost: Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"a cost, 1 to {MAX_AMOUNT}")] | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as configured. `sha256` is the digest of the key itself, 32 bytes."""

    name: str
    sha256: bytes
    max_requests: int | None = None
    max_cost: int | None = None
    admin: bool = False


class Account:
    """What one key is using now. Its bounds outlive a reload of the file: what is in use stays counted."""

    __slots__ = ("admin", "cost", "name", "requests", "shares")

    def __init__(self, key: ApiKey) -> None:
        self.name: Final = key.name
        self.admin = key.admin
        self.shares = False
        """Whether there are others, to whom it has to leave something of every budget."""
        self.requests: BoundedAdmission | None = None
        self.cost: BoundedAdmission | None = None
        self.update(key)

    def update(self, key: ApiKey) -> None:
        """Take over the rights and bounds of `key`."""
        self.admin = key.admin
        if key.max_requests is None:
            self.requests = None
        elif self.requests is None:
            self.requests = BoundedAdmission(f"{self.name} key requests", requests=key.max_requests)
        else:
            self.requests.resize(requests=key.max_requests)
        if key.max_cost is None:
            self.cost = None
        elif self.cost is None:
            self.cost = BoundedAdmission(f"{self.name} key cost", requests=MAX_AMOUNT, cost=key.max_cost)
        else:
            self.cost.resize(cost=key.max_cost)

    def statistics(self) -> tuple[AdmissionStatistics, ...]:
        """Counts of its bounds, for status and tests."""
        return tuple(layer.statistics() for layer in (self.requests, self.cost) if layer is not None)

    def __repr__(self) -> str:
        return f"<Account {self.name!r} admin={self.admin} requests={self.requests!r} cost={self.cost!r}>"


class KeyRing:
    """The valid keys. `find` answers for a presented one; `look` and `watch` notice a change of the file.

    Belongs to the event loop's thread.
    """

    def __init__(self, file: Path | None, others: Sequence[ApiKey]) -> None:
        """`others`: keys that come from elsewhere than the file, and stay."""
        self._file = file
        self._others = tuple(others)
        self._secret = secrets.token_bytes(32)
        self._accounts: dict[bytes, Account] = {}
        self._seen = b""
        """What the file was when it was read last: the digest of its content, or of what was wrong with reading it."""
        self._changed = b""
        """The same of the look before this one, if it was something else than what was read last."""
        self.problem = ""
        """Why the file as it is now is not in force; "" when it is."""
        self._take(self._others)
        self.look()

    def find(self, presented: str) -> Account:
        """The account of a key as a client sent it. Raises `Unauthenticated` for one that is not valid."""
        account = self._accounts.get(self._inner(_digest(presented)))
        if account is None:
            raise Unauthenticated("the API key is not valid")
        return account

    def look(self) -> None:
        """Act on the file as it is now, if it is not the one that was read last. The caller knows that it is whole."""
        if (news := self._news(sure=True)) is not None:
            self._act_on(news)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look every `LOOK_AGAIN_S` for as long as the process lives. Called once; afterwards no other code calls
        `look`.

        A thread of its own reads: a file on a storage that hangs must not hold up the loop, nor the end of the process.
        """
        if self._file is not None:
            threading.Thread(target=self._watch, args=(loop,), name="keys", daemon=True).start()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            time.sleep(LOOK_AGAIN_S)
            try:
                news = self._news()
            except Exception as error:  # a bug of ours must not end the watching: keys that were taken back would stay
                news = ConfigurationError(f"{self._file}: cannot be looked at: {error!r}")
            try:
                if news is not None:
                    loop.call_soon_threadsafe(self._act_on, news)
            except RuntimeError:
                return  # the loop is closed

    def _news(self, *, sure: bool = False) -> tuple[ApiKey, ...] | ConfigurationError | None:
        """All keys by the file as it is now, or what is wrong with it; None when it is the one that was read last, or,
        unless `sure`, another one than at the look before."""
        if self._file is None:
            return None
        content: bytes | ConfigurationError
        try:
            content = _content(self._file)
        except ConfigurationError as error:
            content = error
        # Its size and its time say nothing: a file may be rewritten in place with both as they were.
        seen = hashlib.sha256(content if isinstance(content, bytes) else str(content).encode()).digest()
        before, self._changed = self._changed, seen
        if seen == self._seen or not (sure or seen == before):
            return None
        self._seen = seen
        try:
            if isinstance(content, ConfigurationError):
                raise content
            keys = (*self._others, *_parse(self._file, content))
            distinct(keys)
        except ConfigurationError as error:
            return error
        return keys

    def _act_on(self, news: tuple[ApiKey, ...] | ConfigurationError) -> None:
        if isinstance(news, ConfigurationError):
            if self.problem == str(news):
                return
            self.problem = str(news)
            log.error("%s; the keys read before stay valid (%d)", news, len(self._accounts))
            return
        self.problem = ""
        self._take(news)
        log.info("%d API keys are valid", len(news))

    def _take(self, keys: Iterable[ApiKey]) -> None:
        before = {account.name: account for account in self._accounts.values()}
        accounts = {}
        for key in keys:
            account = before.get(key.name)
            if account is None:
                account = Account(key)
            else:
                account.update(key)
            accounts[self._inner(key.sha256)] = account
        self._accounts = accounts
        several = len({account.name for account in accounts.values()}) > 1
        for account in accounts.values():
            account.shares = several

    def _inner(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._secret, digest_size=32).digest()

    def statistics(self) -> tuple[AdmissionStatistics, ...]:
        """The bounds of all accounts, for metrics."""
        return tuple(layer for account in self._accounts.values() for layer in account.statistics())

    def report(self) -> dict[str, Any]:
        """For `framehost status`: the bounds of each account by name, and what is wrong with the file."""
        return {
            "problem": self.problem,
            "accounts": {
                account.name: [asdict(layer) for layer in account.statistics()] for account in self._accounts.values()
            },
        }

    def __repr__(self) -> str:
        return f"<KeyRing {len(self._accounts)} keys{' file not in force' if self.problem else ''}>"


def read(path: Path) -> tuple[ApiKey, ...]:
    """The keys in a file, at least one. Raises `ConfigurationError`, whose text never holds a key."""
    return _parse(path, _content(path))


def _content(path: Path) -> bytes:
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        regular = True  # why it cannot be read is said below
    if not regular:
        raise ConfigurationError(f"{path}: not a file; what cannot be read again cannot be noticed to change")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path that no file can have
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path}: a key file has at most {MAX_FILE_BYTES} bytes")
    return content


def _parse(path: Path, content: bytes) -> tuple[ApiKey, ...]:
    source = TomlDocument.parse(path, content)
    tables = decode.read(_File, source.content, (), source).keys
    keys = tuple(_key(name, fields, source) for name, fields in tables.items())
    if not keys:
        source.fail(("keys",), "there is no key; add a table [keys.NAME] with key or sha256")
    return keys


def _key(name: str, fields: object, source: TomlDocument) -> ApiKey:
    where = ("keys", name)
    if not isinstance(fields, dict):
        source.fail(where, "a table is expected: [keys.NAME]")
    if not 1 <= len(name) <= 64 or not name.isprintable():
        source.fail(where, "the name of a key has 1..64 printable characters")
    if len({"key", "sha256"} & fields.keys()) != 1:
        source.fail(where, "either key or sha256 is needed")
    for secret in ("key", "sha256"):
        if not isinstance(fields.get(secret, ""), str):
            source.fail((*where, secret), "not a string")
    read = decode.read(_Key, fields, where, source)
    if read.key is not None:
        if problem := _unusable(read.key):
            source.fail((*where, "key"), problem)
        digest = _digest(read.key)
    else:
        if re.fullmatch("[0-9a-fA-F]{64}", str(read.sha256)) is None:
            source.fail((*where, "sha256"), "not 64 hexadecimal digits")
        digest = bytes.fromhex(str(read.sha256))
    return ApiKey(name, digest, read.max_requests, read.max_cost, read.admin)


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[ApiKey, ...]:
    """The keys in `FRAMEHOST_API_KEYS`, none when it is not set. Raises `ConfigurationError`."""
    given = [part.strip() for part in environment.get(ENVIRONMENT, "").split(",")]
    keys = []
    for number, key in enumerate((part for part in given if part), 1):
        if problem := _unusable(key):
            raise ConfigurationError(f"{ENVIRONMENT}: key {number}: {problem}")
        keys.append(ApiKey(name=f"environment-{number}", sha256=_digest(key)))
    if ENVIRONMENT in environment and not keys:
        raise ConfigurationError(f"{ENVIRONMENT} is set and holds no key; unset it to serve without keys")
    return tuple(keys)


def distinct(keys: Sequence[ApiKey]) -> None:
    """Raises `ConfigurationError` when a name or a key is there twice."""
    names, digests = set(), set()
    for key in keys:
        if key.name in names:
            raise ConfigurationError(f"keys: there are two called {key.name!r}")
        if key.sha256 in digests:
            raise ConfigurationError(f"keys: the key of {key.name!r} is another one's, too")
        names.add(key.name)
        digests.add(key.sha256)


def _unusable(key: str) -> str:
    if not MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
        return f"a key has {MIN_KEY_CHARS} to {MAX_KEY_CHARS} characters; this one has {len(key)}"
    if not key.isascii() or not key.isprintable() or any(letter in key for letter in " ,"):
        return "a key has only printable ASCII characters, no blanks and no commas"
    return ""


def _digest(key: str) -> bytes:
    # A header of a client may hold any bytes; the HTTP library shows those that are not UTF-8 as surrogates.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
