"""When a process counts as silent. The clock is a number."""

from __future__ import annotations

from executor_host.supervision.watchdog import ASK_EVERY_S, SILENT_S, Watchdog


def test_one_question_at_a_time_and_not_all_the_time() -> None:
    """The first answer is owed from the start; the next question comes a while after an answer, once."""
    watchdog = Watchdog(100.0)
    assert watchdog.silent_s(103.0) == 3.0
    assert not watchdog.due(103.0)
    watchdog.answered(103.0)
    assert watchdog.silent_s(103.5) == 0.0
    assert not watchdog.due(103.0 + ASK_EVERY_S - 0.1)
    assert watchdog.due(103.0 + ASK_EVERY_S)
    assert not watchdog.due(110.0)
    assert watchdog.silent_s(110.0) == 110.0 - 103.0 - ASK_EVERY_S


def test_silence_beyond_the_limit_is_believed_at_the_second_look() -> None:
    """We may have stood still ourselves: then the answer is read between the two looks, and all is well."""
    watchdog = Watchdog(0.0, 10.0)
    assert not watchdog.stalled(9.0)
    assert not watchdog.stalled(1000.0), "the first look after a long pause of ours"
    watchdog.answered(1000.1)
    assert not watchdog.stalled(1000.5)
    assert watchdog.due(1010.0)
    assert not watchdog.stalled(1019.9)
    assert not watchdog.stalled(1020.0)
    assert watchdog.stalled(1020.5)


def test_without_a_limit_silence_kills_nobody() -> None:
    """It is still told for how long."""
    watchdog = Watchdog(0.0)
    assert not watchdog.stalled(10.0**6)
    assert not watchdog.stalled(10.0**6)
    assert watchdog.silent_s(10.0**6) == 10.0**6


def test_a_silent_process_is_not_relied_upon_long_before_it_is_ended() -> None:
    """After a few seconds, or after half of a limit that is shorter; again with its next answer."""
    for limit, doubt in ((None, SILENT_S), (60.0, SILENT_S), (2.0, 1.0)):
        watchdog = Watchdog(0.0, limit)
        assert watchdog.answers(doubt - 0.1)
        assert not watchdog.answers(doubt)
        watchdog.answered(doubt)
        assert watchdog.answers(doubt)
