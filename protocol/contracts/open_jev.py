"""What both halves of the open-jev family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations
