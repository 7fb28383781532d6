"""Pictures, sounds and files in a body: found wherever the field's clients put them, so that none is ignored.

The models of this server read text. A part or a field that carries something else is refused (400) in every dialect,
because an answer that did not look at it would answer something else than was asked. That there is such a thing takes
two signs, the name of a part and what it carries: a state may well describe a screen whose elements are images.
"""

from __future__ import annotations

from typing import Any, Final

FIELDS: Final = ("assets", "images", "image", "files", "videos", "audio")
"""Fields of a body beside its state in which a client sends them; empty ones are none."""

_ANY: Final = object()

_PARTS: Final[dict[str, tuple[tuple[str, object], ...]]] = {
    "image": (("image", _ANY), ("data", _ANY), ("data_base64", _ANY), ("source", dict), ("image_url", _ANY)),
    "image_url": (("image_url", _ANY),),
    "input_image": (("image_url", _ANY), ("file_id", _ANY)),
    "document": (("source", dict),),
    "file": (("file", dict),),
    "input_file": (("file_id", _ANY), ("file_data", _ANY), ("file_url", _ANY)),
    "video": (("video", _ANY), ("source", dict)),
    "video_url": (("video_url", _ANY),),
    "audio": (("audio", _ANY), ("source", dict)),
    "audio_url": (("audio_url", _ANY),),
    "input_audio": (("input_audio", _ANY),),
}
"""Type of a part -> the fields that carry something in it, and the type of their value where another one is usual
in descriptions."""

_UNTYPED: Final = {"inline_data": "data", "inlineData": "data", "file_data": "file_uri", "fileData": "fileUri"}
"""Fields of parts without a type, and what the object in them must have."""


def in_body(document: dict[str, Any]) -> bool:
    """Whether a body has something beside its state that is no text."""
    return any(document.get(field) and not isinstance(document[field], (bool, int, float)) for field in FIELDS)


def in_state(state: object) -> bool:
    """Whether a state in the form of parts, or of messages with parts, has one that is no text."""
    if not isinstance(state, list):
        return False
    for item in state:
        if not isinstance(item, dict):
            continue
        if _carries(item):
            return True
        for name in ("content", "parts"):
            inner = item.get(name)
            if isinstance(inner, list) and any(isinstance(part, dict) and _carries(part) for part in inner):
                return True
    return False


def _carries(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    if isinstance(kind, str):
        for field, of in _PARTS.get(kind, ()):
            if field in part and (of is _ANY or isinstance(part[field], dict)):
                return True
    for field, inner in _UNTYPED.items():
        held = part.get(field)
        if isinstance(held, dict) and inner in held:
            return True
    return False
