"""A family's options are declared once, and every way in refuses the same values by the same table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import supervisor
from executor_host.errors import ConfigurationError as HostRefusal
from executor_host.executors.base import Executor
from frontend.configuration import load as config
from frontend.configuration.successor import successor
from frontend.configuration.toml_file import ConfigurationError
from frontend.families.base import Processor
from protocol import families
from protocol.exits import ServeExit
from protocol.options import DEVICE, MAX_TEXT_CHARS, Option, OptionError, OptionTable, Syntax

TABLES = {name: family.options for name, family in families.BUILT_IN.items()}


def wrong(option: Option) -> Iterator[tuple[str, Any]]:
    """Values that an option may not have, each with what is wrong with it."""
    yield "type", 1 if option.type in (bool, str) else "1"
    yield "type", [option.default] if option.default is not None else []
    yield "type", {"value": 1}
    if option.type is bool:
        yield "type", "true"
    elif option.type is str:
        yield "type", True
        yield "empty", ""
        yield "NUL", "cpu\0"
        yield "outside", "x" * (MAX_TEXT_CHARS + 1)
        if option.choices or option.syntax:
            yield "outside", "no such value"
            yield "outside", f" {option.default} "
    else:
        assert option.most is not None
        yield "type", True
        least = option.above if option.least is None else option.least - 1
        yield "below", option.type(least)  # type: ignore[arg-type]
        yield "above", option.type(option.most + 1)
        yield "above", option.type(2.0**62)
        if option.type is int:
            yield "type", float(option.most)
        else:
            yield "not finite", float("nan")
            yield "not finite", float("inf")


EVERY = [
    pytest.param(family, option, value, id=f"{family}-{option.name}-{number}-{what}")
    for family, table in TABLES.items()
    for option in table.options
    for number, (what, value) in enumerate(wrong(option))
]


def toml(value: object) -> str:
    """A value as a configuration file has it."""
    return f"{{ value = {value['value']} }}" if isinstance(value, dict) else json.dumps(value).replace("NaN", "nan")


def file_with(folder: Path, family: str, key: str, value: object) -> Path:
    file = folder / "framehost.toml"
    path = f'path = "{folder}"\n' if families.find(family).needs_path else "\n"
    written = toml(value).replace("Infinity", "inf")
    file.write_text(f'[models.m]\nfamily = "{family}"\n{path}[models.m.options]\n\n{key} = {written}\n')
    return file


@pytest.mark.parametrize(("family", "option", "value"), EVERY)
def test_no_way_in_takes_a_value_that_an_option_cannot_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, option: Option, value: object
) -> None:
    """`check` names file, line and key with status 2; a swap, the front and the host refuse it with the same words."""
    file = file_with(tmp_path, family, option.name, value)
    assert supervisor.main(["check", "--config", str(file)]) == ServeExit.CONFIGURATION
    said = capsys.readouterr()
    begin = f"framehost: {file}, line 6, key models.m.options.{option.name}: "
    assert said.err.startswith(begin), said.err
    assert said.out == ""
    reason = said.err.removeprefix(begin).strip()
    assert option.expected in reason

    with pytest.raises(OptionError) as refused:
        TABLES[family].complete({option.name: value})
    assert (refused.value.key, refused.value.message) == (option.name, reason)

    settings = {"family": family, "path": str(tmp_path), "options": {option.name: value}}
    before = config.from_models(["sparrow=sparrow"]).models[0]
    with pytest.raises(ConfigurationError) as swapped:
        successor(before, settings, 30.0)
    assert str(swapped.value) == f"swap, key models.sparrow.options.{option.name}: {reason}"


@pytest.mark.parametrize("family", TABLES)
def test_every_value_that_is_right_passes(tmp_path: Path, family: str) -> None:
    """Bounds, every choice and the default itself: a matrix that refuses everything would not be seen otherwise."""
    table = TABLES[family]
    for option in table.options:
        values: list[object] = [*option.choices]
        if option.default is not None:
            values.append(option.default)
        if option.type in (int, float):
            values += [option.most, option.least or option.most]
        elif option.type is bool:
            values += [False, True]
        elif option.syntax is not None:
            values += ["auto", "cpu", "cuda", "cuda:0", "cuda:15"]
        elif not option.choices:
            values += ["x", "x" * MAX_TEXT_CHARS]
        for value in values:
            found = config.load(file_with(tmp_path, family, option.name, value))
            assert found.models[0].options == {option.name: value}
            assert table.complete({option.name: value})[option.name] == value


@pytest.mark.parametrize("family", TABLES)
def test_both_halves_read_the_table_of_the_family(family: str) -> None:
    """And neither has an option of its own."""
    record = families.find(family)
    processor = families.resolve(record.processor)
    assert issubclass(processor, Processor)
    assert processor.OPTIONS is record.options
    executor = families.resolve(record.executor)
    assert issubclass(executor, Executor)
    assert executor.OPTIONS is record.options
    assert record.options.options, "every built-in family has something to set"


@pytest.mark.parametrize("family", TABLES)
def test_a_host_trusts_nobody_to_have_checked(family: str) -> None:
    """Whoever started it: with the words of `check`, and before anything is loaded."""
    executor: type[Executor] = families.resolve(families.find(family).executor)
    for option in TABLES[family].options:
        for _, value in wrong(option):
            with pytest.raises(HostRefusal, match=f"the option '{option.name}' is "):
                executor("/nowhere", {option.name: value})
    with pytest.raises(HostRefusal, match="there is no option 'colour'; known options: "):
        executor("/nowhere", {"colour": "red"})
    defaults = TABLES[family].complete({})
    assert executor("/nowhere", {}).options == defaults


@pytest.mark.parametrize("family", ["decider", "open-jev"])
def test_options_that_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str) -> None:
    """A rule between two keys names one of them."""
    file = file_with(tmp_path, family, "graphs", True)
    with file.open("a") as more:
        more.write('execution = "shared"\n')
    assert supervisor.main(["check", "--config", str(file)]) == ServeExit.CONFIGURATION
    assert f"{file}, line 6, key models.m.options.graphs: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "right"),
    [
        *((name, True) for name in ("auto", "cpu", "cuda", "cuda:0", "cuda:7", "cuda:127")),
        *((name, False) for name in ("gpu0", "cuda0", "cuda:", "cuda:-1", "cuda:00", "cuda:1000", "CPU", "mps")),
    ],
)
def test_names_of_devices(name: str, right: bool) -> None:
    """Their form; which of them are there, the host says."""
    option = Option("device", str, "auto", "where", syntax=DEVICE)
    if right:
        assert option.check(name) == name
    else:
        with pytest.raises(OptionError, match="auto, cpu, cuda or cuda:N"):
            option.check(name)


def test_a_long_value_is_not_repeated_whole() -> None:
    """A message is a sentence."""
    option = Option("adapter", str, None, "a folder")
    with pytest.raises(OptionError) as refused:
        option.check("x" * 1_000_000)
    assert len(refused.value.message) < 250


MADE_WRONG: list[dict[str, Any]] = [
    {"type": int, "default": 1},
    {"type": int, "default": 1, "least": 1},
    {"type": int, "default": 1, "least": 1, "above": 0, "most": 2},
    {"type": int, "default": 3, "least": 1, "most": 2},
    {"type": float, "default": 1.0, "most": 2.0},
    {"type": int, "default": 1.5, "least": 1, "most": 2},
    {"type": bool, "default": None, "choices": ("a",)},
    {"type": int, "default": None, "least": 0, "most": 1, "syntax": Syntax("a", "a")},
    {"type": str, "default": "c", "choices": ("a", "b")},
    {"type": str, "default": 7},
]


@pytest.mark.parametrize("fields", MADE_WRONG, ids=repr)
def test_a_declaration_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    """When the module with it is imported: a number without bounds, a default that is none."""
    with pytest.raises(ValueError, match="option 'x'"):
        Option(name="x", help="", **fields)


def test_an_option_is_declared_once() -> None:
    """In one table."""
    with pytest.raises(ValueError, match="twice"):
        OptionTable((Option("x", bool, False, ""), Option("x", str, "", "")))
