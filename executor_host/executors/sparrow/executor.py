"""The sparrow family in the host: the small numpy model of the package `sparrow-decider`, and its tokens.

The package is a pinned dependency with its weights inside the wheel, so both are verified: the code by its
version, the bundled weights by their sha256. Files are loaded by path: the package's own lookup by name
takes a file of that name in the working directory, and searches a folder that the environment names.

Decisions go through the public `Decider.probs`, one question at a time. Two things are put around it:

* `_Tokenizer` in place of the model's tokenizer: the same ids, remembered per request. The state is read
  once and not once per question, and counting tokens costs nothing, because every text is counted first
  and found in the memory when the model asks for it.
* the state is rendered to text once. `probs` would do it again for each question, with the same result.

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
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

from executor_host.errors import ConfigurationError, ExecutionFailed, InputRefused, NonFinite
from executor_host.executors import documents
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from protocol.contracts import sparrow as contract
from protocol.payloads import TextRequest

PACKAGE: Final = "sparrow_decider"

PACKAGE_VERSION: Final = "0.2.0"
"""The release whose texts, tokenizer and weights this module knows; another one answers differently."""

DEFAULT: Final = "nano-general"

SUM_TOLERANCE: Final = 1e-3
"""How far from 1 the warm-up's probabilities may sum: they are float32, so 1e-6 is expected."""


MAX_KEPT_TEXTS: Final = 2_048
MAX_KEPT_CHARS: Final = 256
"""Question and option texts whose tokens are kept between requests, least recently used first to go: together
at most a few MiB."""


class SparrowExecutor(Executor):
    """`path`: None or a name of the contract's `BUNDLED`, else a `.sparrow` file."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._truncate: bool = self.options["truncate"]
        self._decider: Any = None
        self._tokenizer: _Tokenizer | None = None
        self._default_sides: Mapping[str, str] = {}

    def __repr__(self) -> str:
        loaded = "not loaded" if self._decider is None else self._decider.name
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
        self._tokenizer = model.tok = _Tokenizer(model.tok, limit)
        if model.kv:
            _remember_pairs()
        self._decider = decider
        self._default_sides = package.NOUL_DEFAULT
        progress(1.0, "loaded")
        return {
            "identity": contract.identity(decider.name, digest),
            "name": str(decider.name),
            "sha256": digest,
            "dtype": "float32",
            "parameters": int(parameters),
            "limits": {"tokens_per_text": limit},
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
        off, `NonFinite`, and `Abandoned`, which is looked for before each text and each question.
        """
        decider, tokenizer = self._decider, self._tokenizer
        if decider is None or tokenizer is None:
            raise ExecutionFailed("the model is not loaded")
        if not isinstance(payload, TextRequest):
            raise ExecutionFailed(f"TextRequest is expected, not {type(payload).__name__}")
        asked, questions = documents.read(payload, ids=False)
        state = _content(asked)
        tokenizer.forget()
        try:
            kept = total = 0
            for where, text in self._texts(state, questions):
                check(call)
                count = tokenizer.count(text, keep=where[0] == "questions")
                if count > tokenizer.limit and not self._truncate:
                    raise _too_long(where, count, tokenizer.limit)
                total += count
                kept += min(count, tokenizer.limit)
            probabilities: list[list[float] | None] = []
            for index, question in enumerate(questions):
                check(call)
                probabilities.append(None if _is_single(question) else _ask(decider, state, question, index))
        finally:
            tokenizer.forget()
        truncated = {"kept": kept, "total": total} if kept < total else None
        return {"probabilities": probabilities, "tokens": kept, "truncated": truncated}

    def close(self) -> None:
        """Drops the model."""
        self._decider = self._tokenizer = None

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


class _Tokenizer:
    """The model's tokenizer with a memory: `encode` as the model calls it, `count` for us."""

    __slots__ = ("_ids", "_inner", "_kept", "limit")

    _ALL: ClassVar[int] = 2**62

    def __init__(self, inner: Any, limit: int) -> None:
        self._inner = inner
        self._ids: dict[str, list[int]] = {}
        self._kept: OrderedDict[str, list[int]] = OrderedDict()
        self.limit = limit
        """Tokens the model reads of one text; further ones are cut by the model's own call of `encode`."""

    def __repr__(self) -> str:
        return f"<_Tokenizer limit={self.limit} remembered={len(self._ids)}>"

    def count(self, text: str, *, keep: bool = False) -> int:
        """Word pieces of the whole text, special tokens excluded: the model adds none.

        `keep` remembers a short text beyond this request: clients ask the same questions of ever new states,
        and half of a small request's time is the tokenizing of its questions.
        """
        ids = self._kept.get(text)
        if ids is not None:
            self._kept.move_to_end(text)
            self._ids[text] = ids
            return len(ids)
        ids = self._all(text)
        if keep and len(text) <= MAX_KEPT_CHARS:
            self._kept[text] = ids
            if len(self._kept) > MAX_KEPT_TEXTS:
                self._kept.popitem(last=False)
        return len(ids)

    def encode(self, text: str, max_len: int) -> list[int]:
        """The first `max_len` word pieces, as the wrapped tokenizer gives them."""
        return self._all(text)[:max_len]

    def forget(self) -> None:
        """Ends a request: of its texts only short ones of its questions are kept, never the state."""
        self._ids.clear()

    def _all(self, text: str) -> list[int]:
        ids = self._ids.get(text)
        if ids is None:
            ids = self._ids[text] = self._inner.encode(text, self._ALL)
        return ids


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


def _ask(decider: Any, state: str, question: dict[str, Any], index: int) -> list[float]:
    _, _, _, values = decider.probs(state, question)
    probabilities: list[float] = values.tolist()
    if not all(map(math.isfinite, probabilities)):
        raise NonFinite(f"the model's answer to question number {index + 1} is not finite")
    return probabilities


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
