"""A request without HTTP: the steps of `frontend.serving.pipeline` from a body of some size on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from frontend.errors import RequestError, TimedOut
from frontend.families.base import Decision, Prepared, Processor
from frontend.observation.record import RequestRecord
from frontend.requests.questions import DecisionRequest
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.serving.absorbing import Absorbing
from frontend.serving.deployment import Deployment
from frontend.serving.refusals import permit
from frontend.serving.server import Server


class Asking:
    """As the main port's `frontend.http.decisions.Exchange`, of a request that is parsed already."""

    PARSES: ClassVar[bool] = True
    SHARES: ClassVar[bool] = True

    def __init__(self, asked: DecisionRequest, size: int = 10, timeout_ms: int | None = None) -> None:
        """`size`: of its body, in bytes."""
        self._asked, self._size = asked, size
        self._ingress = BoundedAdmission("ingress", requests=1, cost=max(1, size))
        self.timeout_ms = None if timeout_ms is None else str(timeout_ms)

    def check_head(self) -> None:
        pass

    def alone(self, server: Server) -> Deployment | None:
        return server.only

    def admit(self) -> Permit:
        return permit(self._ingress, self._size)

    async def upload(self, permit: Permit) -> bytes:
        return bytes(self._size)

    def parse(self, body: bytes) -> DecisionRequest:
        return self._asked

    def model(self, asked: DecisionRequest) -> str | None:
        return asked.model

    def family(self, deployment: Deployment) -> Processor:
        return deployment.processor

    def session(self, asked: object) -> str | None:
        return asked.session if isinstance(asked, DecisionRequest) else None

    def waits(self, deployment: Deployment) -> bool:
        return True

    def prepare(self, family: Processor, asked: DecisionRequest) -> Prepared:
        return family.prepare(asked)

    def absorbing(self, family: Processor) -> Absorbing:
        return family

    def finish(self, family: Processor, prepared: Prepared, outputs: Sequence[object], seconds: float) -> Decision:
        return family.finish(prepared, outputs)

    def timed_out(self, record: RequestRecord, budget_s: float) -> RequestError:
        return TimedOut(f"{budget_s:g} s, {record.state.value} {record.waits_for}")
