"""Plots as SVG, made here: bars by day, how full something is, a strip of statuses, a time line, branches with their forks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import ceil

from markupsafe import Markup, escape

from persist.cli.output import printable

_WIDTH, _HEIGHT, _LABEL = 480.0, 110.0, 20.0

_CHARACTER = 7.5
"""How wide a character of a label is at most."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its height, and what it says on hover."""

    label: str
    value: float
    title: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Something that lasted: a row of a time line, or a piece of a strip. `kind` chooses its colour; no end: it goes on."""

    label: str
    kind: str
    starts: datetime
    ends: datetime | None
    title: str
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A branch: a line that begins at a place of its parent's (-1: it has none), and ends, if that is known, at a place."""

    label: str
    parent: int
    begins: int
    ends: int | None
    title: str
    path: str
    chosen: bool = False


def _tag(name: str, inside: object = "", **attributes: object) -> Markup:
    given = "".join([f' {_attribute(key)}="{escape(value)}"' for key, value in attributes.items()])
    return Markup(f"<{name}{given}>{escape(inside)}</{name}>")


@cache
def _attribute(key: str) -> str:
    """The name of an attribute, which Python does not take as a keyword."""
    return key.rstrip("_").replace("_", "-")


def _kind(one: Stretch) -> str:
    """The class of its colour; what another program stored as a status may be any text."""
    return f"kind-{one.kind}" if one.kind.replace("-", "").replace("_", "").isalnum() else "kind-unknown"


