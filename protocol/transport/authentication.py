"""Who is let in at sockets that other machines can reach: pyzmq's authenticator, in a loop or in a thread.

A listening socket lets no peer in while none runs (`curve.DOMAIN` is enforced), so both start before the first bind.
"""

from __future__ import annotations

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.auth.thread import ThreadAuthenticator

from protocol.curve import DOMAIN
from protocol.transport.keys import Allowed


def in_loop(context: zmq.Context[zmq.Socket[bytes]], allowed: Allowed) -> AsyncioAuthenticator:
    """One that runs in the running loop until its `stop()`."""
    made = AsyncioAuthenticator(zmq.asyncio.Context.shadow(context))
    made.configure_curve_callback(DOMAIN.decode(), allowed)
    made.start()
    return made


def in_thread(context: zmq.Context[zmq.Socket[bytes]], allowed: Allowed) -> ThreadAuthenticator:
    """One that runs in a thread of its own until its `stop()`."""
    made = ThreadAuthenticator(context)
    made.start()
    made.configure_curve_callback(DOMAIN.decode(), allowed)
    return made
