"""What both halves of the transformers family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations
