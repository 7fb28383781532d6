"""jevclient, which needs Python 3.12: its answers, and its errors. It reads Retry-After as a number."""

import asyncio
import sys

from jevclient import Choice, JevClient, JevValidationError, Noul, Score

url = sys.argv[1]
questions = {
    "team": Choice(instructions="Which team?", criteria={"billing": "a charge", "bug": "broken"}),
    "refund": Noul(instructions="Refund?", true="money back"),
    "harm": Score(instructions="How large?", criteria=["small", "large"]),
}


async def main() -> None:
    """One answer, one refusal."""
    async with JevClient("any", base_url=url) as client:
        answered = await client.ask("I was charged twice", questions)
        assert answered["team"].choice in ("billing", "bug")
        assert 0 <= answered["refund"].noul <= 1
        assert 0 <= answered["harm"].score <= 1
        try:
            await client.ask("x", questions, model="gpt")
        except JevValidationError as error:
            assert "Unknown model" in str(error), error
        else:
            raise AssertionError("not refused")


asyncio.run(main())
