"""What both halves of the embedding family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations
