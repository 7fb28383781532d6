"""Recorded forwards: the kernels of one group of rows, launched again as one CUDA graph.

A recording fits exactly one *key*, the ordered lengths of the rows. The first group with a new key runs
eagerly and answers with that result; it is recorded afterwards, without being launched. Later groups with
the key copy their tokens into the recording's own input and replay it. Heads and results stay outside.

A recording that fails turns the recordings off for the life of the process and says so on stderr. The
group that met it has its eager result already.

Nothing here imports torch: what runs, what records and how a device is waited for are passed in, so that the
bookkeeping can be tested on any machine.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, TypeAlias

MAX_RECORDINGS: Final = 64
"""Recordings kept at a time; the oldest one goes first."""

Key: TypeAlias = tuple[int, ...]

Forward: TypeAlias = Callable[[Any, Any], Any]
"""(tokens [rows, length], positions of the last tokens [rows]) -> hidden states [rows, size]; all on the device."""


class Recorder(Protocol):
    """Makes recordings on one device."""

    def record(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Records what `run` launches, launches nothing; returns the replay and the tensor that it fills."""
        ...

    def synchronize(self) -> None:
        """Waits until the device has done everything."""
        ...


@dataclass(slots=True)
class Counters:
    """What has happened since the start, warm-up included."""

    requested: int = 0
    captures: int = 0
    replays: int = 0
    fallbacks: int = 0
    """Groups that ran eagerly: the first with their key, and all of them once recordings are off."""
    invalidations: int = 0
    """Recordings dropped, to make room or because one failed."""


@dataclass(frozen=True, slots=True)
class _Recording:
    tokens: Any
    last: Any
    replay: Callable[[], None]
    hidden: Any


class Graphs:
    """Runs groups of rows through `forward`, recorded where that is possible. One thread only."""

    def __init__(self, forward: Forward, recorder: Recorder, *, capacity: int = MAX_RECORDINGS) -> None:
        if capacity < 1:
            raise ValueError("room for at least one recording is needed")
        self._forward = forward
        self._recorder = recorder
        self._capacity = capacity
        self._recordings: dict[Key, _Recording] = {}
        self._counters = Counters()
        self._failure: str | None = None

    def __repr__(self) -> str:
        state = "off" if self._failure else "on"
        return f"<Graphs {state} recordings={len(self._recordings)}/{self._capacity} replays={self._counters.replays}>"

    @property
    def enabled(self) -> bool:
        """Whether groups are still recorded and replayed."""
        return self._failure is None

    def statistics(self) -> dict[str, int | bool]:
        """`enabled`, `cached_shapes`, and the counters."""
        return {"enabled": self.enabled, "cached_shapes": len(self._recordings), **asdict(self._counters)}

    def run(self, key: Key, tokens: Any, last: Any) -> Any:
        """Hidden states [rows, size] of the group whose rows have the lengths `key`. The result is the caller's:
        a later replay does not change it. Errors of the forward pass unchanged; those of a recording do not."""
        self._counters.requested += 1
        recording = self._recordings.get(key)
        if recording is not None:
            recording.tokens.copy_(tokens)
            recording.replay()
            self._counters.replays += 1
            return recording.hidden.clone()
        hidden = self._forward(tokens, last)
        self._counters.fallbacks += 1
        if self.enabled:
            self._record(key, tokens, last)
        return hidden

    def close(self) -> None:
        """Drops every recording, after the device has finished. May be called twice."""
        if self._recordings:
            self._recorder.synchronize()
            self._counters.invalidations += len(self._recordings)
            self._recordings.clear()

    def _record(self, key: Key, tokens: Any, last: Any) -> None:
        # The recording reads its input from where it was when it was made, so it gets copies of its own.
        mine, where = tokens.clone(), last.clone()
        # A device that failed says so here, where it still is an error of this call and not of the recording.
        self._recorder.synchronize()
        if len(self._recordings) >= self._capacity:
            del self._recordings[next(iter(self._recordings))]
            self._counters.invalidations += 1
        try:
            replay, hidden = self._recorder.record(lambda: self._forward(mine, where))
        except Exception as error:  # whatever a device library raises for what cannot be recorded
            self._failure = f"{type(error).__name__}: {error}"
            print(f"CUDA graphs are off for the life of this host: {self._failure}", file=sys.stderr, flush=True)
            self.close()
            return
        self._counters.captures += 1
        self._recordings[key] = _Recording(mine, where, replay, hidden)


class CudaRecorder:
    """Records on one CUDA device. All recordings share one memory pool, so that 64 of them fit."""

    def __init__(self, device: Any) -> None:
        """`device`: a torch CUDA device, already in use by this thread."""
        import torch

        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """As `Recorder`. Other threads may use the device meanwhile; ours do not."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            filled = run()
        return graph.replay, filled

    def synchronize(self) -> None:
        """As `Recorder`."""
        import torch

        torch.cuda.synchronize(self._device)
