"""docs/alerts.yml: rules that Prometheus takes, that fire when they have to, and that docs/operations.md explains."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from tests.unit.test_layering import ROOT

DOCS = ROOT / "docs"


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


def test_every_alert_is_explained_with_its_expression() -> None:
    """In the order of the file, and no other one is."""
    section = (DOCS / "operations.md").read_text(encoding="utf-8").split("## Alerts")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| `(.+?)`(?: for (\w+))? \| (.{8,}) \|$", section, re.MULTILINE)
    assert [(name, expression.replace("\\|", "|"), wait) for name, expression, wait, _ in told] == [
        (rule["alert"], rule["expr"], rule.get("for", "")) for rule in rules()
    ]


def test_every_alert_says_how_urgent_it_is_and_what_has_happened() -> None:
    """A page, or a ticket for the next morning."""
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")  # type: ignore[index]
        assert rule["annotations"]["summary"]  # type: ignore[index]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus")
def test_the_alerts_fire_when_they_have_to() -> None:
    """What alerts_test.yml expects: a killed server, a missing target, a model without a host, a hanging stop."""
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=DOCS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
