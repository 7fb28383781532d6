"""docs/reference.md: its commands, options, configuration, routes and statuses are those of the program."""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import supervisor
from frontend import limits
from frontend.cli import batch
from frontend.cli.batch_input import DIGEST_CHARS, Source
from frontend.cli.batch_output import rendered
from frontend.cli.sender import Outcome
from frontend.configuration import load, schema
from frontend.configuration.decode import keys_of
from frontend.http import admin, app, openapi
from frontend.limits import ServerLimits
from protocol.exits import ServeExit
from protocol.models import Model, Native

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "reference.md").read_text(encoding="utf-8")
(SAMPLE,) = re.findall(r"```toml\n(\[server\]\n.*?)```", TEXT, re.DOTALL)
HIDDEN = {"/static/page.js", "/static/page.css", *openapi.MISDIRECTED}
"""What the page loads, and what only says where decisions are asked."""


def section(heading: str) -> str:
    """The text below a heading, down to the next of its level."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command of `framehost` with its parser."""
    (action,) = (entry for entry in supervisor.parser()._actions if isinstance(entry, argparse._SubParsersAction))
    return dict(action.choices)


def rows_of_commands() -> dict[str, str]:
    """The row of each command; two in one row have it both."""
    rows: dict[str, str] = {}
    for row in re.findall(r"^\| (`framehost .*)", section("Commands"), re.MULTILINE):
        for name in re.findall(r"`framehost ([a-z]+)", row.split(" | ")[0]):
            rows[name] = rows.get(name, "") + row
    return rows


def test_every_command_has_a_row_and_no_row_is_of_another() -> None:
    """The table is the list of `framehost --help`."""
    assert set(rows_of_commands()) == set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_that_is_named_is_one_of_its_command(name: str) -> None:
    """And where a row says "the options of `decide`", those of `decide` are."""
    row = rows_of_commands()[name]
    known = {option for action in commands()[name]._actions for option in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", row))
    assert named <= known, named - known


def test_examples_of_commands_are_right() -> None:
    """What stands in a block of commands can be parsed as it stands."""
    parser = supervisor.parser()
    for block in re.findall(r"```\n(framehost .*?)```", TEXT, re.DOTALL):
        import shlex

        parser.parse_args(shlex.split(block.replace("\\\n", " "))[1:])


def test_the_sample_is_a_configuration(tmp_path: Path) -> None:
    """It is accepted as it stands, but for files and addresses that it takes from elsewhere."""
    text = re.sub(r"^(keys|key|allow) = .*$", "", SAMPLE, flags=re.MULTILINE)
    text = re.sub(r"\[hosts\].*?(?=^\[)", "", text, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "framehost.toml"
    file.write_text(text.replace('path = "models/decider-2b"', f'path = "{tmp_path}"'))
    found = load.load(file)
    assert [model.name for model in found.models] == ["router", "judge"]


def test_the_sample_has_every_key() -> None:
    """Each table of the sample has all keys that the table may have; those of a cluster are in docs/deploy.md."""
    sample: dict[str, Any] = tomllib.loads(SAMPLE)
    models = sample["models"].values()
    assert set(sample["server"]) == set(keys_of(schema.Server))
    assert set(sample["server"]["limits"]) == set(keys_of(schema.Limits))
    assert set(sample["hosts"]) == set(keys_of(schema.Hosts))
    assert set().union(*models) == set(keys_of(Model)) - {"ray"}
    assert set(sample["models"]["judge"]["native"]) == set(keys_of(Native))


def test_the_limits_of_the_sample_are_the_defaults() -> None:
    """As its comment says."""
    server = tomllib.loads(SAMPLE)["server"]
    assert keys_of(schema.Limits).keys() == server["limits"].keys()
    defaults = ServerLimits()
    given = server["limits"]
    assert given.pop("uploads") == defaults.ingress_requests
    assert given.pop("upload_bytes") == defaults.ingress_bytes
    assert given == {key: getattr(defaults, key) for key in given}
    assert server["max_body"] == defaults.max_body_bytes
    assert server["request_timeout"] == defaults.request_timeout_s
    assert server["drain"] == schema.DEFAULT_DRAIN_S
    assert server["restarts"] == schema.DEFAULT_RESTARTS
    assert server["turn"] == schema.DEFAULT_TURN_S
    assert server["front_limit"] == schema.DEFAULT_FRONT_LIMIT_S


def test_the_routes_are_those_of_the_application() -> None:
    """None is missing, none is invented."""
    listed = section("HTTP").split("| route | answer |")[1].split("\n\n")[0]
    told: set[tuple[str, str]] = set()
    for row in re.findall(r"^\| (`.*?) \|", listed, re.MULTILINE):
        method, _, first = row.strip("`").partition(" ")
        told |= {(method, path.strip("`")) for path in first.split(", ")}
    tables = {"POST": app.POST, "GET": app.GET, "DELETE": app.DELETE}
    routes = {(method, path) for method, table in tables.items() for path, _ in table} | {("GET", "/")}
    known = {(method, re.sub(r"\{name[^}]*\}", "NAME", path)) for method, path in routes if path not in HIDDEN}
    assert {(method, path.replace("`", "")) for method, path in told} == known


def test_orders_over_http_are_those_of_the_application() -> None:
    """Each path of an order is named."""
    actions = {path.rpartition("/")[2] for path, _ in admin.POST}
    text = section("Configuration").split("Where `admin` is set,")[1].split("\n\n")[0]
    assert set(re.findall(r"(?:NAME|\.\.\.)/([a-z]+)`", text)) == actions


def test_the_statuses_are_those_of_a_decision() -> None:
    """Every status that the description for programs has for a decision, and those that no route of it has."""
    table = section("HTTP").split("| status | when | try again? |")[1].split("\n\n")[0]
    told = {int(status) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for status in row.split(",")}
    described = openapi.describe(ServerLimits(), keys=True, names_checked=True)["paths"]
    responses = described["/v1/systemone"]["post"]["responses"]
    assert told == {int(status) for status in responses} - {200} | {404, 405}


def test_the_exit_statuses_of_serve_are_those_of_the_program() -> None:
    """Each with its words."""
    text = section("Commands").split("ends with a status that says why:")[1].split(".")[0]
    assert {int(number) for number in re.findall(r"(?:^|,)\s*(\d+) ", text)} == set(map(int, ServeExit))


def test_how_far_company_may_move_an_answer_is_said_with_the_bound_that_is_promised() -> None:
    """The one of docs/throughput.md."""
    promised = (DOCS / "throughput.md").read_text(encoding="utf-8")
    (bound,) = re.findall(r"Alone or in company, an answer is the same within (\S+) in float32", promised)
    said = re.findall(
        r"7th digit from one run to the next, since its company does; by at most (\S+),", " ".join(TEXT.split())
    )
    assert said == [bound]


def test_the_lines_of_a_batch_are_what_the_program_writes(tmp_path: Path) -> None:
    """The sample's answer is that of the sample's request, byte for byte; what is left out of the response is {...}."""
    request, written = re.findall(r"```json\n(.*?)```", section("Commands"), re.DOTALL)
    file = tmp_path / "in.jsonl"
    file.write_text(request)
    (line,) = Source(str(file), {}).lines()
    document = json.loads(written.replace("{...}", "{}"))
    assert re.fullmatch(rf"[0-9a-f]{{{DIGEST_CHARS}}}", document["identity"])
    response = document["response"]
    made = rendered(line, Outcome(200, response, None), {response["model"]: document["identity"]})
    assert made.decode().replace("{}", "{...}") == written


def test_every_field_of_a_batch_has_a_row_in_its_place(tmp_path: Path) -> None:
    """Those of an answer and that of an error."""
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1}')
    (line,) = Source(str(file), {}).lines()
    answered = json.loads(rendered(line, Outcome(200, {"model": "m"}, None), {"m": "0"}))
    failed = json.loads(rendered(line, Outcome(None, None, "why"), {}))
    table = section("Commands").split("| field of a line | what it is |")[1].split("\n\n")[0]
    told = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)]
    assert told == [*answered, *(name for name in failed if name not in answered)]
    assert failed["status"] is None


def test_the_exit_statuses_of_batch_are_those_of_the_program() -> None:
    """A row for each that is not 0, with its words."""
    table = section("Commands").split("| exit status |")[1].split("\n\n")[0]
    cells = {int(row.split("|")[0]): row.split("|")[2] for row in re.findall(r"^\| (\d.*)", table, re.MULTILINE)}
    statuses = {batch.EXIT_REFUSED, batch.EXIT_USAGE, batch.EXIT_STOPPED, batch.EXIT_INTERRUPTED}
    assert {status for status, cell in cells.items() if cell.strip()} == {0, *statuses}


def test_how_long_a_newcomer_waits_for_a_host_is_the_limit() -> None:
    """As the rule that stands there has it."""
    assert f"waits if it is expected back within {limits.RESTART_WAIT_S:g} s" in TEXT
