"""The letter rows on their way to the front: READY on the control lane, HOST_UP on the management lane."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from frontend.families.cua_s1.processor import CuaS1Processor
from protocol import limits
from protocol.frames import decode, encode
from protocol.messages import HostUp, Lane, Ready
from tests.unit.cua_s1.helpers import facts_of


def test_letter_rows_pass_through_the_supervisor(folder: Path) -> None:
    """Out of band on both lanes, as they were, and without a copy of what was received."""
    table = np.random.default_rng(1).standard_normal((26, 2560)).astype(np.float32)
    facts = facts_of(folder, table)
    sent = [bytes(frame) for frame in encode(Ready(address="ipc://x", facts=facts), incarnation="1-a", call=0)]
    assert [len(frame) for frame in sent[3:]] == [table.nbytes]
    assert len(sent[2]) < limits.OUT_OF_BAND_BYTES
    ready = decode(sent, lane=Lane.CONTROL, incarnation="1-a").message
    assert isinstance(ready, Ready)
    up = HostUp(
        deployment="m@1", replica=0, incarnation="1-a", control="ipc://c", data="ipc://d", pid=1, facts=ready.facts
    )
    for _ in range(2):  # a front that is restarted is told again
        frames = encode(up, incarnation="front-1", call=0)
        assert [len(frame) for frame in frames[3:]] == [table.nbytes]
        assert isinstance(frames[3], memoryview), "the supervisor passes on what it has received"
        told = decode([bytes(frame) for frame in frames], lane=Lane.MANAGEMENT, incarnation="front-1").message
        assert isinstance(told, HostUp)
        assert np.array_equal(told.facts["letters"]["rows"], table)
        assert not told.facts["letters"]["rows"].flags.writeable
        CuaS1Processor(told.facts, {}, str(folder))
