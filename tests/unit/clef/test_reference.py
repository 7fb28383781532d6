"""Against the published inference file, as the package clef-finetune carries it unchanged: tokens, logits, answers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")
if importlib.util.find_spec("clef_finetune") is None:
    pytest.skip("clef-finetune is not installed: pip install --no-deps clef-finetune==0.1.0", allow_module_level=True)

from executor_host.executors.clef import checkpoint as clef_checkpoint  # noqa: E402
from executor_host.executors.clef.executor import ClefExecutor  # noqa: E402
from frontend.families.clef.processor import ClefProcessor  # noqa: E402
from frontend.families.clef.profile import ClefNative  # noqa: E402
from tests.helpers import tiny_clef  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402

SHA256 = "0e304cf7c6500e8bb59bef7e2afd2c6373f82596dfb3b57d1aa93c175e2dc3a3"
"""Of the published joint_schema_model.py."""

WORDS = ["charged", "twice", "order", "back", "login", "über", "Zoë", "退款", "🙂", "1250.0", "<|im_start|>", "\n"]
ROUNDING = 1.01e-4
"""Of an answer: one step of its last decimal, where the two softmaxes differ by an ulp across a border."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint."""
    return tiny_clef.write(tmp_path_factory.mktemp("clef") / "tiny", seed=8)


class Reference:
    """The published model with the tiny weights, in float32."""

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        found = importlib.util.find_spec("clef_finetune")
        assert found is not None
        assert found.origin is not None
        file = Path(found.origin).parent / "_vendor" / "joint_schema_model.py"
        assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256
        spec = importlib.util.spec_from_file_location("joint_schema_model", file)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        # Its dataclasses look their module up by name.
        with pytest.MonkeyPatch.context() as patched:
            patched.setitem(__import__("sys").modules, "joint_schema_model", self.module)
            spec.loader.exec_module(self.module)
        encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))

        class Tokens:
            pad_token_id = 0
            tokenizer: Any = None

            def __call__(self, text: str, *, add_special_tokens: bool) -> Any:
                assert not add_special_tokens
                self.input_ids = encoder.encode(text, add_special_tokens=False).ids
                return self

        self.processor = Tokens()
        self.processor.tokenizer = self.processor
        backbone = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        head = self.module.JointSchemaHead(**json.loads((folder / "joint_head_config.json").read_text()))
        assert list(head.state_dict()) == list(clef_checkpoint.head_shapes(tiny_clef.HEAD))
        head.load_state_dict(load_file(folder / "joint_head.safetensors"), strict=True)
        self.model = self.module.ClefModel(backbone, head.float()).eval()

    def answer(self, body: dict[str, Any], max_length: int) -> Any:
        """The published function."""
        return self.module.systemone(self.model, self.processor, body, max_length)

    def logits(self, body: dict[str, Any], max_length: int) -> list[list[float]]:
        """Before the softmax, in the model's order."""
        record = self.module.encode_record(self.processor, body, max_length=max_length)
        with torch.inference_mode():
            found = self.model(self.module.collate_records([record], 0, torch.device("cpu")))[0]
        return [values.tolist() for values in found]


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    """Loaded once."""
    return Reference(folder)


def some(random_: random.Random, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = random_.randrange(7 if depth else 5)
    if kind < 3:
        return " ".join(random_.choices(WORDS, k=random_.randrange(1, 9)))
    if kind == 3:
        return random_.choice([1, 1250.0, -0.0, 1e16, True, None, 10**25])
    if kind == 4:
        return random_.choice(["", "x", [], {}])
    if kind == 5:
        return [some(random_, depth - 1) for _ in range(random_.randrange(4))]
    return {random_.choice(WORDS): some(random_, depth - 1) for _ in range(random_.randrange(4))}


def generated(seed: int) -> dict[str, Any]:
    """A request of the family's own dialect."""
    random_ = random.Random(seed)
    questions: dict[str, Any] = {}
    for number in range(random_.randrange(1, 6)):
        fields: dict[str, Any] = {"type": random_.choice(["noul", "choice", "score"])}
        if random_.randrange(3):
            fields["instructions"] = some(random_)
        if fields["type"] == "choice":
            names = random_.sample([*WORDS, "B", "a", "10", "2"], random_.randrange(1, 6))
            fields["criteria"] = {name: some(random_) for name in names}
        elif fields["type"] == "score":
            fields["criteria"] = [some(random_) for _ in range(random_.randrange(1, 6))]
        elif random_.randrange(2):
            fields["criteria"] = {
                side: some(random_) for side in random_.sample(["true", "false", "x"], random_.randrange(4))
            }
        questions[f"{random_.choice(WORDS)}{number}"] = fields
    return {"model": "m", "state": some(random_), "questions": questions}


LIMIT = 3000


@pytest.fixture(scope="module")
def executor(folder: Path) -> ClefExecutor:
    """With the reference's switch, and a limit that some of the requests meet."""
    made = ClefExecutor(str(folder), {"device": "cpu", "truncate": True, "max_length": LIMIT})
    made.load(lambda fraction, note: None)
    return made


@pytest.mark.parametrize("seed", range(25))
def test_generated_requests(reference: Reference, executor: ClefExecutor, seed: int) -> None:
    """Equal token counts, logits within 1e-5, and the same body, numbers within a step of their last decimal."""
    body = generated(seed)
    if seed % 5 == 0:
        body["state"] = "x y z " * 1100
    profile = ClefNative(ClefProcessor({}, {}))
    ready = profile.prepare(json.dumps(body).encode())
    (unit,) = ready.units
    output = executor.execute(unit, FakeCall())
    assert (output["truncated"] is not None) == (seed % 5 == 0)
    found = iter(output["logits"].tolist())
    for question, expected in zip(body["questions"].values(), reference.logits(body, LIMIT), strict=True):
        names = list(question["criteria"]) if question["type"] == "choice" else []
        order = [sorted(names).index(name) for name in names] or range(len(expected))
        assert [next(found) for _ in expected] == pytest.approx([expected[place] for place in order], abs=1e-5)
    close(profile.finish(ready, [output], 0.0), reference.answer(body, LIMIT))


def test_one_that_is_too_long_for_its_schema(reference: Reference, executor: ClefExecutor) -> None:
    """The same words."""
    body = generated(1)
    body["questions"]["long"] = {"type": "choice", "criteria": {str(number): "word " * 30 for number in range(60)}}
    (unit,) = ClefNative(ClefProcessor({}, {})).prepare(json.dumps(body).encode()).units
    with pytest.raises(ValueError, match="schema requires") as expected:
        reference.answer(body, LIMIT)
    with pytest.raises(Exception, match="schema requires") as found:
        executor.execute(unit, FakeCall())
    assert str(found.value) == str(expected.value)


def close(found: Any, expected: Any) -> None:
    """Equal, keys in their order, numbers of answers within a step of their last decimal."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            close(found[key], value)
    elif isinstance(expected, float) and not isinstance(found, str):
        assert found == pytest.approx(expected, abs=ROUNDING)
    else:
        assert found == expected
