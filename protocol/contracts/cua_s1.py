"""What both halves of the cua-s1 family agree on: options, file names, limits, identity. Pure."""

from __future__ import annotations
