"""What a configuration file that was changed would change in a running server, and what of it has to wait for a start.

the file as it is now ─▶ Difference ─▶ models that become others: swapped, start-first
                                   ├─▶ what devices may keep, how long conversations stay: from now on
                                   └─▶ everything else: named, and left to the next start
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from frontend.configuration.model import Configuration
from protocol.models import NamedModel

FIXED: Final = ("native", "remote", "ray", "resident")
"""Keys of a model that say where its hosts or its listener are, or how it is started."""

LIVE: Final = ("models", "kept_bytes", "session_idle_s")


@dataclass(frozen=True, slots=True)
class Difference:
    """What the file says and the server does not do yet."""

    models: tuple[NamedModel, ...]
    """Those that a name is to mean from now on."""

    kept_bytes: Mapping[str, int] | None
    session_idle_s: float | None
    """None where they are as they were."""

    later: tuple[str, ...]
    """What takes effect with the next start, by key."""

    @property
    def steps(self) -> list[str]:
        """In words, what is done about it."""
        found = [f"{model.name}: {model.family}{f' at {model.path}' if model.path else ''}" for model in self.models]
        if self.kept_bytes is not None:
            found.append(f"kept_bytes: {_table(self.kept_bytes) or 'as the options of the models say'}")
        if self.session_idle_s is not None:
            found.append(f"session_idle: {self.session_idle_s:g} s")
        return found


def difference(before: Configuration, models: Mapping[str, NamedModel], after: Configuration) -> Difference:
    """`before`: what was read last. `models`: what each name means now, which a swap may have changed since."""
    later = [
        name.removesuffix("_s")
        for name in (field.name for field in dataclasses.fields(Configuration))
        if name not in LIVE and getattr(before, name) != getattr(after, name)
    ]
    others: list[NamedModel] = []
    named = {model.name: model for model in after.models}
    later += [f"models.{name}, which is removed" for name in models if name not in named]
    for name, model in named.items():
        now = models.get(name)
        if now is None:
            later.append(f"models.{name}, which is new")
            continue
        fixed = [key for key in FIXED if getattr(now, key) != getattr(model, key)]
        later += [f"models.{name}.{key}" for key in fixed]
        if model.remote:
            later += [f"models.{name}.{key}" for key in _changed(now, model) if key not in FIXED]
            continue
        wanted = structs.replace(model, **{key: getattr(now, key) for key in FIXED})
        if wanted != now:
            others.append(wanted)
    return Difference(
        tuple(others),
        None if before.kept_bytes == after.kept_bytes else after.kept_bytes,
        None if before.session_idle_s == after.session_idle_s else after.session_idle_s,
        tuple(later),
    )


def _changed(one: NamedModel, other: NamedModel) -> list[str]:
    return [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]


def _table(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
