"""The reliability diagram: of the answers that were as sure as that, how many were right. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class NoPlot(Exception):
    """The diagram cannot be drawn; the text says why."""


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
