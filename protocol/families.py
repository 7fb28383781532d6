"""Model families by name: where the two halves of each are, without importing either.

A family is a processor in the front (`prepare`, `finish`), an executor in the host (`load`, `warm_up`,
`execute`) and one payload type between them. The built-in ones are a table; others register a `Family`
under the entry-point group `framehost.families` of their own distribution:

    [project.entry-points."framehost.families"]
    parrot = "parrot_family:FAMILY"

The module that holds the entry point is imported by the supervisor, the front and the host alike, so it
must import neither half; the halves are named as "module:attribute" and resolved where they are needed.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any, Final

from protocol.contracts import clef, cua_s1, decider, embedding, kev, laya, nimble, open_jev, sparrow, transformers
from protocol.models import Batch
from protocol.options import NO_OPTIONS, OptionTable

ENTRY_POINT_GROUP: Final = "framehost.families"


class UnknownFamily(LookupError):
    """No family of that name is built in or registered; the message lists those that are."""


@dataclass(frozen=True, slots=True)
class Family:
    """Where the parts of one family are, each as "module:attribute"."""

    name: str
    processor: str
    executor: str
    payload: str
    options: OptionTable = NO_OPTIONS
    """What a model's configuration may set. Its processor and its executor have the same table as their `OPTIONS`."""
    default_max_requests: int | None = 1024
    """Request slots of a deployment when the configuration names none; None = no bound."""
    default_max_cost: int | None = None
    """The total cost of a deployment's open requests when the configuration names none; None = no bound."""
    execution_limit_s: float = 600.0
    """Seconds that one unit may take when the configuration does not say: twenty times the default deadline of a
    request, for models whose largest legal unit takes minutes on a slow device."""
    retire_on_error: bool = False
    """Whether any execution error retires the host, or only a device error."""
    native: str = ""
    """The front's `NativeProfile`, for families that can have a listener of their own; "" = none."""
    inspect: str = ""
    """A function (path, progress) -> lines that describe the checkpoint it has checked, without loading it.
    Raises the host's `ConfigurationError`, and imports no device library; "" = none."""
    marks: tuple[str, ...] = ()
    """Patterns of file names, or paths within a folder: a folder with such a file, or such a file, is a checkpoint of
    this family. With them, a configured path is one of the file system and has to exist."""
    general: bool = False
    """Whether its marks are files that checkpoints of other families have, too: it is what a folder is when no other
    family's marks are there."""
    front_files: tuple[str, ...] = ()
    """Files of the checkpoint folder that the front's half reads. A host on another machine sends them along."""
    bundled: tuple[str, ...] = ()
    """Names that may be given instead of a path."""
    pure: bool = False
    """Whether equal payloads have equal answers, whatever was asked before: then equal work may be done once."""
    batch: Batch | None = None
    """What its host is sent at once when the configuration does not say; None: one unit."""
    look_ahead: bool = False
    """Whether its host is sent a batch while it executes one, when the configuration does not say."""
    needs_path: str = ""
    """What its path has to lead to, in words, when it cannot do without one; "" = it can."""


