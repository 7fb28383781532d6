"""The embedding family in the front: rows, limits, options, and what the host's cosines become."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded, Unavailable
from frontend.families.base import AssetError
from frontend.families.embedding import processor as module
from frontend.families.embedding.processor import EmbeddingProcessor
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Score
from protocol.options import OptionError
from tests.helpers.tiny_embedding import MAX_SEQ_LENGTH

CLS, SEP = 2, 3
CHOICE = Choice("team", "Which team?", (("billing", "a charge"), ("bug", None)))
ONE = Choice("one", None, (("only", None),))
BARE = Noul("refund", "the customer asks for the money back", None)
LEVELS = Score("harm", None, ("small", "large"))


def request(state: Any, *questions: Question) -> DecisionRequest:
    return DecisionRequest(None, state, questions)


def rows(payload: Any) -> list[list[int]]:
    ends = [0, *accumulate(payload.lengths.tolist())]
    return [payload.tokens[start:end].tolist() for start, end in pairwise(ends)]


def ids(processor: EmbeddingProcessor, *texts: str) -> list[list[int]]:
    return [one.ids for one in processor.checkpoint.tokenizer.encode_batch(list(texts))]


def test_the_state_and_then_the_texts_of_each_question(processor: EmbeddingProcessor) -> None:
    """Each once, between its special tokens; a question that the model is not asked about has none."""
    prepared = processor.prepare(request("the customer was charged", CHOICE, ONE, BARE, LEVELS))
    (payload,) = prepared.units
    assert rows(payload) == ids(
        processor,
        "the customer was charged",
        "billing: a charge",
        "bug",
        "the customer asks for the money back",
        "small",
        "large",
    )
    assert payload.questions.tolist() == [0, 1, 1, 2, 3, 3]
    assert payload.candidates.tolist() == [1] * 6
    assert prepared.cost == len(payload.tokens)
    assert all(row[0] == CLS and row[-1] == SEP for row in rows(payload))


def test_the_padding_and_the_cut_of_a_tokenizer_file_are_not_kept(processor: EmbeddingProcessor) -> None:
    """The file of the published model pads every text to 128 tokens and cuts there."""
    (payload,) = processor.prepare(request("the " * 12, ONE)).units
    assert payload.lengths.tolist() == [14]


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (request("the " * (MAX_SEQ_LENGTH - 1), BARE), "the state"),
        (request("the", CHOICE, Noul("long", "the " * (MAX_SEQ_LENGTH - 1), None)), 'the statement of question "long"'),
        (request("the", Choice("c", None, (("a", None), ("b", "the " * 40)))), 'option "b" of question "c"'),
    ],
    ids=["state", "statement", "option"],
)
def test_a_text_that_is_too_long_is_refused(processor: EmbeddingProcessor, asked: DecisionRequest, place: str) -> None:
    """By name, with its tokens and the limit; one token less is read."""
    with pytest.raises(TokensExceeded) as refused:
        processor.prepare(asked)
    assert refused.value.message.startswith(f"{place} has ")
    assert refused.value.message.endswith(f" tokens; this model reads at most {MAX_SEQ_LENGTH} of one text")
    processor.prepare(request("the " * (MAX_SEQ_LENGTH - 2), BARE))


def test_a_cut_text_keeps_its_special_tokens(texts: Path) -> None:
    """With `truncate`; the answer says how many tokens of the whole request were read and sent."""
    cutting = EmbeddingProcessor({}, {"truncate": True}, str(texts))
    prepared = cutting.prepare(request("the " * 100, BARE))
    (payload,) = prepared.units
    (the,) = cutting.checkpoint.tokenizer.encode("the", add_special_tokens=False).ids
    assert rows(payload)[0] == [CLS, *[the] * (MAX_SEQ_LENGTH - 2), SEP]
    decision = cutting.finish(prepared, [{"cosines": np.array([0.5], np.float32)}])
    kept = len(payload.tokens)
    assert decision.extras["x_truncated"] == {"kept": kept, "total": kept + 102 - MAX_SEQ_LENGTH}
    assert decision.usage == {"input_tokens": kept, "output_tokens": 0}
    short = cutting.prepare(request("the", BARE))
    assert "x_truncated" not in cutting.finish(short, [{"cosines": np.array([0.5], np.float32)}]).extras


def test_a_request_of_too_many_tokens_is_refused(
    processor: EmbeddingProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In total, naming the limit; at the limit it is taken."""
    size = processor.prepare(request("the customer", CHOICE)).cost
    monkeypatch.setattr(module, "MAX_TOKENS", size)
    processor.prepare(request("the customer", CHOICE))
    monkeypatch.setattr(module, "MAX_TOKENS", size - 1)
    with pytest.raises(RequestTooLarge, match=f"has {size} tokens in 3 texts; this model reads at most {size - 1}"):
        processor.prepare(request("the customer", CHOICE))


