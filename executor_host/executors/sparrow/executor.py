"""The sparrow family in the host: the small numpy model of the package `sparrow-decider`, and its tokens.

The package is a pinned dependency with its weights inside the wheel, so both are verified: the code by its
version, the bundled weights by their sha256. Files are loaded by path: the package's own lookup by name
takes a file of that name in the working directory, and searches a folder that the environment names.

What the package would compute again and again is done once, with the same numbers to the last bit (`tokens`, `static`).

The texts the model reads are the state, each question's instructions and, per option, its name and its
description with a space between. Strings are stripped, structured text is JSON with an indent of 2. A noul
side that is not described has the package's default text; its names are "false" and "true". A level's name
is its index.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from executor_host.errors import ConfigurationError, ExecutionFailed, HostError, InputRefused, NonFinite
from executor_host.executors import documents
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.sparrow.tokens import WordPieces
from protocol.contracts import sparrow as contract
from protocol.errors import Malformed
from protocol.payloads import TextRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from executor_host.executors.sparrow.static import Request, StaticModel

PACKAGE: Final = "sparrow_decider"

PACKAGE_VERSION: Final = "0.2.0"
"""The release whose texts, tokenizer and weights this module knows; another one answers differently."""

DEFAULT: Final = "nano-general"

MAX_UNITS: Final = 32
"""Of a batch that are read and answered together. More would gain nothing, and each has to wait for all."""

SUM_TOLERANCE: Final = 1e-3
"""How far from 1 the warm-up's probabilities may sum: they are float32, so 1e-6 is expected."""


