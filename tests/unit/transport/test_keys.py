"""Key files of CURVE: made once, read with care."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import supervisor
from protocol.curve import KeyPair, Security
from protocol.exits import ServeExit
from protocol.transport import keys


def test_a_new_pair_can_be_read_back(tmp_path: Path) -> None:
    """The public half is in both files, the secret one only where it belongs, and only its owner can read it."""
    public, secret = keys.create(tmp_path / "new", "gpu-1")
    assert (public.name, secret.name) == ("gpu-1.key", "gpu-1.key_secret")
    assert (public.stat().st_mode & 0o777, secret.stat().st_mode & 0o777) == (0o644, 0o600)
    pair = keys.read_pair(secret)
    assert pair.public == keys.read_public(public)
    assert pair.secret not in public.read_bytes()
    assert pair.secret.decode() not in repr(pair)
    assert keys.read_allowed(public.parent) == {pair.public}


def test_an_old_pair_is_never_replaced(tmp_path: Path) -> None:
    """A second key of the same name would lock out everyone who has the first."""
    public, secret = keys.create(tmp_path, "a")
    before = public.read_bytes(), secret.read_bytes()
    with pytest.raises(keys.KeyFileError, match="is there already"):
        keys.create(tmp_path, "a")
    assert (public.read_bytes(), secret.read_bytes()) == before


def test_what_is_wrong_with_a_key_file_is_told(tmp_path: Path) -> None:
    """Missing, not a key file, no secret in it, or readable by others: each says which file and why."""
    public, secret = keys.create(tmp_path, "a")
    with pytest.raises(keys.KeyFileError, match=r"missing\.key cannot be read: No such file"):
        keys.read_public(tmp_path / "missing.key")
    (tmp_path / "other.key").write_text("nothing")
    with pytest.raises(keys.KeyFileError, match=r"other\.key is not a key file"):
        keys.read_public(tmp_path / "other.key")
    with pytest.raises(keys.KeyFileError, match="no secret key"):
        keys.read_pair(public)
    with pytest.raises(keys.KeyFileError, match="holds a secret key, which stays"):
        keys.read_public(secret)
    secret.chmod(0o640)
    with pytest.raises(keys.KeyFileError, match="chmod 600"):
        keys.read_pair(secret)


def test_an_empty_list_of_hosts_is_a_mistake(tmp_path: Path) -> None:
    """A folder without keys would let nobody in."""
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(keys.KeyFileError):
            keys.read_allowed(folder)


def test_the_listening_side_lets_nobody_in_without_an_authenticator() -> None:
    """The domain is enforced on it, and the dialling side insists on the server's key; both send heartbeats."""
    own = KeyPair(b"p" * 40, b"s" * 40)
    listening = dict(Security(own, 3.0).options())
    assert listening["CURVE_SERVER"] == listening["ZAP_ENFORCE_DOMAIN"] == 1
    dialling = dict(Security(own, 3.0, server=b"q" * 40).options())
    assert dialling["CURVE_SERVERKEY"] == b"q" * 40
    assert "CURVE_SERVER" not in dialling
    for options in (listening, dialling):
        assert (options["HEARTBEAT_IVL"], options["HEARTBEAT_TIMEOUT"]) == (1000, 3000)


ROOT, US = 0, 1000


@pytest.mark.parametrize(
    ("owner", "user", "mode", "exposed"),
    [
        (US, US, 0o600, False),
        (US, US, 0o400, False),
        (US, US, 0o440, True),
        (US, US, 0o604, True),
        (ROOT, US, 0o440, False),
        (ROOT, US, 0o640, False),
        (ROOT, US, 0o460, True),
        (ROOT, US, 0o444, True),
        (ROOT, ROOT, 0o440, True),
        (ROOT, ROOT, 0o600, False),
    ],
)
def test_a_secret_file_is_its_owners_alone_or_roots_gift_to_our_group(
    owner: int, user: int, mode: int, exposed: bool
) -> None:
    """A pod's secret belongs to root and is readable by the pod's group; the server in it is not root."""
    status = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, US, 1, 0, 0, 0))
    problem = keys.exposed(status, user)
    assert bool(problem) is exposed
    if exposed:
        assert f"{mode:04o}" in problem, "it names the mode"


@pytest.mark.parametrize("name", ["a/b", "/a", "../a", "", "a\0"])
def test_a_name_is_one_of_a_file(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written elsewhere than in the folder, and what is wrong is told with the name."""
    (tmp_path / "keys" / "a").mkdir(parents=True)
    assert supervisor.main(["curve", name, "--directory", str(tmp_path / "keys")]) == ServeExit.CONFIGURATION
    assert f"{name!r} is no name: one without a slash" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["keys", "a"]
