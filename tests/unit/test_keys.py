"""API keys: what a key file may say, and how a running server takes a change of it."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from pathlib import Path

import pytest

from frontend.configuration import keys
from frontend.configuration.keys import Account, ApiKey, KeyRing
from frontend.configuration.toml_file import ConfigurationError
from frontend.errors import Unauthenticated
from frontend.runtime.admission import Permit, Refusal

ALICE = "alice-0123456789"
BOB = "bob-0123456789-b"


def write(path: Path, text: str) -> Path:
    """Replace the file as an editor does: the new one has another inode."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    return fresh.replace(path)


def ring(path: Path) -> KeyRing:
    return KeyRing(path, ())


def denied(ring: KeyRing, key: str) -> bool:
    try:
        ring.find(key)
    except Unauthenticated:
        return True
    return False


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.toml", f'[keys.alice]\nkey = "{ALICE}"\nmax_requests = 1\n')


def test_a_key_and_its_digest_mean_the_same(tmp_path: Path) -> None:
    """`sha256` is the digest of the key that a client sends, in either case of letters."""
    digest = hashlib.sha256(ALICE.encode()).hexdigest().upper()
    found = ring(write(tmp_path / "k", f'[keys.alice]\nsha256 = "{digest}"\nadmin = true\n')).find(ALICE)
    assert (found.name, found.admin) == ("alice", True)


@pytest.mark.parametrize("presented", ["", ALICE[:-1], ALICE + "x", ALICE.upper(), "\udcff" * 16, "é" * 16])
def test_any_other_key_is_refused(file: Path, presented: str) -> None:
    """A key that is not exactly one of the file's is refused, whatever bytes a header held."""
    assert denied(ring(file), presented)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "there is no key"),
        ("[keys]\n", "there is no key"),
        ("[key.alice]\n", "line 1, key key"),
        ("[keys.a]\nadmin = true\n", "line 1, key keys.a: either key or sha256"),
        (f'[keys.a]\nkey = "{ALICE}"\nsha256 = "{"0" * 64}"\n', "either key or sha256"),
        ('[keys.a]\nkey = "short"\n', "line 2, key keys.a.key: a key has 16 to 1024 characters; this one has 5"),
        (f'[keys.a]\nkey = "{ALICE} x"\n', "no blanks"),
        ("[keys.a]\nkey = 1234567890123456\n", "line 2, key keys.a.key: not a string"),
        ('[keys.a]\nsha256 = "ABC"\n', "64 hexadecimal digits"),
        (f'[keys.a]\nkey = "{ALICE}"\nmax_requests = 0\n', "line 3, key keys.a.max_requests"),
        (f'[keys.a]\nkey = "{ALICE}"\nmax_cost = true\n', "line 3, key keys.a.max_cost"),
        (f'[keys.a]\nkey = "{ALICE}"\nbudget = 1\n', "unknown key"),
        (f'[keys."{"n" * 65}"]\nkey = "{ALICE}"\n', "1..64"),
        ("keys = 1\n", "not a table"),
        ("[keys]\na = 1\n", "a table is expected"),
        ("[keys.a\n", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(tmp_path: Path, text: str, named: str) -> None:
    """Every error names file and key, and none repeats a key of the file."""
    path = write(tmp_path / "keys.toml", text)
    with pytest.raises(ConfigurationError) as caught:
        keys.read(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)
    assert ALICE not in str(caught.value)
    assert "1234567890123456" not in str(caught.value)


def test_the_same_name_or_key_twice_is_refused(file: Path) -> None:
    """One key cannot be two people's, and two sources cannot share a name."""
    (alice,) = keys.read(file)
    for other in (ApiKey("bob", alice.sha256), ApiKey("alice", b"x" * 32)):
        with pytest.raises(ConfigurationError):
            keys.distinct([alice, other])


def test_keys_of_the_environment(tmp_path: Path) -> None:
    """They are separated by commas, and an empty variable is a mistake and not an open door."""
    found = keys.from_environment({keys.ENVIRONMENT: f" {ALICE} ,{BOB},"})
    assert [key.name for key in found] == ["environment-1", "environment-2"]
    assert KeyRing(None, found).find(BOB).name == "environment-2"
    assert keys.from_environment({}) == ()
    for wrong in ("", " , ", f"{ALICE},short"):
        with pytest.raises(ConfigurationError, match=keys.ENVIRONMENT):
            keys.from_environment({keys.ENVIRONMENT: wrong})


def test_a_change_of_the_file_is_taken_without_a_restart(file: Path) -> None:
    """At the next look, new keys are valid and removed ones are not."""
    valid = ring(file)
    write(file, f'[keys.bob]\nkey = "{BOB}"\n')
    assert denied(valid, BOB)
    valid.look()
    assert valid.find(BOB).name == "bob"
    assert denied(valid, ALICE)


def test_a_key_that_is_replaced_with_size_and_time_kept_is_noticed(file: Path) -> None:
    """The content decides: a file written in place, as large and as old as before, is another one."""
    valid = ring(file)
    before = file.stat()
    other = BOB[:1].swapcase() + ALICE[1:]
    assert len(other) == len(ALICE)
    content = file.read_text().replace(ALICE, other)
    file.write_text(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    news = [valid._news(), valid._news(), valid._news()]
    assert [type(each) for each in news] == [type(None), tuple, type(None)]
    valid._act_on(news[1])  # type: ignore[arg-type]
    assert valid.find(other).name == "alice"
    assert denied(valid, ALICE)


def test_a_file_that_is_caught_while_it_is_written_is_not_in_force(file: Path) -> None:
    """Half of it may be valid TOML: without bob, or with the first digits of a bound. Two looks have to agree."""
    valid = ring(file)
    pieces = f'[keys.alice]\nkey = "{ALICE}"\nmax_requests = 100\n[keys.bob]\nkey = "{BOB}"\n'
    for end in (pieces.index("00\n"), pieces.index("[keys.bob]"), len(pieces)):
        write(file, pieces[:end])
        assert valid._news() is None, "it was something else at the look before"
    news = valid._news()
    assert isinstance(news, tuple)
    assert [(key.name, key.max_requests) for key in news] == [("alice", 100), ("bob", None)]


def test_a_file_without_end_is_refused(file: Path) -> None:
    """It is read at every look, so its size has a limit, which is told."""
    file.write_text("#" * (keys.MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigurationError, match=str(keys.MAX_FILE_BYTES)):
        keys.read(file)


@pytest.mark.parametrize("broken", ["[keys.a\n", "", "missing", "pipe"])
def test_a_broken_file_changes_nothing(file: Path, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    """The keys read before stay valid, the reason is logged once, and a mended file is in force again."""
    valid = ring(file)
    if broken in ("missing", "pipe"):
        file.unlink()
        if broken == "pipe":
            os.mkfifo(file)  # to open it would wait for a writer
    else:
        write(file, broken)
    with caplog.at_level(logging.ERROR, "framehost.keys"):
        for _ in range(3):
            valid.look()
            assert valid.find(ALICE).name == "alice"
    assert len(caplog.records) == 1
    assert valid.report()["problem"]
    write(file, f'[keys.bob]\nkey = "{BOB}"\n')
    valid.look()
    assert valid.find(BOB)
    assert not valid.report()["problem"]


def test_a_file_that_cannot_be_looked_at_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission, a stale mount: said as what is wrong, and the watching goes on."""
    valid = ring(file)

    def stale(path: Path, *_: object, **__: object) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stale)
        patched.setattr(Path, "open", stale)
        valid.look()
    assert "Stale file handle" in valid.report()["problem"]
    assert valid.find(ALICE).name == "alice"
    valid.look()
    assert not valid.report()["problem"]


def test_a_server_that_starts_over_a_broken_file_lets_nobody_in(tmp_path: Path) -> None:
    """Without any key read yet, a broken file is no open door."""
    valid = ring(write(tmp_path / "k", "nonsense"))
    assert denied(valid, ALICE)
    assert denied(valid, "")


def test_what_is_in_use_stays_counted_over_a_reload(file: Path) -> None:
    """A reload changes bounds, not the requests that are open under them."""
    valid = ring(file)
    account = valid.find(ALICE)
    assert account.requests is not None
    permit = account.requests.try_admit()
    assert isinstance(permit, Permit)
    write(file, f'[keys.alice]\nkey = "{ALICE}"\nmax_requests = 2\nmax_cost = 5\nadmin = true\n')
    valid.look()
    again = valid.find(ALICE)
    assert again is account
    assert again.admin
    assert again.cost is not None
    second = account.requests.try_admit()
    assert isinstance(second, Permit)
    assert isinstance(account.requests.try_admit(), Refusal)
    permit.release()
    second.release()
    account.update(ApiKey("alice", b"x" * 32))
    assert Account.statistics(account) == ()
