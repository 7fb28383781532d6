"""docs/families/NAME.md and docs/options.md: the parts that are made of what the program says.
`python -m tests.helpers.family_pages` writes them; a test compares them.

The parts stand between `<!-- defaults -->` or `<!-- options -->` and `<!-- end -->`. The rest is written by people.
"""

from __future__ import annotations

import re
from pathlib import Path

from protocol import families
from protocol.families import Family
from protocol.options import Option

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "families"
OPTIONS = FOLDER.parent / "options.md"
READ_BY = {"front": "front", "host": "host", "both": "front and host"}


def defaults(family: Family) -> str:
    """The bounds that a model has when its configuration names none."""
    requests, cost = family.default_max_requests, family.default_max_cost
    return "\n".join(
        (
            "| key | default |",
            "| --- | --- |",
            f"| `max_requests` | {'no bound' if requests is None else requests} |",
            f"| `max_cost` | {'no bound' if cost is None else cost} |",
            f"| `execution_limit` | {family.execution_limit_s:g} s, at least twice `request_timeout` |",
        )
    )


def options(family: Family) -> str:
    """The family's option table."""
    lines = ["| option | default | it is | read by | what it does |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| `{option.name}` | {_cells(option)} |" for option in family.options.options]
    return "\n".join(lines)


def _cells(option: Option) -> str:
    default = option.shown_default if option.default is None else f"`{option.shown_default}`"
    expected = ", ".join(f"`{choice}`" for choice in option.choices) or option.expected
    return f"{default} | {expected} | {READ_BY[option.side]} | {option.help}"


def all_options() -> str:
    """Every option of every built-in family by name; families in which it is the same share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for family in families.BUILT_IN.values():
        for option in family.options.options:
            rows.setdefault((option.name, _cells(option)), []).append(f"[{family.name}](families/{family.name}.md)")
    lines = [
        "| option | families | default | it is | read by | what it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [f"| `{name}` | {', '.join(rows[name, cells])} | {cells} |" for name, cells in sorted(rows)]
    return "\n".join(lines)


def made(text: str, family: Family) -> str:
    """`text` with its parts as the program says."""
    return _with(_with(text, "defaults", defaults(family)), "options", options(family))


def made_options(text: str) -> str:
    """The page of all options, `text`, with its table as the program says."""
    return _with(text, "options", all_options())


def _with(text: str, name: str, part: str) -> str:
    pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
    text, count = re.subn(pattern, lambda _: f"<!-- {name} -->\n{part}\n<!-- end -->", text, flags=re.DOTALL)
    assert count == 1, f"one part {name} is expected"
    return text


def main() -> None:
    """Write the parts of every page."""
    for family in families.BUILT_IN.values():
        page = FOLDER / f"{family.name}.md"
        page.write_text(made(page.read_text(encoding="utf-8"), family), encoding="utf-8")
    OPTIONS.write_text(made_options(OPTIONS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
