"""What both halves of the sparrow family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations
