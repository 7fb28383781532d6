"""That the models can keep what `max_resident` says. What fits into bytes is known when models have been loaded."""

from __future__ import annotations

from collections.abc import Sequence

from frontend.configuration.toml_file import TomlDocument
from protocol.models import NamedModel


def check_room(models: Sequence[NamedModel], bound: int | None, source: TomlDocument) -> None:
    """Refuse what a bound on the number of models with hosts could never keep."""
    if bound is None:
        return
    resident = [model.name for model in models if model.resident]
    if len(resident) > bound:
        source.fail(
            ("server", "max_resident"),
            f"{len(resident)} models are resident from the start and {bound} may be: "
            f"give resident = false to all but {bound} of {', '.join(resident)}",
        )
    pinned = [model.name for model in models if model.pin]
    if len(pinned) == bound and len(models) > bound:
        source.fail(
            ("server", "max_resident"),
            f"the pinned {', '.join(pinned)} take all the room: no other model could ever be loaded",
        )
