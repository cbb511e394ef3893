"""Text of messages as HTML: Markdown without HTML of its own, sanitized; code with its syntax in colours."""

from functools import cache

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
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre"),
    *("s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "code": {"class"}, "div": {"class"}, "ol": {"start"}, "span": {"class"}, "pre": {"class"}}
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")


def highlighted(code: str, language: str = "") -> Markup:
    """Code as HTML, in colours where its language is known."""
    if language and len(code) <= _MOST_HIGHLIGHTED:
        try:
            lexer = get_lexer_by_name(language.split(maxsplit=1)[0].lower(), stripnl=False)
        except (ClassNotFound, IndexError):
            pass
        else:
            return Markup(highlight(printable(code), lexer, _FORMATTER))
    return escape(printable(code))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 40}).enable(["table", "strikethrough"])
    parser.disable("image")  # a picture from elsewhere would be fetched: what is left is its link
    parser.options["highlight"] = lambda code, language, _: f'<pre class="code"><code>{highlighted(code, language)}</code></pre>'
    return parser


def to_html(text: str) -> Markup:
    """Markdown as HTML in which nothing runs and nothing is fetched; links say nothing of where they were followed."""
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
