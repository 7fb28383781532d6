"""How a deployment comes by its processor: in a thread of its own, because everything that it is made of is foreign.

    facts, options, folder ─▶ thread ─▶ Processor, or Unusable with the reason

The folder may hold a pipe that no process writes to, or lie on a file system that hangs; the class may be a third
party's and raise what it likes. Whatever happens there is this deployment's affair: the loop goes on, and so do the
others. A thread that hangs cannot be ended. It is left behind, asleep, and its deployment is told that its time is
over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from frontend import limits
from frontend.families.base import AssetError, Processor
from frontend.serving.assets import unpacked
from protocol import families

log = logging.getLogger("framehost.making")

MAX_IDENTITY_CHARS = 4_096
"""Of what a host calls its weights: room for the names and digests of some forty files, as of a sharded checkpoint."""

MAX_REASON_CHARS: Final = 500
"""Of why a processor cannot be made: it is told to operators, and travels in messages."""


class Unusable(Exception):
    """The deployment cannot be served; the text says why, for its operator."""


Made = Processor | Unusable


def make(family: families.Family, options: Mapping[str, Any], path: str | None, facts: Mapping[str, object]) -> Made:
    """The processor of a deployment whose host has reported `facts`, empty before there is one. Raises nothing.

    Reads files, and takes as long as they take.
    """
    try:
        _check(facts)
        with unpacked(facts) as folder:
            made: Processor = families.resolve(family.processor)(facts, options, folder or path)
        return made
    except (AssetError, Unusable) as error:
        return Unusable(_text(error))
    except BaseException as error:  # the class may be anybody's
        log.error("a processor of the family %s could not be made", family.name, exc_info=error)
        return Unusable(f"its processor cannot be made: {type(error).__name__}: {_text(error)}")


def _check(facts: Mapping[str, object]) -> None:
    """What is used of the facts of every family."""
    identity = facts.get("identity", "")
    if not isinstance(identity, str) or len(identity) > MAX_IDENTITY_CHARS:
        raise Unusable(f"its identity is not a text of at most {MAX_IDENTITY_CHARS} characters")


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_REASON_CHARS else f"{text[: MAX_REASON_CHARS - 3]}..."


class Maker:
    """Makes the processors of one deployment. Belongs to the event loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        family: families.Family,
        options: Mapping[str, Any],
        path: str | None,
        temperature: float = 1.0,
    ) -> None:
        """Of the deployment's row in the supervisor's table."""
        self._temperature = temperature
        self._loop, self._name, self._family = loop, name, family
        self._options, self._path = options, path

    def begin(self, facts: Mapping[str, object], on_made: Callable[[Made], None]) -> None:
        """Make one of `facts`; `on_made` is called once, in a later turn of the loop, after
        `limits.PROCESSOR_LIMIT_S` seconds at the latest."""
        waiting = True

        def ended(made: Made) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                late.cancel()
                on_made(made)

        def work() -> None:
            made = make(self._family, self._options, self._path, facts)
            if isinstance(made, Processor):
                made.temperature = self._temperature
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(ended, made)

        limit = limits.PROCESSOR_LIMIT_S
        late = self._loop.call_later(
            limit, ended, Unusable(f"its processor was not made within {limit:g} s: a file of it cannot be read")
        )
        threading.Thread(target=work, name=f"make {self._name}", daemon=True).start()
