"""JSON values as trees that unfold, no larger than a page can take."""

import json
from typing import Any

from markupsafe import Markup, escape

from persist.cli.output import printable
from persist.ui.views import TEXT_AT_FIRST

_DEEP = 12
"""How many levels unfold; what lies deeper is written as JSON."""
_MOST = 1_000
"""How many values one tree has at most."""
_OPEN = 2
"""How many levels are unfolded at first."""
_LONG = 200


def tree(value: Any) -> Markup:
    """A JSON value as nested lists, the first levels unfolded; an empty one as a word."""
    return Markup('<div class="tree">{}</div>').format(_Tree().of(value, 0))


class _Tree:
    def __init__(self) -> None:
        self._left = _MOST

    def of(self, value: Any, depth: int) -> Markup:
        self._left -= 1
        if isinstance(value, dict | list) and value:
            return self._branch(value, depth)
        return _leaf(value)

    def _branch(self, value: dict[str, Any] | list[Any], depth: int) -> Markup:
        if depth >= _DEEP or self._left <= 0:
            return _cut(indented(value))
        named = isinstance(value, dict)
        items = list(value.items()) if isinstance(value, dict) else [(str(place), one) for place, one in enumerate(value)]
        rows, shown = list[Markup](), 0
        for name, one in items:
            if self._left <= 0:
                break
            shown += 1
            rows.append(Markup("<li><span class='key'>{}</span> {}</li>").format(printable(str(name)), self.of(one, depth + 1)))
        if shown < len(items):
            rows.append(Markup("<li class='none'>and {} more</li>").format(f"{len(items) - shown:,}"))
        words = f"{len(items):,} {('field' if named else 'item') + 's' * (len(items) != 1)}"
        return Markup("<details{}><summary>{}</summary><ul>{}</ul></details>").format(
            Markup(" open") if depth < _OPEN else "", words, Markup("").join(rows)
        )


def _leaf(value: Any) -> Markup:
    match value:
        case None | True | False:
            return Markup("<span class='word'>{}</span>").format(json.dumps(value))
        case int() | float():
            return Markup("<span class='number'>{}</span>").format(indented(value))
        case dict() | list():
            return Markup("<span class='none'>{}</span>").format("{}" if isinstance(value, dict) else "[]")
    text = str(value)
    if len(text) <= _LONG and "\n" not in text:
        return Markup("<span class='text'>{}</span>").format(printable(text))
    return _cut(text)


def _cut(text: str) -> Markup:
    rest = len(text) - TEXT_AT_FIRST
    more = Markup("<p class='none'>{} characters more: see this page as JSON.</p>").format(f"{rest:,}") if rest > 0 else ""
    return Markup("<pre>{}</pre>{}").format(printable(text[:TEXT_AT_FIRST]), more)


def indented(value: Any) -> str:
    """A JSON value as text that people read, whatever its depth."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=1, default=str)
    except (RecursionError, ValueError):
        return str(escape("too deep, or too large a number, to be shown"))