class SparrowExecutor(Executor):
    """`path`: None or a name of the contract's `BUNDLED`, else a `.sparrow` file."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._truncate: bool = self.options["truncate"]
        self._name = ""
        self._model: StaticModel | None = None
        self._pieces: WordPieces | None = None
        self._limit = 0
        self._default_sides: Mapping[str, str] = {}

    def __repr__(self) -> str:
        loaded = self._name or "not loaded"
        return f"<SparrowExecutor {loaded} truncate={self._truncate}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Verifies and loads in about 20 ms. Raises `ConfigurationError`: package missing or another version,
        file missing, altered, unreadable, or of an architecture without a word-piece tokenizer."""
        progress(0.0, "verifying")
        path, expected = _locate(self.path)
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        if expected is not None and digest != expected:
            raise ConfigurationError(f"{path.name} is not the released file: its sha256 is {digest}, not {expected}")
        package = _package()
        from executor_host.executors.sparrow.static import StaticModel  # numpy, which checking a folder does not need

        progress(0.2, "loading")
        try:
            decider = package.Decider.load(str(path))
            model = decider.static
            if model is None:
                raise ConfigurationError(f"{path.name} is a model of another architecture; only static ones are served")
            parameters = sum(math.prod(weight.shape) for weight in model.w.values())
            limit = int(model.max_len)
        except ConfigurationError:
            raise
        except Exception as error:  # whatever a file that is no model makes the package do
            raise ConfigurationError(f"{path.name} is not a sparrow model: {error}") from error
        self._pieces = pieces = WordPieces(model.tok)
        # What the package still reads by itself are the names of numbers.
        model.tok = pieces
        if model.kv:
            _remember_pairs()
        self._model = StaticModel(model, pieces.ids)
        self._limit, self._name = limit, str(decider.name)
        self.max_units = MAX_UNITS
        self._default_sides = package.NOUL_DEFAULT
        progress(1.0, "loaded")
        return {
            "identity": contract.identity(decider.name, digest),
            "name": self._name,
            "sha256": digest,
            "dtype": "float32",
            "parameters": int(parameters),
            "limits": {"tokens_per_text": limit, "units": self.max_units},
            "truncate": self._truncate,
            "package": f"sparrow-decider {PACKAGE_VERSION}",
        }

    def warm_up(self) -> None:
        """One decision with every type of question, and one that needs no model."""
        questions = [
            {"type": "choice", "instructions": "Topic?", "criteria": {"billing": "charges", "login": "password"}},
            {"type": "noul", "instructions": "The user was charged.", "criteria": None},
            {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
            {"type": "choice", "instructions": None, "criteria": {"only": None}},
        ]
        document = json.dumps({"state": "User: I was charged twice.", "questions": questions}).encode()
        with warming_up():
            output = self.execute(TextRequest(document), WarmUpCall())
        answers = output["probabilities"]
        if [values and len(values) for values in answers] != [2, 2, 3, None]:
            raise ConfigurationError("the warm-up decision has the wrong number of probabilities")
        if any(values and abs(math.fsum(values) - 1.0) > SUM_TOLERANCE for values in answers):
            raise ConfigurationError("the probabilities of the warm-up decision do not sum to 1")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """`{"probabilities": [[float, ...] | None, ...], "tokens": int, "truncated": None or {"kept", "total"}}`.

        One entry per question, in order: the options or levels as sent, or [no, yes] for a noul; None where
        there is one option or level, which the model cannot be asked about. `tokens`: word pieces the model
        read, of the state once and of all texts of all questions, those of the None questions included.
        `truncated`, only with the option on and something cut: tokens read and tokens sent, of the whole
        request.

        Raises `InputRefused` (400, `max_tokens_exceeded`) for a text above the model's limit with the option
        off, `NonFinite`, and `Abandoned`, which is looked for before each text.
        """
        (outcome,) = self.execute_many([payload], [call])
        if isinstance(outcome, Exception):
            raise outcome
        return dict(outcome)

    def execute_many(
        self, payloads: Sequence[object], calls: Sequence[Call]
    ) -> Sequence[Mapping[str, Any] | HostError | Malformed]:
        """As `execute` for each, to the last bit."""
        read: list[_Read | HostError | Malformed] = []
        for payload, call in zip(payloads, calls, strict=True):
            try:
                read.append(self._read(payload, call))
            except (HostError, Malformed) as error:
                read.append(error)
        ready = [each.request for each in read if isinstance(each, _Read)]
        # Without a model nothing was read.
        found = iter(() if self._model is None else self._model.probabilities(ready))
        return [each.outputs(next(found)) if isinstance(each, _Read) else each for each in read]

    def _read(self, payload: object, call: Call) -> _Read:
        if self._pieces is None:
            raise ExecutionFailed("the model is not loaded")
        if not isinstance(payload, TextRequest):
            raise ExecutionFailed(f"TextRequest is expected, not {type(payload).__name__}")
        asked, questions = documents.read(payload, ids=False)
        state = _content(asked)
        ids: list[int] = []
        kept = total = 0
        texts: list[list[str]] = [[] for _ in questions]
        for where, text in self._texts(state, questions):
            check(call)
            pieces = self._pieces.ids(text)
            count = len(pieces)
            if count > self._limit and not self._truncate:
                raise _too_long(where, count, self._limit)
            total += count
            kept += min(count, self._limit)
            if where == ("state",):
                ids = pieces
            else:
                texts[int(where[1])].append(text)
        request = [
            (question["type"], instructions, options)
            for question, (instructions, *options) in zip(questions, texts, strict=True)
            if not _is_single(question)
        ]
        return _Read((state, ids, request), [_is_single(question) for question in questions], kept, total)

    def close(self) -> None:
        """Drops the model."""
        self._model = self._pieces = None

    def _texts(self, state: str, questions: list[dict[str, Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every text of the request, exactly as the model's tokenizer is given it, with its place."""
        yield ("state",), state
        for index, question in enumerate(questions):
            place = ("questions", index)
            yield (*place, "instructions"), _content(question.get("instructions"))
            criteria = question["criteria"]
            if question["type"] == "noul":
                sides = {**self._default_sides, **(criteria or {})}
                options = [("false", sides["false"]), ("true", sides["true"])]
            elif question["type"] == "choice":
                options = list(criteria.items())
            else:
                options = [(str(level), text) for level, text in enumerate(criteria)]
            for position, (name, description) in enumerate(options):
                where = position if question["type"] == "score" else name
                yield (*place, "criteria", where), f"{name} {_content(description)}"


class _Read(NamedTuple):
    """A request that was read and is within the limits."""

    request: Request
    single: list[bool]
    """Which of its questions the model cannot be asked."""
    kept: int
    total: int

    def outputs(self, found: Sequence[NDArray[np.float32]]) -> Mapping[str, Any] | NonFinite:
        """With one array for each question that was asked."""
        arrays = iter(found)
        probabilities = [None if single else next(arrays).tolist() for single in self.single]
        for index, values in enumerate(probabilities):
            if values is not None and not all(map(math.isfinite, values)):
                return NonFinite(f"the model's answer to question number {index + 1} is not finite")
        truncated = {"kept": self.kept, "total": self.total} if self.kept < self.total else None
        return {"probabilities": probabilities, "tokens": self.kept, "truncated": truncated}


def inspect(path: str | None, progress: Progress) -> list[str]:
    """What a model file is, line by line, for people. It is loaded for that, which takes milliseconds."""
    facts = SparrowExecutor(path, {}).load(progress)
    return [f"{facts['name']}, {facts['parameters']:,} parameters", f"sha256 {facts['sha256']}"]


def _locate(path: str | None) -> tuple[Path, str | None]:
    """The file to load and, for a bundled model, the sha256 it must have."""
    bundled = contract.BUNDLED.get(DEFAULT if path is None else path)
    if bundled is None:
        assert path is not None
        return Path(path), None
    found = importlib.util.find_spec(PACKAGE)  # finds the folder without running the package
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the package sparrow-decider is not installed")
    name, digest = bundled
    return Path(next(iter(found.submodule_search_locations)), "models", name), digest


def _package() -> Any:
    try:
        import sparrow_decider
    except ImportError as error:
        raise ConfigurationError(f"the package sparrow-decider cannot be imported: {error}") from error
    if sparrow_decider.__version__ != PACKAGE_VERSION:
        raise ConfigurationError(f"sparrow-decider is {sparrow_decider.__version__}; {PACKAGE_VERSION} is needed")
    return sparrow_decider


def _remember_pairs() -> None:
    """Lets a model that reads numbers out of the state scan it once per request and not once per question.

    The scan takes 0.1 s on a long state and 1 s on one made to be slow (measured on 65,536 characters).
    """
    from sparrow_decider import static

    if not hasattr(static.kv_pairs, "cache_info"):
        static.kv_pairs = lru_cache(maxsize=1)(static.kv_pairs)


def _is_single(question: dict[str, Any]) -> bool:
    return question["type"] != "noul" and len(question["criteria"]) == 1


def _content(value: Any) -> str:
    """Text as this family renders it."""
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _too_long(where: tuple[str | int, ...], count: int, limit: int) -> InputRefused:
    if where[0] == "state":
        text = "the state"
    elif where[2] == "instructions":
        text = f"the instructions of question number {int(where[1]) + 1}"
    else:
        text = f"option {str(where[3])[:80]!r} of question number {int(where[1]) + 1}"
    message = f"{text}: {count} tokens, and the model reads {limit} of one text; shorten it or set truncate"
    return InputRefused(400, "max_tokens_exceeded", where, message)
