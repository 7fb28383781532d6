"""The socket that fronts and commands dial, and who of them is the present front.

Bound before there is anybody to talk to, so that whatever has something for the front can be made first.
"""

from __future__ import annotations

from collections.abc import Callable

import zmq

from executor_host.launch.base import Listener
from executor_host.supervision.life import ServerLife
from protocol.errors import ProtocolError
from protocol.exits import ServeExit
from protocol.frames import encode
from protocol.messages import Message

Receive = Callable[[list[bytes]], None]


class FrontLane:
    """The management lane's sending half. Belongs to the supervisor's loop."""

    def __init__(
        self, listen: Callable[[Receive], Listener], say: Callable[[str, str], None], life: ServerLife
    ) -> None:
        """`listen(receive)`: binds the lane's socket; what it receives begins with the identity of the peer."""
        self.front: str | None = None
        """The epoch of the front that has said HELLO and is told what happens; None while there is none."""
        self._say = say
        self._life = life
        self._heard: Receive | None = None
        self._socket = listen(self._receive)

    def hear(self, heard: Receive) -> None:
        """From now on `heard` gets every message."""
        self._heard = heard

    def _receive(self, frames: list[bytes]) -> None:
        if self._heard is not None:
            self._heard(frames)

    def close(self) -> None:
        """No message is heard any more."""
        self._socket.close()

    def listen_again(self, address: str) -> None:
        """Have newcomers find the lane at `address`; who is connected stays so. Raises `zmq.ZMQError`."""
        # The former listener stays: unbinding it would remove the file at its address, whenever the library gets round
        # to it, and that is the new one's.
        self._socket.bind(address)

    def tell_front(self, message: Message, call: int = 0) -> None:
        """Send to the present front; one that is not there yet is told everything when it says HELLO."""
        if self.front is not None:
            self.send(self.front.encode(), self.front, message, call)

    def send(self, peer: bytes, incarnation: str, message: Message, call: int = 0) -> None:
        """Send to `peer`, whose own incarnation goes into the header."""
        try:
            self._socket.send([peer, *encode(message, incarnation=incarnation, call=call)])
        except zmq.ZMQError as error:
            self._say("framehost", f"{incarnation} cannot be told {type(message).__name__}: {error}")
        except ProtocolError as error:
            # No peer may go on knowing less than it should: a bug of ours, and it ends the server. What others have
            # told us has been tried before it gets here.
            name = type(message).__name__
            self._life.fail(ServeExit.FAILED, f"internal error: {name} cannot be sent: {error}")

    def __repr__(self) -> str:
        return f"<FrontLane front={self.front}>"
