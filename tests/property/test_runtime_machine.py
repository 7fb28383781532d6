"""Every scheduler under the same random lists of events; see `runtime_machine` for what is checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from frontend.runtime.batches import BatchScheduler
from frontend.runtime.queueing import UnitQueue
from frontend.runtime.shape import BatchLimits
from tests.property.runtime_machine import Model, RuntimeMachine

SIGNALS_AHEAD = r"(A(GS?R|GS)*G?)?"
"""A unit that was sent ahead may be requeued, or end, before it was started."""


class BatchMachine(RuntimeMachine):
    """Up to three units to a batch, small limits, and few overtakes, so that each of them is met."""

    LIMITS = BatchLimits(units=3, tokens=12, size=4, overtakes=2)

    def make(self, model: Model, name: str) -> UnitQueue:
        return BatchScheduler(
            name,
            layers=(model.slots, model.tokens),
            limits=self.LIMITS,
            look_ahead=self.AHEAD,
            flush=model.flush,
        )


class OneUnitMachine(BatchMachine):
    """A batch of one, which is what the serial scheduler has."""

    LIMITS = BatchLimits()


class SerialEqualsMachine(RuntimeMachine):
    """Equal work is done once, one unit at a time."""

    EQUALS = True


class AheadMachine(BatchMachine):
    """One unit is executed, one is sent ahead."""

    LIMITS = BatchLimits()
    AHEAD = True
    SIGNALS = SIGNALS_AHEAD


class EverythingMachine(BatchMachine):
    """Batches, look-ahead and equal work at once."""

    AHEAD = True
    EQUALS = True
    SIGNALS = SIGNALS_AHEAD


def same_trace() -> type[RuleBasedStateMachine]:
    """A machine that has two others do the same, and compares what they have announced, ended and counted."""

    class SameTrace(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.serial, self.batch = RuntimeMachine(), OneUnitMachine()

        @invariant()
        def they_do_the_same(self) -> None:
            for one, other in zip(self.serial.models, self.batch.models, strict=True):
                assert one.log == other.log
                seen = other.scheduler.statistics()
                assert one.scheduler.statistics() == type(seen)(
                    **{
                        **{name: getattr(seen, name) for name in seen.__slots__},
                        "batches": 0,
                    }
                )

        def teardown(self) -> None:
            self.serial.teardown()
            self.batch.teardown()

    def both(name: str) -> Callable[..., None]:
        def act(self: Any, **drawn: Any) -> None:
            getattr(self.serial, name)(**drawn)
            getattr(self.batch, name)(**drawn)

        act.__name__ = name
        return act

    for known in RuntimeMachine.setup_state().rules:
        name = known.function.__name__
        setattr(SameTrace, name, rule(**known.arguments)(both(name)))
    return SameTrace


MACHINES = {
    "serial": RuntimeMachine,
    "serial, equal work once": SerialEqualsMachine,
    "batches": BatchMachine,
    "one unit, look-ahead": AheadMachine,
    "everything": EverythingMachine,
    "a batch of one is serial": same_trace(),
}


@pytest.mark.parametrize("name", MACHINES)
def test_no_list_of_events_breaks_a_scheduler(name: str) -> None:
    """Nothing is lost, nothing is executed twice, nobody is passed, and permits in use equal live holders."""
    run_state_machine_as_test(
        MACHINES[name],
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            derandomize=True,
            deadline=None,
            # Many steps find nothing to act on; that is part of a random list of events.
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_limits_of_a_batch_must_be_possible() -> None:
    """A limit that admits nothing is refused when it is made."""
    for wrong in itertools.chain(
        ({name: 0} for name in ("units", "tokens", "size")), ({"overtakes": -1}, {"wait_s": -1.0}, {"wait_s": 60.0})
    ):
        with pytest.raises(ValueError, match="no batch keeps"):
            BatchLimits(**wrong)  # type: ignore[arg-type]
