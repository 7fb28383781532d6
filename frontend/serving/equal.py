"""What makes two units the same work: equal weights, and equal payloads as they travel.

The options are those of the deployment, whose queues and cache are asked, so they are equal already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgpack

from protocol.tensors import Packer


def digest(identity: str, fields: Mapping[str, Any]) -> bytes | None:
    """SHA-256 of a unit's payload `fields` in their wire form, for the weights `identity`; 32 bytes.

    None for what does not fit the wire: it is equal to nothing, and sending it says why.
    """
    collected = Packer()
    try:
        body = msgpack.packb((identity, fields), default=collected.default)
    except Exception:
        return None
    made = hashlib.sha256(body)
    for buffer in collected.buffers:
        # Their lengths are in the body, so where one ends and the next begins is told.
        made.update(buffer)
    return made.digest()
