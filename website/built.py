"""Checks a built site: `python -m website.built FOLDER`. It needs nothing from elsewhere, and each answer is two clicks away."""

import posixpath
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from website.questions import QUESTIONS

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


class _Page(HTMLParser):
    """What a page loads, where its links lead, and its anchors."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(place.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.add(found.get("id", ""))
        if tag == "a":
            self.links.append(found.get("href", ""))
        elif tag in _LOADS and not (tag == "link" and found.get("rel") in ("canonical", "prev", "next")):
            self.loads.append(found.get(_LOADS[tag], ""))


def problems(folder: Path) -> list[str]:
    """Each in one line."""
    pages = {place.relative_to(folder).as_posix(): _Page(place) for place in folder.rglob("*.html")}
    found = [f"{name} loads {url}" for name, page in pages.items() for url in page.loads if urlsplit(url).netloc]
    reached = _reached(pages, "index.html", 2)
    for question, answer in QUESTIONS.items():
        page, _, anchor = answer.partition("#")
        place = _place_of(page)
        if place not in pages or (anchor and anchor not in pages[place].anchors):
            found.append(f"{question} Nothing is at {answer}.")
        elif (place, anchor) not in reached:
            found.append(f"{question} {answer} is more than two clicks away.")
    return found


def _reached(pages: dict[str, _Page], start: str, clicks: int) -> set[tuple[str, str]]:
    """Pages, and anchors of them, that so many clicks lead to; a page that is reached shows its beginning."""
    reached, latest = {(start, "")}, {(start, "")}
    for _ in range(clicks):
        latest = {end for place, _ in latest for link in pages[place].links if (end := _led(place, link))[0] in pages} - reached
        reached |= latest | {(place, "") for place, _ in latest}
    return reached


def _led(place: str, link: str) -> tuple[str, str]:
    parts = urlsplit(link)
    if parts.netloc or parts.scheme:
        return "", ""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(parts.path))) if parts.path else place
    return (path if path.endswith(".html") else posixpath.normpath(f"{path}/index.html")), unquote(parts.fragment)


def _place_of(page: str) -> str:
    stem = page.removesuffix(".md")
    return f"{stem}.html" if stem.rpartition("/")[2] == "index" else f"{stem}/index.html"


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "Nothing is loaded from elsewhere, and every answer is within two clicks.")
    sys.exit(bool(wrong))
