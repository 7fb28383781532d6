"""The host's half, on a tiny checkpoint on the CPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor_host.errors import Abandoned, ConfigurationError, ExecutionFailed, FatalExecutionError, NonFinite
from executor_host.executors.laya import warm_up as laya_warm_up
from executor_host.executors.laya.checkpoint import FILES
from executor_host.executors.laya.executor import LayaExecutor
from frontend.families.laya.checkpoint import load
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest
from tests.helpers.calls import FakeCall
from tests.unit.laya.helpers import QUESTIONS

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the laya family needs framehost[torch]")


@pytest.fixture(scope="module")
def loaded(whole: Path) -> Iterator[tuple[LayaExecutor, dict[str, Any]]]:
    """One that is ready, and its facts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    executor = LayaExecutor(str(whole), {"device": "cpu", "truncate": True})
    heard: list[tuple[float, str]] = []
    facts = executor.load(lambda fraction, note: heard.append((fraction, note)))
    executor.warm_up()
    assert [fraction for fraction, _ in heard] == sorted(fraction for fraction, _ in heard)
    assert heard[-1][0] == 1.0
    yield executor, dict(facts)
    executor.close()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def executor(loaded: tuple[LayaExecutor, dict[str, Any]]) -> LayaExecutor:
    return loaded[0]


@pytest.fixture(scope="module")
def profile(loaded: tuple[LayaExecutor, dict[str, Any]], whole: Path) -> LayaNative:
    """The front's half of the same checkpoint."""
    return LayaNative(LayaProcessor(loaded[1], {}, str(whole)))


def unit(profile: LayaNative, state: Any, questions: Any) -> MarkedRowsRequest:
    (made,) = profile.prepare(json.dumps({"state": state, "questions": questions}).encode()).units
    assert isinstance(made, MarkedRowsRequest)
    return made


def test_facts(loaded: tuple[LayaExecutor, dict[str, Any]]) -> None:
    """What every family reports, every file's sha256, and the limits of a request."""
    facts = loaded[1]
    assert set(facts["files"]) == set(FILES)
    assert facts["sha256"] == facts["files"]["model.safetensors"]
    assert all(digest in facts["identity"] for digest in facts["files"].values())
    assert (facts["name"], facts["dtype"], facts["device"]) == ("laya", "float32", "cpu")
    assert facts["limits"] == {"rows": 16, "row_tokens": 512, "markers": 2048}
    assert facts["known_tokenizer"] is False


