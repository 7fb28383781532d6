"""Fields that would have a request mean something else are refused in every dialect, and never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.errors import UsageError
from frontend.http import gemini, openai, openrouter, perplexity, systemone
from tests.unit.dialects.test_gemini_grammar import body as gemini_body
from tests.unit.dialects.test_openai_grammar import body as openai_body

STATED: dict[str, Any] = {"model": "m", "state": "s", "questions": {"q": {"type": "noul", "instructions": "so?"}}}
BODIES: dict[Any, dict[str, Any]] = {
    gemini: gemini_body(),
    openai: openai_body(),
    openrouter: STATED,
    perplexity: STATED,
    systemone: STATED,
}


UNSERVED = [(dialect, field) for dialect in BODIES for field in ("x_session", "x_input_ids")]
for served in (systemone, openrouter, perplexity):
    UNSERVED.remove((served, "x_session"))


@pytest.mark.parametrize(("dialect", "field"), UNSERVED, ids=lambda value: getattr(value, "NAME", value))
def test_a_request_that_counts_on_more_than_its_text_is_refused(dialect: Any, field: str) -> None:
    """400 that names the field; null is as good as none."""
    with pytest.raises(UsageError, match=field):
        dialect.parse_request({**BODIES[dialect], field: "agent-7"})
    assert dialect.parse_request({**BODIES[dialect], field: None}) == dialect.parse_request(BODIES[dialect])
