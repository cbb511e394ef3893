"""docs/benchmarks.svg: colours that can be read on a dark page and on a light one, on no background of their own."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.goals import GOALS
from benchmarks.measure import Row, amount
from benchmarks.running import Outcome

_TEXT, _LINE = "#7d858f", "#9aa2ab"
_MET, _MISSED, _OURS, _PEER = "#2f9e8f", "#d9722e", "#2f9e8f", "#6c8ebf"
_MAX = 2.0
"""Longer bars end there."""


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """How much of each goal is used up, and the time of the job that peers do too, ours being 1."""
    goals = {row.key: row for outcome in outcomes for row in outcome.rows if row.key}
    jobs = [row for outcome in outcomes if outcome.part.peers for row in outcome.rows if not row.key]
    drawn = [goals[goal.key] for goal in GOALS if goal.key in goals]
    style = {"svg.fonttype": "none", "svg.hashsalt": "persist", "font.size": 9, "text.color": _TEXT, "font.family": "sans-serif"}
    style |= {"axes.labelcolor": _TEXT, "xtick.color": _TEXT, "ytick.color": _TEXT, "axes.edgecolor": _LINE}
    with matplotlib.rc_context(style):
        rows = max(1, len(drawn)), max(1, len(jobs))
        figure = Figure(figsize=(10, 1.6 + 0.24 * sum(rows)), layout="constrained")
        upper, lower = figure.subplots(2, 1, height_ratios=rows)
        _goals(upper, drawn)
        _jobs(lower, jobs)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def _goals(axes: Axes, rows: Sequence[Row]) -> None:
    used = [row.value / row.goal for row in rows]
    labels = [f"{_short(row.name)}  " for row in rows]
    axes.barh(range(len(rows)), [min(one, _MAX) for one in used], color=[_MET if row.met else _MISSED for row in rows])
    axes.set_yticks(range(len(rows)), labels)
    for place, (row, one) in enumerate(zip(rows, used, strict=True)):
        text = f"{amount(row.value)}{row.unit} of {row.goal:g}{row.unit}{'' if row.met else ', missed'}"
        axes.text(min(max(one, 1), _MAX) + 0.03, place, text, va="center")
    axes.axvline(1, color=_LINE, linestyle="--", linewidth=1)
    axes.set_xlim(0, _MAX * 1.45)
    _dress(axes, "Goals: the share of each that is used up")


def _jobs(axes: Axes, rows: Sequence[Row]) -> None:
    axes.barh(range(len(rows)), [row.value for row in rows], color=[_OURS if "persist" in row.name else _PEER for row in rows])
    axes.set_yticks(range(len(rows)), [f"{row.name}  " for row in rows])
    if rows:
        axes.set_xscale("log")
        axes.set_xlim(min(row.value for row in rows) / 2, max(row.value for row in rows) * 3)
    for place, row in enumerate(rows):
        axes.text(row.value * 1.05, place, f"{amount(row.value)}x", va="center")
    _dress(axes, "The same 500 messages: time, persist being 1")


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=_TEXT)
    axes.invert_yaxis()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _short(name: str) -> str:
    name = name.replace("`", "")
    return name if len(name) <= 70 else f"{name[:67]}…"
