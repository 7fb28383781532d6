"""The runtime directory and the port: whatever the system has against them is one sentence."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor_host.supervision.directory import AlreadyRunning, DirectoryError, RuntimeDirectory
from executor_host.supervision.directory_renewal import DirectoryRenewal
from executor_host.supervision.listeners import HttpListener, PortUnusable, open_health, why_not_bound
from protocol.exits import ServeExit


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A short, private directory: socket paths have a limit that pytest's own folders can exceed."""
    path = Path(tempfile.mkdtemp(prefix="fh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_an_absent_base(runtime: Path) -> None:
    """A wrong XDG_RUNTIME_DIR would otherwise become a folder that nobody looks into."""
    with pytest.raises(DirectoryError, match=r"absent is no directory.*XDG_RUNTIME_DIR"):
        RuntimeDirectory(1, base=str(runtime / "absent"))
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["os.open", "fcntl.flock", "pathlib.Path.mkdir", "pathlib.Path.iterdir"])
def test_what_the_system_refuses_is_named(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """No space, read-only, not ours: the path and the reason, and no descriptor stays open."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - an fd is no path
    with monkeypatch.context() as patched:
        patched.setattr(call, refuse)
        with pytest.raises(DirectoryError) as caught:
            RuntimeDirectory(1, base=str(runtime))
    assert os.strerror(number) in str(caught.value)
    assert str(runtime) in str(caught.value)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    RuntimeDirectory(1, base=str(runtime)).close()


def test_a_directory_that_is_gone_is_named_by_publish(runtime: Path) -> None:
    """Somebody cleans /tmp: a sentence, and closing works all the same."""
    directory = RuntimeDirectory(1, base=str(runtime))
    shutil.rmtree(directory.path)
    with pytest.raises(DirectoryError, match="No such file"):
        directory.publish(management="m", url="u")
    directory.close()


def test_a_second_one_hears_how_to_choose_another_port(runtime: Path) -> None:
    """Both spellings: the option and make's variable."""
    directory = RuntimeDirectory(1, base=str(runtime))
    with pytest.raises(AlreadyRunning, match=r"already running on port 1 .*--port .*PORT="):
        RuntimeDirectory(1, base=str(runtime))
    directory.close()


def test_a_clean_end_leaves_nothing(runtime: Path) -> None:
    """No folder per port that was ever used."""
    directory = RuntimeDirectory(1, base=str(runtime))
    directory.publish(management="m", url="u")
    directory.close()
    assert list(directory.path.parent.iterdir()) == []


def test_a_lock_that_went_with_its_server_is_not_held(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before the other one took it away, locked after: that keeps nobody out, and is taken anew."""
    first = RuntimeDirectory(1, base=str(runtime))
    locking = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        first.close()
        locking(descriptor, operation)

    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", late)
        second = RuntimeDirectory(1, base=str(runtime))
    with pytest.raises(AlreadyRunning):
        RuntimeDirectory(1, base=str(runtime))
    second.close()
    assert list(second.path.parent.iterdir()) == []


def test_a_folder_that_went_with_its_server_is_made_again(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found when it was there, gone when the lock is opened; and one that goes again and again is named."""
    first = RuntimeDirectory(1, base=str(runtime))
    opening = os.open

    def late(path: Any, *arguments: int, **options: Any) -> int:
        if Path(path).name == "lock":
            first.close()
        return opening(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr("os.open", late)
        second = RuntimeDirectory(1, base=str(runtime))
    second.close()

    def never(path: Any, *arguments: int) -> int:
        Path(path).parent.rmdir()
        return opening(path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr("os.open", never)
        with pytest.raises(DirectoryError, match="removed again and again"):
            RuntimeDirectory(1, base=str(runtime))


def test_the_lock_of_another_server_is_left_alone(runtime: Path) -> None:
    """A cleaner took ours away and another server came: what is there now is its own."""
    first = RuntimeDirectory(1, base=str(runtime))
    shutil.rmtree(first.path)
    second = RuntimeDirectory(1, base=str(runtime))
    second.publish(management="m", url="u")
    first.close()
    with pytest.raises(AlreadyRunning):
        RuntimeDirectory(1, base=str(runtime))
    assert {path.name for path in second.path.iterdir()} == {"lock", "supervisor.json", second.launch.name}
    second.close()


def test_what_is_missing_is_made_anew(runtime: Path) -> None:
    """Whatever is taken of the tree, the base included: the folders, the lock and what was published are back."""
    directory = RuntimeDirectory(1, base=str(runtime))
    directory.publish(management="m", url="u")
    published = (directory.path / "supervisor.json").read_text()
    assert not directory.restore()
    for taken in (directory.launch, directory.path / "supervisor.json", directory.path, runtime):
        shutil.rmtree(taken) if taken.is_dir() else taken.unlink()
        assert directory.restore()
        assert directory.launch.stat().st_mode & 0o777 == 0o700
        assert (directory.path / "supervisor.json").read_text() == published
        with pytest.raises(AlreadyRunning):
            RuntimeDirectory(1, base=str(runtime))
        assert not directory.restore()
    shutil.rmtree(directory.path)
    assert directory.incarnation("1-x").is_dir()
    directory.close()


def test_a_lock_that_another_server_has_taken_meanwhile_is_asked_for_until_it_is_free(runtime: Path) -> None:
    """The same port of two addresses: the folder of our launch is there meanwhile, for our own processes."""
    first = RuntimeDirectory(1, base=str(runtime))
    first.publish(management="m", url="u")
    shutil.rmtree(first.path)
    second = RuntimeDirectory(1, base=str(runtime))
    for _ in range(2):
        with pytest.raises(AlreadyRunning):
            first.restore()
        assert first.launch.is_dir()
    second.close()
    assert first.restore()
    first.close()
    assert list(first.path.parent.iterdir()) == []


def test_what_cannot_be_made_anew_is_said_once_and_tried_again(runtime: Path) -> None:
    """Twice a second for days: one line; and the socket is bound again although a lock is missed."""
    directory = RuntimeDirectory(1, base=str(runtime))
    bound: list[str] = []
    said: list[str] = []
    socket = directory.launch / "m"

    def listen_again(address: str) -> None:
        bound.append(address)
        socket.touch()

    renewal = DirectoryRenewal([directory], listen_again, lambda _, text: said.append(text))
    socket.touch()
    renewal.look()
    assert (bound, said) == ([], [])
    shutil.rmtree(directory.path)
    second = RuntimeDirectory(1, base=str(runtime))
    for _ in range(3):
        renewal.look()
    assert bound == [f"ipc://{socket}"]
    assert len(said) == 1
    assert "already running on port 1" in said[0]
    second.close()
    renewal.look()
    assert "made anew" in said[1]
    directory.close()


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (errno.EADDRINUSE, ServeExit.PORT_IN_USE, "framehost status --port 80"),
        (errno.EADDRINUSE, ServeExit.PORT_IN_USE, "--port (make serve PORT=...)"),
        (errno.EADDRNOTAVAIL, ServeExit.CONFIGURATION, "No interface of this machine"),
        (errno.EACCES, ServeExit.CONFIGURATION, "below 1024"),
        (errno.EAFNOSUPPORT, ServeExit.CONFIGURATION, "not supported"),
    ],
)
def test_why_a_port_cannot_be_had(number: int, status: ServeExit, said: str) -> None:
    """Taken is worth another try; the others are wrong until somebody changes something."""
    found, text = why_not_bound("192.0.2.1", 80, OSError(number, os.strerror(number)))
    assert found == status
    assert text.startswith(f"cannot listen on 192.0.2.1 port 80: {os.strerror(number)}")
    assert said in text


def test_a_health_port_that_is_taken_is_told_with_its_own_option() -> None:
    """--port would change another one, and `status` finds a server by its main port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host, port = taken.getsockname()
        with pytest.raises(PortUnusable) as refused:
            open_health(host, port)
        assert refused.value.status == ServeExit.PORT_IN_USE
        assert str(refused.value) == (
            f"the health address: cannot listen on 127.0.0.1 port {port}: Address already in use. "
            "choose another port with --health, or with health in [server]"
        )
        with pytest.raises(PortUnusable, match="; choose another port with admin"):
            HttpListener.open(host, port, "choose another port with admin")
