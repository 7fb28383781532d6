"""What an executor of a third party may be, and what the type checker tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check


class Whole(Executor):
    """All of the seam."""

    def load(self, progress: Progress) -> dict[str, str]:
        progress(0.5, "half of it")
        return {"identity": "whole"}

    def warm_up(self) -> None:
        self.execute(b"", WarmUpCall())

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        check(call)
        return {"seconds_left": call.remaining_ms}

    def close(self) -> None: ...


made: Executor = Whole(None, {})
facts: Mapping[str, object] = made.load(lambda fraction, words: None)


class Half(Executor):
    """Without `warm_up`."""

    def load(self, progress: Progress) -> Mapping[str, object]:
        return {}

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        return {}


Half("/models/half", {})  # expect: abstract


class Other(Executor):
    """With other arguments and results than the host's."""

    def load(self, progress: Progress) -> None:  # expect: override
        progress(0.5)  # expect: call-arg

    def warm_up(self) -> None: ...

    async def execute(self, payload: object, call: Call) -> dict[str, Any]:  # expect: override
        call.cancelled = True  # expect: misc
        return {}


class Deaf:
    """No `Call`: it cannot say how much time is left."""

    cancelled = False


check(Deaf())  # expect: arg-type
made.execute(b"", WarmUpCall()).append(1)  # expect: attr-defined
