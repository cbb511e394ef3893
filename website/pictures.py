"""Pictures of the first page: badges from pyproject.toml, bars from docs/benchmarks.md. `python -m website.pictures` draws them.

Their colours can be read on a dark page and on a light one.
"""

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"

BARS = (
    "persist",
    "openai-agents SQLiteSession",
    "langgraph SqliteSaver",
    "openai-agents SQLAlchemySession",
    "google-adk DatabaseSessionService",
)
"""Rows of "The same job in other libraries" that are drawn, each under the durability that persist has."""

_OURS, _PEER, _TEXT, _BADGE = "#2f9e8f", "#6c8ebf", "#7d858f", "#4a5361"
_FONT = 'font-family="system-ui,sans-serif"'


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    found = {f"{name}.svg": badge(*words) for name, words in badges().items()}
    return {**found, "bars.svg": bars(measured()), "overview.svg": overview()}


def badges() -> dict[str, tuple[str, str]]:
    """What each badge says, left and right."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python = sorted(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])), key=lambda one: int(one[2:]))
    return {
        "badge-python": ("python", f"{python[0]} to {python[-1]}"),
        "badge-databases": ("databases", "SQLite | Postgres"),
        "badge-types": ("types", "mypy strict"),
        "badge-licence": ("licence", project["license"]),
    }


def badge(left: str, right: str) -> str:
    """A word and what it is about."""
    wide, wider = 6.6 * len(left) + 14, 6.6 * len(right) + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + wider:.0f}" height="20" role="img">'
        f'<rect width="{wide + wider:.0f}" height="20" rx="3" fill="{_OURS}"/>'
        f'<rect width="{wide:.0f}" height="20" rx="3" fill="{_BADGE}"/>'
        f'<g fill="#fff" text-anchor="middle" {_FONT} font-size="11"><text x="{wide / 2:.0f}" y="14">{left}</text>'
        f'<text x="{wide + wider / 2:.0f}" y="14">{escape(right)}</text></g></svg>\n'
    )


def measured() -> list[tuple[str, float]]:
    """The library and its time, that of persist being 1, as the page of benchmarks has them."""
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    (section,) = re.findall(r"^## The same job in other libraries\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    found = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+)x \|", section, re.MULTILINE))
    return [(name, float(found[name])) for name in BARS]


def bars(rows: list[tuple[str, float]]) -> str:
    """A bar for each."""
    longest = max(times for _, times in rows)
    lines = ['<text x="0" y="14" font-weight="bold">Time to append 500 messages and read them back, SQLite (persist = 1)</text>']
    for number, (name, times) in enumerate(rows):
        y = 26 + 24 * number
        colour = _OURS if name == "persist" else _PEER
        lines.append(f'<text x="238" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect x="246" y="{y}" width="{max(3.0, 400 * times / longest):.0f}" height="17" rx="2" fill="{colour}"/>')
        lines.append(f'<text x="{252 + max(3.0, 400 * times / longest):.0f}" y="{y + 13}">{times:g}x</text>')
    size = f'viewBox="0 0 700 {30 + 24 * len(rows)}" width="700"'
    style = f'role="img" fill="{_TEXT}" {_FONT} font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(lines)}</svg>\n'


def overview() -> str:
    """Who uses persist, and where it keeps what they give it."""
    users = ("chat server", "workflow workers", "agent frameworks", "the persist command")
    shapes = [
        _box(10 + 187 * place, 8, 175, 34, [name], _PEER) + _arrow(97 + 187 * place, 42) for place, name in enumerate(users)
    ]
    domains = "chat · workflows · conversations · programs · telemetry · events · blobs · …"
    shapes.append(_box(10, 66, 736, 58, ["persist: Store and AsyncStore", domains], _OURS))
    for x, words in (
        (10, ["a SQLite file", "one machine, no set-up"]),
        (386, ["a Postgres schema", "many processes, many machines"]),
    ):
        shapes += [_arrow(x + 180, 124), _box(x, 148, 360, 50, words, _PEER)]
    size = 'viewBox="0 0 756 206" width="756"'
    attributes = f'{size} role="img" fill="{_TEXT}" text-anchor="middle" {_FONT} font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{"".join(shapes)}</svg>\n'


def _box(x: int, y: int, width: int, height: int, words: list[str], colour: str) -> str:
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="6"'
    middle = y + height / 2 + 5 - 8.5 * (len(words) - 1)
    lines = [
        f'<text x="{x + width / 2:.0f}" y="{middle + 17 * number:.0f}">{escape(word)}</text>' for number, word in enumerate(words)
    ]
    return f'<rect {place} fill="{colour}" fill-opacity="0.14" stroke="{colour}"/>{"".join(lines)}'


def _arrow(x: int, y: int) -> str:
    return f'<path d="M{x} {y}V{y + 22}m-4 -6l4 7l4 -7" fill="none" stroke="{_TEXT}"/>'


def write() -> None:
    """Draw all of them into docs/pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write()
