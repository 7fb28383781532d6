"""The reliability diagram: of the answers that were as sure as that, how many were right. Needs the extra `plot`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class NoPlot(Exception):
    """The diagram cannot be drawn; the text says why."""


def check(path: Path) -> None:
    """Raises `NoPlot` if `draw` could not write to `path`: no matplotlib, no such format, no place. Leaves no file."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise NoPlot(f"a plot needs matplotlib, which the extra plot installs: {error}") from error
    formats = FigureCanvasAgg.get_supported_filetypes()
    ending = path.suffix[1:]
    if not ending:  # as matplotlib completes it
        ending = FigureCanvasAgg.get_default_filetype()
        path = Path(f"{path}.{ending}")
    if ending.lower() not in formats:
        raise NoPlot(f"{path}: {ending!r} is no format of a plot; there are: {', '.join(sorted(formats))}")
    if path.is_dir():
        raise NoPlot(f"{path} is a folder, and no file for a plot")
    try:
        if path.exists():
            if not os.access(path, os.W_OK):
                raise PermissionError(None, "Permission denied")
        else:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
    except OSError as error:
        raise NoPlot(f"the plot {path} cannot be written: {error.strerror}") from error


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Write a diagram of every model of `report` (`report.document`) to `path`, whose ending is its format.

    A model is a line through the tenths that have answers; below the diagonal it is surer than it is right. Raises
    `NoPlot`, and `OSError`.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlot(f"a plot needs matplotlib, which the extra plot installs: {error}") from error
    figure = Figure(figsize=(6.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(
        xlabel="probability of the winner", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1)
    )
    axes.set_aspect("equal")
    axes.plot((0, 1), (0, 1), color="grey", linewidth=1, linestyle="dotted", label="as sure as right")
    for name, found in report["models"].items():
        filled = [(sure, accuracy, count) for count, accuracy, sure in found.get("bins", ()) if count]
        if not filled:
            continue
        line, *_ = axes.plot([sure for sure, _, _ in filled], [share for _, share, _ in filled], label=name)
        axes.scatter(
            [sure for sure, _, _ in filled], [share for _, share, _ in filled], [4 * count for _, _, count in filled],
            color=line.get_color(),
        )  # fmt: skip
    axes.legend(loc="upper left")
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:  # an ending that is no format
        raise NoPlot(f"{path}: {error}") from error
