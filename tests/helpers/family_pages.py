"""docs/families/NAME.md: the parts that are made of what the program says. `python -m tests.helpers.family_pages`
writes them; a test compares them.

The parts stand between `<!-- defaults -->` or `<!-- options -->` and `<!-- end -->`. The rest is written by people.
"""

from __future__ import annotations

import re
from pathlib import Path

from protocol import families
from protocol.families import Family

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "families"
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
    for option in family.options.options:
        default = option.shown_default if option.default is None else f"`{option.shown_default}`"
        expected = ", ".join(f"`{choice}`" for choice in option.choices) or option.expected
        lines.append(f"| `{option.name}` | {default} | {expected} | {READ_BY[option.side]} | {option.help} |")
    return "\n".join(lines)


def made(text: str, family: Family) -> str:
    """`text` with its parts as the program says."""
    for name, part in (("defaults", defaults(family)), ("options", options(family))):
        pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
        text, count = re.subn(
            pattern, lambda _, n=name, p=part: f"<!-- {n} -->\n{p}\n<!-- end -->", text, flags=re.DOTALL
        )
        assert count == 1, f"{family.name}: one part {name} is expected"
    return text


def main() -> None:
    """Write the parts of every page."""
    for family in families.BUILT_IN.values():
        page = FOLDER / f"{family.name}.md"
        page.write_text(made(page.read_text(encoding="utf-8"), family), encoding="utf-8")


if __name__ == "__main__":
    main()
