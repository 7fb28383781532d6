"""What was measured, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from frontend.cli.evaluation import measures
from frontend.cli.evaluation.asking import Change, Run
from frontend.cli.terminal import padded, visible, width

THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def document(runs: Sequence[Run], keys: Sequence[tuple[int, str]], precision: float, *, fit: bool) -> dict[str, Any]:
    """Everything by name, made of JSON's types. `keys`: line and id of each expected answer."""
    answered = [run for run in runs if run.answers]
    return {
        "models": {run.model: _model(run, precision, fit=fit) for run in runs},
        "pairs": [_pair(first, second, keys) for first, second in combinations(answered, 2)],
    }


def _model(run: Run, precision: float, *, fit: bool) -> dict[str, Any]:
    low, high = measures.interval(run.right, run.expected)
    found: dict[str, Any] = {
        "expected": run.expected,
        "right": run.right,
        "accuracy": run.right / run.expected,
        "interval_95": [low, high],
        "unanswered": {str(line): text for line, text in run.unanswered.items()},
        "wrong": [
            {
                "line": one.line,
                "question": one.question,
                "expected": one.names[one.expected],
                "said": one.names[one.top],
                "probability": one.sure,
            }
            for one in run.judged
            if not one.right
        ],
        "turned": _change(run.turned),
        "accompanied": _change(run.accompanied),
    }
    if not run.judged:
        return found
    ordered = sorted(run.milliseconds)
    threshold = measures.threshold_for(run.judged, precision)
    found |= {
        "brier": measures.brier(run.judged),
        "log_loss": measures.log_loss(run.judged),
        "calibration_error": measures.calibration_error(run.judged),
        "bins": [[one.count, one.accuracy, one.sure] for one in measures.bins(run.judged)],
        "latency_ms": {"p50": _quantile(ordered, 0.5), "p95": _quantile(ordered, 0.95)},
        "thresholds": [[at, *measures.at_least(run.judged, at)] for at in THRESHOLDS],
        "precision": {
            "wanted": precision,
            "threshold": threshold,
            "answers": 0 if threshold is None else measures.at_least(run.judged, threshold)[0],
        },
    }
    if fit:
        temperature = measures.fitted_temperature(run.judged)
        found["fit"] = {"temperature": temperature, "log_loss": measures.log_loss(run.judged, temperature)}
    return found


def _change(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {"compared": change.compared, "winners": change.winners, "largest": change.largest}


def _pair(first: Run, second: Run, keys: Sequence[tuple[int, str]]) -> dict[str, Any]:
    alone, other, p = measures.paired([first.is_right(key) for key in keys], [second.is_right(key) for key in keys])
    return {"models": [first.model, second.model], "first_alone": alone, "second_alone": other, "p": p}


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def render(report: Mapping[str, Any], *, most_wrong: int) -> str:
    """The document as tables, and at most `most_wrong` wrong answers of each model."""
    models: Mapping[str, Any] = report["models"]
    answered = {name: found for name, found in models.items() if "brier" in found}
    parts = [_accuracy(models)]
    if answered:
        parts += [_coverage(answered), _asked_otherwise(answered)]
    parts += [_pairs(report["pairs"]), _fits(answered)]
    parts += [_unanswered(name, found) for name, found in models.items()]
    parts += [_wrong(name, found, most_wrong) for name, found in models.items()]
    return "\n\n".join(part for part in parts if part)


def _accuracy(models: Mapping[str, Any]) -> str:
    rows = [["model", "right", "accuracy", "95 % interval", "Brier", "log loss", "calibration error", "p50", "p95"]]
    for name, found in models.items():
        if "brier" not in found:
            rows.append([name, f"no answer to {found['expected']}"])
            continue
        low, high = found["interval_95"]
        row = [
            name, f"{found['right']} of {found['expected']}", f"{found['accuracy']:.1%}", f"{low:.1%} to {high:.1%}",
        ]  # fmt: skip
        times = found["latency_ms"]
        row += [f"{found[key]:.3f}" for key in ("brier", "log_loss", "calibration_error")]
        row += [f"{times['p50']:.1f} ms", f"{times['p95']:.1f} ms"]
        rows.append(row)
    return _table(rows)


def _coverage(models: Mapping[str, Any]) -> str:
    rows = [["answers as sure as", *(f"{at:g}" for at in THRESHOLDS), "enough for"]]
    for name, found in models.items():
        row = [name]
        for _, count, right in found["thresholds"]:
            row.append(f"{count}, {right / count:.0%} right" if count else "none")
        wanted = found["precision"]
        row.append(
            f"{wanted['wanted']:.0%} right: none"
            if wanted["threshold"] is None
            else f"{wanted['wanted']:.0%} right: {wanted['threshold']:.3f}, {wanted['answers']} answers"
        )
        rows.append(row)
    return _table(rows)


def _asked_otherwise(models: Mapping[str, Any]) -> str:
    lines = []
    for name, found in models.items():
        for key, how in (("turned", "options turned round"), ("accompanied", "beside another question")):
            change = found[key]
            if change and change["compared"]:
                lines.append(
                    f"{visible(name)}, {how}: {change['winners']} of {change['compared']} winners change, "
                    f"probabilities by at most {change['largest']:.2g}"
                )
    return "\n".join(lines)


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        f"{visible(first)} is right on {pair['first_alone']} that {visible(second)} misses, {visible(second)} on "
        f"{pair['second_alone']} that {visible(first)} misses; p = {pair['p']:.2g}"
        for pair in pairs
        for first, second in [pair["models"]]
    )


def _fits(models: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{visible(name)}: temperature = {found['fit']['temperature']:.3g} brings the log loss from "
        f"{found['log_loss']:.3f} to {found['fit']['log_loss']:.3f} on these answers; "
        "judge it on others before you trust it"
        for name, found in models.items()
        if "fit" in found
    )


def _unanswered(name: str, found: Mapping[str, Any]) -> str:
    lines = found["unanswered"]
    if not lines:
        return ""
    line, text = next(iter(lines.items()))
    return f"{visible(name)} did not answer {len(lines)} lines, which count as wrong; line {line}: {visible(text)}"


def _wrong(name: str, found: Mapping[str, Any], most: int) -> str:
    wrong = found["wrong"][:most]
    if not wrong:
        return ""
    rows = [[f"{name} is wrong on", "question", "it said", "with", "expected"]]
    rows += [
        [f"line {one['line']}", one["question"], one["said"], f"{one['probability']:.3f}", one["expected"]]
        for one in wrong
    ]
    more = len(found["wrong"]) - len(wrong)
    return _table(rows) + (f"\nand {more} more" if more else "")


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(width(row[place]) for row in shown if place < len(row)) for place in range(len(shown[0]))]
    return "\n".join(
        "  ".join(padded(cell, cells) for cell, cells in zip(row, widths, strict=False)).rstrip() for row in shown
    )
