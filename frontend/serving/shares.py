"""What one key may have of a budget that all keys share, when the budget is short.

    a key that holds none of it   takes what is free
    a key that holds some of it   takes more while that leaves as much free as it then holds

So one busy key gets half of the budget, two get a third each, n get 1 / (n + 1), and there is always something free for
one that comes anew; no number has to be set (it is the dynamic threshold of shared buffers in switches, with factor 1).
With a single key there is no share to keep.
"""

from __future__ import annotations

from typing import Final

from frontend.configuration.keys import Account
from frontend.errors import QueueFull
from frontend.runtime.admission import BoundedAdmission, Permit
from frontend.serving.refusals import permit

_ENDLESS: Final = 2**40
"""Of a counter that never refuses."""


class Shares:
    """Who holds how many permits of one budget. Belongs to the event loop's thread."""

    def __init__(self, budget: BoundedAdmission) -> None:
        self._budget = budget
        self._held: dict[str, BoundedAdmission] = {}
        """By name of the key, a counter that never refuses."""

    def take(self, account: Account) -> Permit:
        """A permit that counts for the key as long as it is held; it is taken beside the budget's own.

        Raises `QueueFull` where the key has its share.
        """
        counter = self._held.get(account.name)
        if counter is None:
            counter = self._held[account.name] = BoundedAdmission(f"share of {account.name}", requests=_ENDLESS)
        held, free = counter.outstanding, self._budget.free
        if held and held + 1 > free - 1:
            raise QueueFull(
                f"the budget {self._budget.name!r} refused this request: the key {account.name!r} has {held} of it, "
                f"{free} are free, and as many as a key holds are left for others",
                retry_after=1,
            )
        return permit(counter, 0)
