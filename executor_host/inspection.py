"""What is wrong with a checkpoint, said before anything loads it: the work behind `framehost check PATH`.

Each family checks its own (`protocol.families.Family.inspect`), with the code that its host runs before it
loads; here is only which family to ask. No device library is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from executor_host import checkpoints
from executor_host.errors import ConfigurationError
from executor_host.executors.base import Progress
from protocol import families
from protocol.transport import keys


@dataclass(frozen=True, slots=True)
class Findings:
    """`problem` is "" when the checkpoint is fine; then `lines` describe it."""

    family: str
    lines: tuple[str, ...] = ()
    problem: str = ""


def examine(path: str, family: str | None, progress: Progress) -> Findings:
    """Check what is at `path` as `family`, or as the one family whose files are there. Reads every byte of it."""
    try:
        name = detect(Path(path)) if family is None else family
        found = families.find(name)
        if not found.inspect:
            raise ConfigurationError(f"the family {name!r} cannot check a checkpoint without loading it")
        return Findings(name, tuple(families.resolve(found.inspect)(path, progress)))
    except (ConfigurationError, families.UnknownFamily) as error:
        return Findings(family or "", problem=str(error))


def key_problem(key: Path, allow: Path | None) -> str:
    """What is wrong with the key files of [hosts]; "" when a server could start with them."""
    try:
        keys.read_pair(key)
        if allow is not None:
            keys.read_allowed(allow)
    except keys.KeyFileError as error:
        return str(error)
    return ""


def detect(path: Path) -> str:
    """The family of a checkpoint by the names of its files. Raises `ConfigurationError` unless it is exactly one."""
    try:
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
        if not path.is_dir():
            path.stat()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}") from error
    marked = [
        family
        for family in families.BUILT_IN.values()
        if any(fnmatchcase(name, mark) for mark in family.marks for name in names)
        or any((path / mark).is_file() for mark in family.marks if "/" in mark)
    ]
    found = [family.name for family in marked if not family.general] or [family.name for family in marked]
    if len(found) == 1:
        return found[0]
    if not found and not path.is_dir():
        files = " or ".join(mark for family in families.BUILT_IN.values() for mark in family.marks if "*" in mark)
        raise ConfigurationError(f"is a file, and no {files}; a checkpoint is a folder otherwise")
    if not found and (reason := checkpoints.no_model(path)):
        raise ConfigurationError(f"is no checkpoint: {reason}")
    known = "; ".join(f"{family.name}: {', '.join(family.marks)}" for family in families.BUILT_IN.values())
    if found:
        raise ConfigurationError(f"has the files of several families ({', '.join(found)}); say which with --family")
    raise ConfigurationError(f"has no file that tells its family ({known}); say which with --family")