def _px(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def bars(values: Sequence[Bar], caption: str) -> Markup:
    """Bars beside each other, the first on the left. `caption`: what the plot shows, for those who cannot see it."""
    most = max((bar.value for bar in values), default=0) or 1
    step = _WIDTH / max(len(values), 1)
    each = max(1, ceil((max((len(bar.label) for bar in values), default=0) + 1) * _CHARACTER / step))
    drawn = list[Markup]()
    for place, bar in enumerate(values):
        height = max(0.0, bar.value) / most * (_HEIGHT - 10)
        height = max(height, 2.0) if bar.value > 0 else height
        shape = _tag(
            "rect", x=_px(place * step + 1), y=_px(_HEIGHT - height), width=_px(max(step - 2, 1)), height=_px(height), rx=2
        )
        title = _tag("title", printable(bar.title))
        label = _below(bar.label, place * step + step / 2) if place % each == 0 else ""
        drawn.append(_tag("g", title + shape + label, class_="bar"))
    return _svg(Markup("").join(drawn), _WIDTH, _HEIGHT + _LABEL, "bars", caption)


def _below(text: str, middle: float) -> Markup:
    """A label under a bar, moved where it would leave the plot."""
    half = len(text) * _CHARACTER / 2
    place = min(max(middle, half), max(_WIDTH - half, half))
    return _tag("text", printable(text), x=_px(place), y=_px(_HEIGHT + 14), text_anchor="middle")


def gauge(used: float, limit: float, caption: str) -> Markup:
    """How full something is, as a bar that changes its colour from four fifths on and when it is full."""
    part = min(max(used / limit, 0.0), 1.0) if limit > 0 else float(used > 0)
    kind = "full" if used >= limit else "high" if part >= 0.8 else "low"
    inside = _tag("rect", width=160, height=8, rx=4, class_="rest") + _tag(
        "rect", width=_px(160 * part), height=8, rx=4, class_=kind
    )
    return _svg(inside, 160.0, 8.0, "gauge", caption)


def _svg(inside: Markup, width: float, height: float, kind: str, caption: str) -> Markup:
    box = f"0 0 {_px(width)} {_px(height)}"
    role = "group" if Markup("<a ") in inside else "img"  # what has links is no picture, of which readers hear the caption alone
    return _tag("svg", _tag("title", printable(caption)) + inside, viewBox=box, class_=f"plot {kind}", role=role)


def _bounds(stretches: Sequence[Stretch], now: datetime) -> tuple[datetime, float]:
    first = min(one.starts for one in stretches)
    last = max((one.ends or now) for one in stretches)
    return first, max((last - first).total_seconds(), 0.001)


def strip(stretches: Sequence[Stretch], now: datetime, caption: str) -> Markup:
    """Statuses one after the other on one line."""
    if not stretches:
        return Markup("")
    first, length = _bounds(stretches, now)
    drawn = list[Markup]()
    for one in stretches:
        start = (one.starts - first).total_seconds() / length * 720
        width = max(((one.ends or now) - one.starts).total_seconds() / length * 720, 1.0)
        title = _tag("title", printable(one.title))
        drawn.append(_tag("g", title + _tag("rect", x=_px(start), y=0, width=_px(width), height=28, class_=_kind(one))))
    return _svg(Markup("").join(drawn), 720.0, 28.0, "strip", caption)


def timeline(stretches: Sequence[Stretch], now: datetime, caption: str, words: Callable[[float], str] | None = None) -> Markup:
    """What lasted how long, a row each on one axis of time, in the order given. `words`: says a length of time on the axis."""
    if not stretches:
        return Markup("")
    first, length = _bounds(stretches, now)
    left, row, bottom = 190.0, 24.0, len(stretches) * 24.0
    drawn = list[Markup]()
    for part in range(5 if words else 0):
        x = left + part * (900 - left) / 4
        anchor = "start" if not part else "end" if part == 4 else "middle"
        drawn.append(_tag("line", x1=_px(x), x2=_px(x), y1=0, y2=_px(bottom), class_="axis"))
        said = words(length * part / 4) if words and part else "begin"
        drawn.append(_tag("text", said, x=_px(x), y=_px(bottom + 14), text_anchor=anchor, class_="axis"))
    for place, one in enumerate(stretches):
        y = place * row
        start = left + (one.starts - first).total_seconds() / length * (900 - left)
        width = max(((one.ends or now) - one.starts).total_seconds() / length * (900 - left), 3.0)
        label = one.label if len(one.label) <= 26 else one.label[:25] + "…"
        inside = (
            _tag("title", printable(one.title))
            + _tag("rect", x=0, y=_px(y), width=900, height=_px(row), class_="row")
            + _tag("text", printable(label), x=4, y=_px(y + 16))
            + _tag("rect", x=_px(min(start, 897)), y=_px(y + 5), width=_px(width), height=14, rx=3, class_=_kind(one))
        )
        drawn.append(_tag("a", inside, href=one.href) if one.href else _tag("g", inside))
    return _svg(Markup("").join(drawn), 900.0, bottom + (_LABEL if words else 0), "timeline", caption)


def lanes(branches: Sequence[Lane], root: str, caption: str) -> Markup:
    """Branches below each other on one axis, from their first message to their last one, each tied to where it was forked.

    `root`: what every address begins with.
    """
    known = [place for one in branches for place in (one.begins, one.ends) if place is not None]
    most = max(known, default=0) + (1 if any(one.ends is None for one in branches) else 0) or 1
    left, row, width = 190.0, 30.0, 880.0
    x = [left + one.begins / most * (width - left) for one in branches]
    drawn = list[Markup]()
    for place, one in enumerate(branches):
        y, end = place * row + row / 2, left + (most if one.ends is None else one.ends) / most * (width - left)
        label = one.label if len(one.label) <= 26 else one.label[:25] + "…"
        inside = _tag("title", printable(one.title))
        inside += _tag("rect", x=0, y=_px(y - row / 2), width=900, height=_px(row), class_="row")
        if one.parent >= 0:
            inside += _tag("path", d=f"M{_px(x[place])} {_px(one.parent * row + row / 2)}V{_px(y)}", class_="fork")
            inside += _tag("circle", cx=_px(x[place]), cy=_px(one.parent * row + row / 2), r=4, class_="point")
            inside += _tag("text", str(one.begins), x=_px(x[place] + 6), y=_px(one.parent * row + row / 2 - 5), class_="place")
        line = {"x1": _px(x[place]), "x2": _px(max(end, x[place] + 4)), "y1": _px(y), "y2": _px(y)}
        inside += _tag("line", **line, class_="lane open" if one.ends is None else "lane")
        inside += _tag("text", printable(label), x=4, y=_px(y + 4))
        drawn.append(_tag("a", inside, href=root + one.path, class_="chosen" if one.chosen else "other"))
    return _svg(Markup("").join(drawn), 900.0, len(branches) * row, "lanes", caption)