def test_a_text_without_a_token_is_refused(texts: Path, tmp_path: Path) -> None:
    """Where the tokenizer adds none of its own; there is nothing that could have a vector."""
    bare = Path(shutil.copytree(texts, tmp_path / "bare"))
    document = json.loads((bare / "tokenizer.json").read_text())
    (bare / "tokenizer.json").write_text(json.dumps({**document, "post_processor": None}))
    processor = EmbeddingProcessor({}, {}, str(bare))
    with pytest.raises(InvalidRequest) as refused:
        processor.prepare(request("", BARE))
    assert refused.value.faults[0].loc == ("state",)
    with pytest.raises(InvalidRequest, match='level 1 of question "s" has no token of this model'):
        processor.prepare(request("the", Score("s", None, ("low", " "))))


def test_lower_case_is_the_checkpoints_own(texts: Path, tmp_path: Path) -> None:
    """`do_lower_case` lowers texts before a tokenizer that would not."""
    folder = Path(shutil.copytree(texts, tmp_path / "lower"))
    document = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**document, "normalizer": None}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24, "do_lower_case": true}')
    (payload,) = EmbeddingProcessor({}, {}, str(folder)).prepare(request("THE Customer", ONE)).units
    (expected,) = EmbeddingProcessor({}, {}, str(texts)).prepare(request("the customer", ONE)).units
    assert rows(payload) == rows(expected)


def test_answers_in_request_order(processor: EmbeddingProcessor) -> None:
    """Each question with its own cosines; the statement readings are named."""
    prepared = processor.prepare(request("the customer", CHOICE, ONE, BARE, LEVELS))
    cosines = np.array([0.1, 0.6, 0.2, 0.5, 0.1], np.float32)
    decision = processor.finish(prepared, [{"cosines": cosines}])
    answers: dict[str, Any] = dict(decision.answers)
    assert list(answers) == ["team", "one", "refund", "harm"]
    assert answers["team"].choice == "bug"
    assert answers["one"].choice == "only"
    assert answers["refund"].noul == pytest.approx(0.5)
    assert answers["harm"].score < 0.01
    assert decision.extras == {"x_statement": ["refund"]}
    assert decision.input_tokens == prepared.cost


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [{}],
        [{"cosines": [0.5]}],
        [{"cosines": np.zeros(1, np.float64)}],
        [{"cosines": np.zeros(2, np.float32)}],
        [{"cosines": np.array([np.nan], np.float32)}],
    ],
    ids=["none", "empty", "list", "float64", "two", "nan"],
)
def test_what_is_no_output_is_an_internal_error(processor: EmbeddingProcessor, outputs: list[object]) -> None:
    """Never an answer."""
    prepared = processor.prepare(request("the", BARE))
    with pytest.raises(InternalError):
        processor.finish(prepared, outputs)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1000.5, 10**400, "20", True])
def test_a_scale_that_is_none_is_refused(scale: object) -> None:
    """Naming the option."""
    with pytest.raises(OptionError) as refused:
        EmbeddingProcessor.OPTIONS.complete({"scale": scale})
    assert refused.value.key == "scale"


def test_a_whole_number_is_a_scale() -> None:
    """As TOML and JSON have it, and as the documentation writes it."""
    scale = EmbeddingProcessor.OPTIONS.complete({"scale": 20})["scale"]
    assert (scale, type(scale)) == (20.0, float)


def test_the_host_must_have_loaded_the_same_files(texts: Path, processor: EmbeddingProcessor) -> None:
    """Tokens meet the weights they belong to, or nothing."""
    files = dict(processor.checkpoint.sha256)
    assert files.keys() == {"tokenizer.json", "sentence_bert_config.json"}
    EmbeddingProcessor({"files": files}, {}, str(texts))
    for facts in ({"files": {**files, "tokenizer.json": "0" * 64}}, {"files": None}):
        with pytest.raises(AssetError):
            EmbeddingProcessor(facts, {}, str(texts))


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "is not a tokenizer"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "cannot be read"),
        (lambda folder: (folder / "sentence_bert_config.json").write_text("["), "is not JSON"),
        (lambda folder: (folder / "sentence_bert_config.json").write_text("[]"), "is not a JSON object"),
        (lambda folder: (folder / "sentence_bert_config.json").unlink(), "does not say how many tokens"),
        (
            lambda folder: (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 0}'),
            "is 0; a number",
        ),
    ],
    ids=["tokenizer", "no tokenizer", "JSON", "object", "no limit", "zero"],
)
def test_a_folder_that_cannot_be_prepared_for(texts: Path, tmp_path: Path, break_it: Any, words: str) -> None:
    """Waits with its complaint until a request comes, and refuses a host's facts at once."""
    folder = Path(shutil.copytree(texts, tmp_path / "broken"))
    break_it(folder)
    processor = EmbeddingProcessor({}, {}, str(folder))
    with pytest.raises(Unavailable, match=words):
        processor.prepare(request("the", BARE))
    with pytest.raises(AssetError, match=words):
        EmbeddingProcessor({"files": {}}, {}, str(folder))


def test_max_tokens_replaces_the_folders_limit(texts: Path) -> None:
    """Up or down."""
    shorter = EmbeddingProcessor({}, {"max_tokens": 5}, str(texts))
    with pytest.raises(TokensExceeded, match="the state has 6 tokens; this model reads at most 5 of one text"):
        shorter.prepare(request("the the the the", ONE))