BUILT_IN: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family(
            name="sparrow",
            processor="frontend.families.sparrow.processor:SparrowProcessor",
            executor="executor_host.executors.sparrow.executor:SparrowExecutor",
            payload="protocol.payloads:TextRequest",
            options=sparrow.OPTIONS,
            pure=True,
            batch=Batch(),
            look_ahead=True,
            inspect="executor_host.executors.sparrow.executor:inspect",
            marks=("*.sparrow",),
            bundled=tuple(sparrow.BUNDLED),
            execution_limit_s=60.0,  # the largest legal request takes seconds
        ),
        Family(
            name="decider",
            processor="frontend.families.decider.processor:DeciderProcessor",
            executor="executor_host.executors.decider.executor:DeciderExecutor",
            payload="protocol.payloads:RowsRequest",
            options=decider.OPTIONS,
            pure=True,
            look_ahead=True,
            # One largest legal request, or as much as a fast card reads within the default deadline.
            default_max_cost=1_048_576,
            retire_on_error=True,
            native="frontend.families.decider.profile:DeciderNative",
            inspect="executor_host.executors.decider.checkpoint:inspect",
            marks=(decider.CONFIG,),
            needs_path="the folder of a checkpoint",
            front_files=decider.FRONT_FILES,
        ),
        Family(
            name="cua-s1",
            processor="frontend.families.cua_s1.processor:CuaS1Processor",
            executor="executor_host.executors.cua_s1.executor:CuaS1Executor",
            payload="protocol.payloads:PromptRequest",
            options=cua_s1.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            native="frontend.families.cua_s1.profile:CuaS1Native",
            inspect="executor_host.executors.cua_s1.checkpoint:inspect",
            marks=(cua_s1.MARKER, f"{cua_s1.ADAPTER}/adapter_config.json"),
            needs_path="the folder of a checkpoint",
            front_files=cua_s1.FRONT_FILES,
        ),
        Family(
            name="open-jev",
            processor="frontend.families.open_jev.processor:OpenJevProcessor",
            executor="executor_host.executors.open_jev.executor:OpenJevExecutor",
            payload="protocol.payloads:RowsRequest",
            options=open_jev.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            native="frontend.families.open_jev.profile:OpenJevNative",
            inspect="executor_host.executors.open_jev.checkpoint:inspect",
            marks=(open_jev.MANIFEST, open_jev.MODEL),
            needs_path="the folder of a checkpoint",
            front_files=open_jev.FRONT_FILES,
        ),
        Family(
            name="kev",
            processor="frontend.families.kev.processor:KevProcessor",
            executor="executor_host.executors.kev.executor:KevExecutor",
            payload="protocol.payloads:MarkedRowsRequest",
            options=kev.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            native="frontend.families.kev.profile:KevNative",
            inspect="executor_host.executors.kev.checkpoint:inspect",
            marks=(kev.TRAINING,),
            needs_path="the folder of a checkpoint",
            front_files=kev.FRONT_FILES,
        ),
        Family(
            name="nimble",
            processor="frontend.families.nimble.processor:NimbleProcessor",
            executor="executor_host.executors.nimble.executor:NimbleExecutor",
            payload="protocol.payloads:RowsRequest",
            options=nimble.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            native="frontend.families.nimble.profile:NimbleNative",
            inspect="executor_host.executors.nimble.checkpoint:inspect",
            marks=(nimble.SCHEMA,),
            needs_path="the folder of a checkpoint",
            front_files=nimble.FRONT_FILES,
        ),
        Family(
            name="clef",
            processor="frontend.families.clef.processor:ClefProcessor",
            executor="executor_host.executors.clef.executor:ClefExecutor",
            payload="protocol.payloads:TextRequest",
            options=clef.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            retire_on_error=True,
            native="frontend.families.clef.profile:ClefNative",
            inspect="executor_host.executors.clef.checkpoint:inspect",
            marks=("joint_head_config.json",),
            needs_path="the folder of a checkpoint",
        ),
        Family(
            name="laya",
            processor="frontend.families.laya.processor:LayaProcessor",
            executor="executor_host.executors.laya.executor:LayaExecutor",
            payload="protocol.payloads:MarkedRowsRequest",
            options=laya.OPTIONS,
            pure=True,
            look_ahead=True,
            default_max_requests=None,
            retire_on_error=True,
            native="frontend.families.laya.profile:LayaNative",
            inspect="executor_host.executors.laya.checkpoint:inspect",
            marks=(laya.CONFIG,),
            needs_path="the folder of a checkpoint",
            front_files=laya.FRONT_FILES,
        ),
        Family(
            name="embedding",
            processor="frontend.families.embedding.processor:EmbeddingProcessor",
            executor="executor_host.executors.embedding.executor:EmbeddingExecutor",
            payload="protocol.payloads:RowsRequest",
            options=embedding.OPTIONS,
            pure=True,
            batch=Batch(),
            look_ahead=True,
            inspect="executor_host.executors.embedding.checkpoint:inspect",
            marks=("modules.json",),
            needs_path="the folder of a sentence encoder",
            front_files=embedding.FRONT_FILES,
        ),
        Family(
            name="transformers",
            processor="frontend.families.transformers.processor:TransformersProcessor",
            executor="executor_host.executors.transformers.executor:TransformersExecutor",
            payload="protocol.payloads:TextRequest",
            options=transformers.OPTIONS,
            pure=True,
            look_ahead=True,
            inspect="executor_host.executors.transformers.checkpoint:inspect",
            marks=("config.json", "*.gguf"),
            needs_path="the folder of a checkpoint, or a GGUF file",
            general=True,
        ),
    )
}


def find(name: str) -> Family:
    """The family called `name`; `UnknownFamily` when there is none, or when its entry point does not hold it.

    A built-in name means the built-in family, whatever is registered.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    from importlib.metadata import entry_points  # a slow import that the built-in families do without

    registered = entry_points(group=ENTRY_POINT_GROUP)
    for entry in registered:
        if entry.name == name:
            where = f"entry point {name!r} of group {ENTRY_POINT_GROUP} ({entry.value})"
            try:
                family = entry.load()
            except Exception as error:  # a foreign module can raise anything while it is imported
                raise UnknownFamily(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
            if not isinstance(family, Family) or family.name != name:
                raise UnknownFamily(f"{where} is not a Family of that name")
            return family
    known = ", ".join(sorted({*BUILT_IN, *(entry.name for entry in registered)}))
    raise UnknownFamily(f"there is no model family {name!r}; known families: {known}")


def names() -> tuple[str, ...]:
    """Every family: those that are built in, then those that other distributions register, by name."""
    from importlib.metadata import entry_points

    registered = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(registered - BUILT_IN.keys()))


def resolve(reference: str) -> Any:
    """The object that a "module:attribute" reference names. Imports the module, whose errors pass unchanged."""
    module, attribute = _parts(reference)
    return getattr(importlib.import_module(module), attribute)


def locate(reference: str) -> None:
    """Raises unless the module of a reference is installed; imports the packages around it and not the module."""
    module, _ = _parts(reference)
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}")


def _parts(reference: str) -> tuple[str, str]:
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise ValueError(f"{reference!r} is not of the form module:attribute")
    return module, attribute
