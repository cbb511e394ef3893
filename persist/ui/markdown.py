"""Text of messages as HTML: Markdown without HTML of its own, sanitized; code with its syntax in colours."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from persist.cli.output import printable

_MOST_HIGHLIGHTED = 20_000
"""The longest code that gets colours: more of it would take longer than a page may."""
_LONGEST_NAME = 40
_KEPT = 4_000_000
"""How many characters of HTML are kept, so that a message is rendered once for all who look at it."""
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "div", "em", "h4", "hr", "li", "ol", "p", "pre"),
    *("s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "div": {"class"},
    "h4": {"class"},
    "ol": {"start"},
    "span": {"class"},
    "pre": {"class"},
}
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")


def highlighted(code: str, language: str = "") -> Markup:
    """Code as HTML, in colours where its language is known."""
    if language and len(code) <= _MOST_HIGHLIGHTED:
        lexer = _lexer(language.partition(" ")[0][:_LONGEST_NAME].lower())
        if lexer is not None:
            return Markup(highlight(printable(code), lexer, _FORMATTER))
    return escape(printable(code))


@lru_cache(maxsize=256)
def _lexer(name: str) -> Any:
    try:
        return get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return None


def _heading(_: object, tokens: Sequence[Any], place: int, *others: object) -> str:
    """A heading of a text is one below those of the page, whatever its level: that is said by its looks."""
    token = tokens[place]
    return f'<h4 class="{token.tag}">' if token.nesting == 1 else "</h4>\n"


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 40}).enable(["table", "strikethrough"])
    parser.disable("image")  # a picture from elsewhere would be fetched: what is left is its link
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    parser.options["highlight"] = lambda code, language, _: f'<pre class="code"><code>{highlighted(code, language)}</code></pre>'
    return parser


class _Kept:
    """HTML of texts that were shown lately, by a digest of the text."""

    def __init__(self) -> None:
        self._found, self._size, self._lock = OrderedDict[bytes, Markup](), 0, Lock()

    def get(self, key: bytes) -> Markup | None:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: bytes, html: Markup) -> None:
        with self._lock:
            if key not in self._found:
                self._found[key] = html
                self._size += len(html)
            while self._size > _KEPT:
                self._size -= len(self._found.popitem(last=False)[1])


_kept = _Kept()


def to_html(text: str) -> Markup:
    """Markdown as HTML in which nothing runs and nothing is fetched; links say nothing of where they were followed."""
    key = blake2b(text.encode(errors="surrogatepass"), digest_size=20).digest()
    html = _kept.get(key)
    if html is None:
        html = _rendered(text)
        _kept.put(key, html)
    return html


def _rendered(text: str) -> Markup:
    return Markup(
        nh3.clean(
            _parser().render(printable(text)),
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
            strip_comments=True,
        )
    )