def test_the_warm_up_is_five_shapes_each_twice(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes of the family's own worker: short, middle and long, three types, six questions."""
    executor = LayaExecutor(str(whole), {"device": "cpu"})
    executor.load(lambda fraction, note: None)
    seen: list[MarkedRowsRequest] = []
    real = executor.execute

    def execute(payload: object, call: Any) -> dict[str, Any]:
        assert isinstance(payload, MarkedRowsRequest)
        seen.append(MarkedRowsRequest.from_wire(payload.to_wire()))
        return real(payload, call)

    monkeypatch.setattr(executor, "execute", execute)
    executor.warm_up()
    assert [request.rows for request in seen] == [1, 1, 1, 1, 1, 1, 3, 3, 6, 6]
    assert seen[6].counts.tolist() == [3, 3, 2]
    assert seen[6].kinds.tolist() == [0, 1, 2]
    lengths = [int(request.lengths.max()) for request in seen[::2]]
    assert lengths[0] < lengths[1] < lengths[2] <= 512
    executor.close()


def test_the_warm_up_reads_rows_as_the_front_makes_them(whole: Path, profile: LayaNative) -> None:
    """The same tokens and markers as for the same request over HTTP."""
    words = {
        "c": {
            "type": "choice",
            "instructions": "Which team should handle this?",
            "criteria": {"billing": "Charges and refunds", "technical": "Software problems", "other": "Anything else"},
        },
        "s": {"type": "score", "instructions": "How urgent is it?", "criteria": ["Low", "Medium", "High"]},
        "n": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
    }
    made = unit(profile, " ".join(["refund"] * 10), words)
    special = load(str(whole)).special
    warm = list(laya_warm_up.requests(whole / "tokenizer" / "tokenizer.json", special, 512))[3]
    assert warm.markers.tolist() == made.markers.tolist()
    assert warm.lengths.tolist() == made.lengths[:3].tolist()
    for row, length in enumerate(warm.lengths.tolist()):
        assert warm.tokens[row, :length].tolist() == made.tokens[row, :length].tolist()


def test_questions_do_not_influence_each_other(executor: LayaExecutor, profile: LayaNative) -> None:
    """Logits and actions of a question are the same alone and among others, within float32 rounding: wherever it
    stands among them, and however much shorter or longer they are."""
    state = "The customer was charged twice for one order and asks for a refund. " * 9
    many = {"type": "choice", "instructions": "Which?", "criteria": [str(index) for index in range(30)]}
    long = {"type": "noul", "instructions": "Is the money asked back? " * 40}
    questions = {**QUESTIONS, "many": many, "long": long}
    backwards = {**{f"before {n}": long for n in range(11)}, **dict(reversed(questions.items()))}

    def answers(asked: dict[str, Any], about: str = state) -> dict[str, Any]:
        output = executor.execute(unit(profile, about, asked), FakeCall())
        ends = np.cumsum(output["counts"])[:-1]
        logits = np.split(output["logits"], ends)
        return {name: [*logits[index], *output["action"][index]] for index, name in enumerate(asked)}

    for about in (state, "x"):  # with a state of one token the others are many times as long
        alone = {name: answers({name: fields}, about)[name] for name, fields in questions.items()}
        for together in (answers(questions, about), answers(backwards, about)):
            for name, expected in alone.items():
                assert together[name] == pytest.approx(expected, abs=1e-5), name
    # Which means something: other words of the same question are seen.
    other = answers({"many": {**many, "instructions": "Who?"}}, "x")["many"]
    assert np.abs(np.subtract(other, alone["many"])).max() > 1e-3


def test_padding_reaches_nothing(executor: LayaExecutor, profile: LayaNative) -> None:
    """What is beyond a row's tokens may be anything."""
    made = unit(profile, "x", QUESTIONS)
    expected = executor.execute(made, FakeCall())
    tokens = np.where(np.arange(made.tokens.shape[1]) < made.lengths[:, None], made.tokens, 7).astype(np.int32)
    changed = MarkedRowsRequest(tokens, made.lengths, made.kinds, made.markers, made.counts)
    found = executor.execute(changed, FakeCall())
    assert found["logits"] == pytest.approx(expected["logits"], abs=1e-6)
    assert found["processed"] == expected["processed"] == int(made.lengths.sum())


def test_the_same_request_gives_the_same_bits(executor: LayaExecutor, profile: LayaNative) -> None:
    made = unit(profile, "x", QUESTIONS)
    first, second = (executor.execute(made, FakeCall()) for _ in range(2))
    assert np.array_equal(first["logits"], second["logits"])
    assert np.array_equal(first["action"], second["action"])


def test_a_single_option(executor: LayaExecutor, profile: LayaNative) -> None:
    """One logit; the action is told of no second one."""
    made = unit(profile, "x", {"q": {"type": "choice", "instructions": "i", "criteria": ["only"]}})
    output = executor.execute(made, FakeCall())
    assert output["logits"].shape == (1,)
    assert output["action"].shape == (1, 2)


def test_action_features() -> None:
    """The largest probability, its lead, the entropy's share, and the options; absent ones count for nothing."""
    from executor_host.executors.laya.model import ABSENT, action_features

    logits = torch.tensor([[0.0, 0.0, ABSENT], [np.log(6.0), np.log(3.0), np.log(1.0)], [5.0, ABSENT, ABSENT]])
    features = action_features(logits, torch.tensor([2, 3, 1])).numpy()
    entropy = -sum(p * np.log(p) for p in (0.6, 0.3, 0.1)) / np.log(3)
    expected = [[0.5, 0, 1, 2 / 255], [0.6, 0.3, entropy, 3 / 255], [1, 1, 0, 2 / 255]]
    assert features == pytest.approx(np.array(expected), abs=1e-6)
    alone = action_features(torch.tensor([[5.0]]), torch.tensor([1])).numpy()
    assert alone == pytest.approx(features[2:], abs=1e-7)


def test_bfloat16_is_close(whole: Path, executor: LayaExecutor, profile: LayaNative) -> None:
    """The passes in bfloat16, the heads in float32."""
    other = LayaExecutor(str(whole), {"device": "cpu", "dtype": "bfloat16"})
    facts = other.load(lambda fraction, note: None)
    assert facts["dtype"] == "bfloat16"
    made = unit(profile, "charged twice", QUESTIONS)
    mine, exact = (one.execute(made, FakeCall())["logits"] for one in (other, executor))
    assert mine.dtype == np.float32
    assert mine == pytest.approx(exact, abs=0.1)
    assert not np.array_equal(mine, exact)
    other.close()


# What goes wrong


def test_weights_that_are_cast_once_give_the_same_bits(
    whole: Path, profile: LayaNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast casts a linear layer's weights in every pass; cast at load they are half as large. No bit moves."""
    import torch

    from executor_host.executors.laya import model as laya_model

    request = unit(profile, "One order was charged twice. " * 9, QUESTIONS)
    found = {}
    for way in ("once", "every pass"):
        with monkeypatch.context() as patched:
            if way == "every pass":
                patched.setattr(laya_model, "cast_linear_weights", lambda module, dtype: None)
            executor = LayaExecutor(str(whole), {"device": "cpu", "dtype": "bfloat16"})
            executor.load(lambda fraction, note: None)
        model: Any = executor._model
        linear = [layer for layer in model._encoder.modules() if isinstance(layer, torch.nn.Linear)]
        linear += [layer for layer in model._parts["head"].modules() if isinstance(layer, torch.nn.Linear)]
        expected = torch.bfloat16 if way == "once" else torch.float32
        assert {layer.weight.dtype for layer in linear} == {expected}
        assert {weights.dtype for weights in model._parts["scorer"].parameters()} == {torch.float32}
        found[way] = executor.execute(request, FakeCall())
        executor.close()
    for name in ("logits", "action"):
        assert found["once"][name].tobytes() == found["every pass"][name].tobytes()


def test_nobody_waits(executor: LayaExecutor, profile: LayaNative) -> None:
    """Looked for before the pass."""
    with pytest.raises(Abandoned):
        executor.execute(unit(profile, "x", QUESTIONS), FakeCall(looks=0))


def test_what_is_no_request_for_this_model(executor: LayaExecutor, profile: LayaNative) -> None:
    """Tokens and types it has not, more rows, columns or markers than it takes, another payload."""
    made = unit(profile, "x", {"q": QUESTIONS["refund"]})
    fields = made.to_wire()

    def changed(**other: Any) -> MarkedRowsRequest:
        return MarkedRowsRequest.from_wire({**fields, **{name: np.array(v, np.int32) for name, v in other.items()}})

    far = made.tokens.copy()
    far[0, 1] = 10_000
    bad = [
        changed(tokens=far),
        changed(kinds=[3]),
        changed(tokens=np.zeros((1, 513))),
        changed(tokens=np.zeros((17, 64)), lengths=[9] * 17, kinds=[0] * 17, counts=[1] * 17, markers=[1] * 17),
        changed(counts=[2049], markers=[1] * 2049),
    ]
    for payload in bad:
        with pytest.raises(Malformed):
            executor.execute(payload, FakeCall())
    with pytest.raises(ExecutionFailed):
        executor.execute(object(), FakeCall())
    with pytest.raises(ExecutionFailed, match="not loaded"):
        LayaExecutor(executor.path, {}).execute(made, FakeCall())
    with pytest.raises(ConfigurationError, match="after the load"):
        LayaExecutor(executor.path, {}).warm_up()


@pytest.mark.parametrize("where", ["logits", "action"])
def test_numbers_that_are_none_are_no_answer(
    executor: LayaExecutor, profile: LayaNative, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Of an option or of an action."""
    model: Any = executor._model
    real = model.read

    def read(*arguments: Any) -> Any:
        logits, action = real(*arguments)
        (logits if where == "logits" else action)[0, 0] = np.nan
        return logits, action

    monkeypatch.setattr(model, "read", read)
    with pytest.raises(NonFinite):
        executor.execute(unit(profile, "x", QUESTIONS), FakeCall())


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(MemoryError(), FatalExecutionError), (RuntimeError("a bug"), RuntimeError)],
    ids=["memory", "another"],
)
def test_a_device_that_failed_is_fatal(
    executor: LayaExecutor,
    profile: LayaNative,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    expected: type[Exception],
) -> None:
    """Out of memory is the device's; the device is waited for, whatever the error."""
    model: Any = executor._model
    waited = []

    def read(*arguments: Any) -> Any:
        raise raised

    monkeypatch.setattr(model, "read", read)
    monkeypatch.setattr("executor_host.devices.synchronize", lambda device: waited.append(True))
    with pytest.raises(expected) as caught:
        executor.execute(unit(profile, "x", QUESTIONS), FakeCall())
    assert type(caught.value) is expected
    assert waited == [True]


def test_a_warm_up_that_fails_ends_the_start(executor: LayaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not finite: the same again would not help. A device that failed: it might."""

    def not_finite(*arguments: Any) -> Any:
        raise NonFinite("no numbers")

    def no_memory(*arguments: Any) -> Any:
        raise MemoryError

    model: Any = executor._model
    monkeypatch.setattr(model, "read", not_finite)
    with pytest.raises(ConfigurationError, match="warm-up decision failed"):
        executor.warm_up()
    monkeypatch.setattr(model, "read", no_memory)
    with pytest.raises(FatalExecutionError):
        executor.warm_up()


@pytest.mark.parametrize(
    "options",
    [{"revision": "x"}, {"device": ""}, {"device": 1}, {"dtype": "float16"}, {"dtype": None}],
    ids=["unknown", "empty", "number", "dtype", "null"],
)
def test_options_are_checked(options: dict[str, object]) -> None:
    """Their names and their values, before anything is read."""
    with pytest.raises(ConfigurationError, match="option"):
        LayaExecutor("nowhere", options)


def test_a_device_that_is_not_there(whole: Path) -> None:
    """Said, not replaced by the CPU."""
    for device in ("cuda:99", "tpu", "meta"):
        with pytest.raises(ConfigurationError, match="device"):
            LayaExecutor(str(whole), {"device": device}).load(lambda fraction, note: None)


def test_a_setting_that_the_library_does_not_take(whole: Path, tmp_path: Path) -> None:
    """Not retried: the same folder would be found again."""
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    file = folder / "encoder" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "norm_eps": "small"}))
    with pytest.raises(ConfigurationError, match="the encoder cannot be loaded"):
        LayaExecutor(str(folder), {"device": "cpu"}).load(lambda fraction, note: None)
