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
"""How long a text is that stands on the line of its key; longer ones are cut to it once a tree has many."""
_CHARACTERS = 256
"""How many characters the texts of a tree have before that, for each value that it may have."""


def tree(value: Any, most: int = _MOST) -> Markup:
    """A JSON value as nested lists of at most so many values, the first levels unfolded; an empty one as a word."""
    return Markup(f'<div class="tree">{_Tree(most).of(value, 0)}</div>')


class _Tree:
    """Joins plain text, of which everything stored is escaped: a page may have thousands of these values."""

    def __init__(self, most: int) -> None:
        self._left, self._characters = most, most * _CHARACTERS

    def of(self, value: Any, depth: int) -> str:
        self._left -= 1
        if isinstance(value, dict | list) and value:
            return self._branch(value, depth)
        return self._leaf(value)

    def _branch(self, value: dict[str, Any] | list[Any], depth: int) -> str:
        if depth >= _DEEP or self._left <= 0:
            return self._cut(indented(value))
        rows = list[str]()
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            if self._left <= 0:
                rows.append(f"<li class='none'>and {len(value) - len(rows):,} more</li>")
                break
            rows.append(f"<li><span class='key'>{self._text(str(name))}</span> {self.of(one, depth + 1)}</li>")
        words = f"{len(value):,} {('field' if isinstance(value, dict) else 'item') + 's' * (len(value) != 1)}"
        return f"<details{' open' if depth < _OPEN else ''}><summary>{words}</summary><ul>{''.join(rows)}</ul></details>"

    def _leaf(self, value: Any) -> str:
        match value:
            case None | True | False:
                return f"<span class='word'>{json.dumps(value)}</span>"
            case int() | float():
                return f"<span class='number'>{escape(indented(value))}</span>"
            case dict() | list():
                return f"<span class='none'>{'{}' if isinstance(value, dict) else '[]'}</span>"
        text = str(value)
        if len(text) <= _LONG and "\n" not in text:
            return f"<span class='text'>{self._text(text)}</span>"
        return self._cut(text)

    def _cut(self, text: str) -> str:
        shown = text[: max(_LONG, min(TEXT_AT_FIRST, self._characters))]
        rest = len(text) - len(shown)
        more = f"<p class='none'>{rest:,} characters more: see this page as JSON.</p>" if rest else ""
        return f"<pre>{self._text(shown)}</pre>{more}"

    def _text(self, text: str) -> str:
        text = text[: max(_LONG, min(TEXT_AT_FIRST, self._characters))]
        self._characters -= len(text)
        return str(escape(printable(text)))


def indented(value: Any) -> str:
    """A JSON value as text that people read, whatever its depth."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=1, default=str)
    except (RecursionError, ValueError):
        return str(escape("too deep, or too large a number, to be shown"))
