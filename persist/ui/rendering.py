"""Templates, and what they say values with: instants, lengths of time, costs, tokens, sizes, texts that are cut.

All stored text is hostile. Templates escape what they print, and `visible` shows what would lie by its direction or not be seen.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Context
from markupsafe import Markup

from persist.cli.output import printable, size
from persist.ui import charts
from persist.ui.addresses import segment, with_query
from persist.ui.markdown import highlighted, to_html
from persist.ui.trees import tree
from persist.ui.views import TEXT_AT_FIRST

_MICROS = 1_000_000
_SHORT = 40
"""How long the words of a status are whose HTML is kept."""
_STEPS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def visible(value: object) -> object:
    """For `finalize=` of the templates: text whose every character is seen; what is safe already, and numbers, as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return value if value.isascii() and value.isprintable() else printable(value)


def span(seconds: float) -> str:
    """A length of time in two units at most: 3 min 20 s, 2 h, 5 d 4 h."""
    left, words = max(0.0, seconds), list[str]()
    if left < 1:
        return f"{left * 1000:.0f} ms"
    for length, word in _STEPS:
        if left >= length and len(words) < 2:
            words.append(f"{int(left // length):,} {word}")
            left %= length
        elif words:
            break
    return " ".join(words)


def ago(at: datetime, now: datetime) -> str:
    """How long ago an instant is, or in how long it comes, in one unit."""
    seconds = (now - at).total_seconds()
    for length, word in _STEPS:
        if abs(seconds) >= length:
            count = int(abs(seconds) // length)
            return f"{count:,} {word} ago" if seconds > 0 else f"in {count:,} {word}"
    return "now"


def when(at: datetime | None, now: datetime) -> Markup:
    """An instant as a `time` element: relative, the exact one on hover, which the page's script says in the reader's zone."""
    if at is None:
        return Markup('<span class="none">-</span>')
    exact = (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="milliseconds")
    title = f"{exact[:10]} {exact[11:19]} UTC"
    return Markup(f'<time datetime="{exact}" title="{title}">{ago(at, now)}</time>')  # digits, and words of this module


def status(word: object, note: object = None) -> Markup:
    """A status as a word with a colour, and what is to be said of it."""
    words = (str(word), None if not note else str(note))
    return _status(*words) if len(words[0]) <= _SHORT and len(words[1] or "") <= _SHORT else _status.__wrapped__(*words)


@lru_cache(maxsize=512)
def _status(word: str, note: str | None) -> Markup:
    shown = printable(word)
    kind = shown.replace(" ", "-").replace("_", "-")
    return Markup('<span class="status status-{}">{}</span>').format(kind, f"{shown} · {printable(note)}" if note else shown)


def dollars(amount: float | None) -> str:
    """US dollars; a dash where nobody told."""
    if amount is None:
        return "-"
    return f"${amount:,.2f}" if amount >= 100 or not amount else f"${amount:,.4f}" if amount >= 0.0001 else f"${amount:.2g}"


def micros(amount: int | None) -> str:
    """Millionths of a US dollar as dollars."""
    return "-" if amount is None else dollars(amount / _MICROS)


def count(number: float | None) -> str:
    """A number with its thousands apart; a dash for none."""
    return "-" if number is None else f"{number:,}"


def shorter(text: object, most: int = 120) -> str:
    """Text on one line, cut when it is long."""
    line = " ".join(str(text)[: most * 4].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def model_of(model: Any) -> str:
    """`provider/id` where a model says so, else what names it."""
    if isinstance(model, Mapping):
        provider, id = model.get("provider_id") or model.get("provider"), model.get("model_id") or model.get("id")
        if isinstance(id, str):
            return f"{provider}/{id}" if isinstance(provider, str) else id
    return shorter(model, 60) if model else "-"


def pieces(text: object, whole: bool = False) -> tuple[str, int]:
    """The beginning of a text that a page shows at first, and how many characters it leaves out; all of it if `whole`."""
    text = str(text)
    return (text, 0) if whole or len(text) <= TEXT_AT_FIRST else (text[:TEXT_AT_FIRST], len(text) - TEXT_AT_FIRST)


class _Context(Context):
    """Calls each `partial` at once: of anything else Jinja finds out first whether it wants the context, which takes longer."""

    def call(self, called: Any, /, *given: Any, **named: Any) -> Any:
        if type(called) is not partial:
            return super().call(called, *given, **named)
        named.pop("_block_vars", None)
        named.pop("_loop_vars", None)
        return called(*given, **named)


@cache
def environment() -> Environment:
    """The templates of the pages."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.context_class = _Context
    made.filters |= {
        "bytes": size,
        "code": highlighted,
        "count": count,
        "dollars": dollars,
        "markdown": to_html,
        "micros": micros,
        "model": model_of,
        "pieces": pieces,
        "segment": segment,
        "short": shorter,
        "span": lambda value: span(value.total_seconds() if isinstance(value, timedelta) else value),
        "tree": tree,
    }
    made.globals |= {
        "bars": charts.bars,
        "gauge": charts.gauge,
        "status": partial(status),
        "lanes": charts.lanes,
        "strip": charts.strip,
        "timeline": partial(charts.timeline, words=span),
    }
    return made


def page(template: str, root: str, now: datetime, context: Mapping[str, Any]) -> str:
    """A template as HTML. `root`: where the application is mounted, which every address begins with."""
    own = {"href": partial(_href, root), "when": partial(when, now=now), "ago": partial(ago, now=now)}
    return environment().get_template(template).render({**own, "root": root, "now": now, **context})


def _href(root: str, path: str, /, *ids: object, **query: object) -> str:
    """The address of a page: each {} in the path stands for an id."""
    address = root + (path.format(*map(segment, ids)) if ids else path)
    return with_query(address, query) if query else address
