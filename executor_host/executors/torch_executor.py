"""What every family that runs on torch does in the same way; a family fills in the steps.

    load      device and dtype ─▶ verify: the folder, hashed ─▶ build: the weights, on the device ─▶ facts
    warm_up   examples: requests ─▶ execute, as often as it takes ─▶ check_example
    execute   accept: the payload, checked ─▶ run: the device, which has finished afterwards ─▶ outputs

Between the steps a call that no client waits for is ended where the family looks (`base.check`), and an error is told
from one after which the device is not to be trusted (`devices.synchronised`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError, ExecutionFailed, FatalExecutionError, HostError
from executor_host.executors.base import Call, Executor, Kept, Progress, WarmUpCall, check, warming_up
from protocol.errors import Malformed

HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class Folder(Protocol):
    """A verified checkpoint."""

    @property
    def path(self) -> Any:
        """Where it is: a `pathlib.Path`."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """sha256 of everything that was read, by name."""
        ...


class Loaded(Protocol):
    """A model on its device."""

    @property
    def device(self) -> Any:
        """The torch device."""
        ...

    def close(self) -> None:
        """Gives back what it holds. May be called twice."""
        ...


FolderT = TypeVar("FolderT", bound=Folder)
ModelT = TypeVar("ModelT", bound=Loaded)
RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class TorchExecutor(Executor, Generic[FolderT, ModelT, RequestT, ResultT]):
    """An executor with the options `device` and `dtype`. `RequestT`: a payload once it is accepted; `ResultT`: what
    the device made of it."""

    PAYLOAD: ClassVar[type]
    """The family's payload type."""

    REPEATS: ClassVar[int] = 1
    """How often each example of the warm-up is executed."""

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        """As `Executor`."""
        super().__init__(path, options)
        self._checkpoint: FolderT | None = None
        self._model: ModelT | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._model or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the files, loads the weights. Raises `ConfigurationError`: a library missing, no such device, or no
        checkpoint of this family.

        `files` (sha256 by name), `folder`, `dtype` and `device` are facts of every family; the others are `facts`.
        """
        self.libraries()
        device, dtype = self.placement()
        devices.use(device)
        checkpoint = self.verify(lambda fraction, note: progress(HASHED * fraction, note))
        size = checkpoints.weight_bytes(checkpoint.path)
        progress(HASHED, f"reading {checkpoints.amount(size)} of weights" if size else "loading")
        self._model = self.build(checkpoint, device, dtype)
        self._checkpoint = checkpoint
        common = {"files": dict(checkpoint.files), "folder": str(checkpoint.path), "dtype": dtype, "device": device}
        facts = {**common, **self.facts(checkpoint, self._model, device, dtype)}
        progress(1.0, "loaded")
        return facts

    def warm_up(self) -> None:
        """As `Executor`, once or more for each of `examples`."""
        checkpoint, _ = self._loaded(ConfigurationError, "the warm-up comes after the load")
        with warming_up():
            for example in self.examples(checkpoint):
                for _ in range(self.REPEATS):
                    output = self.execute(example, WarmUpCall())
                if not self.fits(example, output):
                    raise ConfigurationError("the warm-up decision has the wrong number of answers")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """As `outputs` says. Raises what `accept`, `run` and `outputs` raise; `FatalExecutionError` when the device
        failed, which has finished on return and on every error."""
        checkpoint, model = self._loaded(ExecutionFailed, "the model is not loaded")
        if not isinstance(payload, self.PAYLOAD):
            raise ExecutionFailed(f"{self.PAYLOAD.__name__} is expected, not {type(payload).__name__}")
        request = self.accept(payload, checkpoint, model, lambda: check(call))
        with devices.synchronised(model.device):
            result = self.run(request, model, lambda: check(call))
        return self.outputs(request, result, model)

    def execute_many(
        self, payloads: Sequence[object], calls: Sequence[Call]
    ) -> Sequence[Mapping[str, Any] | HostError | Malformed]:
        """As `Executor`: what `run_many` makes of those that are accepted, in one pass where the family has one."""
        if self.max_units == 1:
            return super().execute_many(payloads, calls)
        checkpoint, model = self._loaded(ExecutionFailed, "the model is not loaded")
        outcomes: list[Mapping[str, Any] | HostError | Malformed | None] = [None] * len(payloads)
        accepted: dict[int, RequestT] = {}
        for at, (payload, call) in enumerate(zip(payloads, calls, strict=True)):
            try:
                if not isinstance(payload, self.PAYLOAD):
                    raise ExecutionFailed(f"{self.PAYLOAD.__name__} is expected, not {type(payload).__name__}")
                request = self.accept(payload, checkpoint, model, partial(check, call))
                check(call)
                accepted[at] = request
            except FatalExecutionError:
                raise
            except (HostError, Malformed) as error:
                outcomes[at] = error
        results: Sequence[ResultT | HostError] = ()
        if accepted:
            with devices.synchronised(model.device):
                results = self.run_many(list(accepted.values()), model)
        for (at, request), result in zip(accepted.items(), results, strict=True):
            if isinstance(result, HostError):
                outcomes[at] = result
                continue
            try:
                outcomes[at] = self.outputs(request, result, model)
            except FatalExecutionError:
                raise
            except HostError as error:
                outcomes[at] = error
        return [outcome for outcome in outcomes if outcome is not None]

    @property
    def kept(self) -> Kept | None:
        """As `Executor`: that of the model, where it has one."""
        kept: Kept | None = getattr(self._model, "kept", None)
        return kept

    def relieve(self) -> None:
        """As `Executor`; also what the model has recorded, and what torch keeps for later."""
        super().relieve()
        if self._model is not None:
            drop: Callable[[], None] | None = getattr(self._model, "relieve", None)
            if drop is not None:
                drop()
            devices.release(self._model.device)

    def close(self) -> None:
        """Drops the model."""
        if self._model is not None:
            self._model.close()
        self._model = self._checkpoint = None

    def _loaded(self, error: type[Exception], message: str) -> tuple[FolderT, ModelT]:
        if self._checkpoint is None or self._model is None:
            raise error(message)
        return self._checkpoint, self._model

    # The steps

    def libraries(self) -> None:
        """Imports what the family needs. Raises `ConfigurationError`."""
        devices.torch_library()

    def placement(self) -> tuple[str, str]:
        """Device and dtype by name, as the options say."""
        return devices.placement(self.options["device"], self.options["dtype"])

    @abstractmethod
    def verify(self, progress: Callable[[float, str], None]) -> FolderT:
        """The checkpoint at `self.path`. Reads every byte once. Raises `ConfigurationError`."""

    @abstractmethod
    def build(self, checkpoint: FolderT, device: str, dtype: str) -> ModelT:
        """The model on its device; both are named as `devices.placement` does. Raises `ConfigurationError`."""

    @abstractmethod
    def facts(self, checkpoint: FolderT, model: ModelT, device: str, dtype: str) -> dict[str, object]:
        """As `Executor.load`, without what every family reports."""

    @abstractmethod
    def examples(self, checkpoint: FolderT) -> Iterable[Any]:
        """The payloads of the warm-up."""

    @abstractmethod
    def fits(self, example: Any, output: Mapping[str, Any]) -> bool:
        """Whether an output is an answer to an example."""

    @abstractmethod
    def accept(self, payload: Any, checkpoint: FolderT, model: ModelT, look: Callable[[], None]) -> RequestT:
        """A payload of the family's type, which is one for this model, else `Malformed` or `InputRefused`. `look`
        raises `Abandoned` when no client waits for the call any more."""

    @abstractmethod
    def run(self, request: RequestT, model: ModelT, look: Callable[[], None]) -> ResultT:
        """What the device makes of it, on the CPU. Calls `look` before each pass of the model."""

    def run_many(self, requests: Sequence[RequestT], model: ModelT) -> Sequence[ResultT | HostError]:
        """What the device makes of several in one pass, in their order; for families with `max_units` above 1. In the
        place of one that fails alone, as one whose vectors are not finite, its error."""
        raise NotImplementedError

    @abstractmethod
    def outputs(self, request: RequestT, result: ResultT, model: ModelT) -> dict[str, Any]:
        """The outputs of the unit. Raises `NonFinite`."""
