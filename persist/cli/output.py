"""What commands print: stored text made harmless for a terminal, columns, and JSON for scripts."""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import BaseModel

# Control characters move the cursor, retitle the window or worse; overrides of the writing direction make text lie; halves
# of surrogate pairs cannot be written. Stored text comes from models, tools and web pages, so it may hold any of them.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNITS = ("B", "KB", "MB", "GB", "TB")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str) -> str:
    """Text that a terminal only shows; line breaks and tabs stay."""
    return _HARMFUL.sub(_escape, text.replace("\r\n", "\n"))


def inline(text: str) -> str:
    """Printable text on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def instant(value: datetime) -> str:
    """An instant, to the second, in UTC."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def model_name(model: Any) -> str:
    """`provider/id` where the model says so."""
    if isinstance(model, dict):
        provider, id = model.get("provider_id"), model.get("model_id")
        if isinstance(provider, str) and isinstance(id, str):
            return inline(f"{provider}/{id}")
    return shortened(model, 60) if model else "-"


def tokens(count: int) -> str:
    """How many tokens; a dash for none, which says that nobody told."""
    return f"{count:,}" if count else "-"


def cost(dollars: float | None) -> str:
    """US dollars; a dash where nobody told, which is stored as nothing or as zero."""
    return f"${dollars:,.4f}" if dollars else "-"


def size(count: int | None) -> str:
    """1,234,567 bytes as 1.2 MB; `-` where nobody knows."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if not unit else f"{value:,.1f} {_UNITS[unit]}"


def cut(text: str, maximum: int) -> str:
    """Text on one line, cut when it is long."""
    shown = inline(text)
    return shown if len(shown) <= maximum else shown[: maximum - 1] + "…"


def shortened(value: Any, maximum: int = 300) -> str:
    """A JSON value on one line, cut when it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # escaping makes text longer, never shorter, so what is cut away need not be escaped first
    cut = inline(text[: maximum + 1])
    return cut if len(text) <= maximum else f"{inline(text[:maximum])}… ({len(text):,} characters)"


class Paint:
    """Styles text, on a terminal that has colours and a user who has not set NO_COLOR."""

    def __init__(self, on: bool | None = None) -> None:
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.on = (wanted and sys.stdout.isatty()) if on is None else on

    def __call__(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.on else text


def say(text: str, *, err: bool = False) -> None:
    """Print a line, whatever characters the terminal can write."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    # what is styled was styled on purpose: click must not look again whether this is a terminal
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, color=True)


def say_json(value: Any, *, err: bool = False) -> None:
    """Print a JSON value on one line; values of the package may be anywhere in it."""
    say_json_text(json.dumps(value, ensure_ascii=False, default=_dumped), err=err)


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else list(value)


def say_json_text(text: str, *, err: bool = False) -> None:
    """Print JSON text; what harms a terminal can only be inside of strings, where JSON has its own escape for it."""
    click.echo(_RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode(), err=err)


def columns(rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Rows with their cells one below the other; the last cell of a row is not padded."""
    rows = list(rows)
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(padded).rstrip()


def cells(text: str) -> int:
    """How many columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fitted(text: str, width: int) -> str:
    """Printable text on one line, in at most so many columns of a terminal: of longer text the middle is left out."""
    if cells(text) <= width:
        return text
    head, tail = _first(text, (width - 1) - (width - 1) // 2), _first(text[::-1], (width - 1) // 2)[::-1]
    return f"{head}…{tail}"


def _first(text: str, width: int) -> str:
    """The longest beginning that takes so many columns."""
    taken = 0
    for place, character in enumerate(text):
        taken += cells(character)
        if taken > width:
            return text[:place]
    return text
