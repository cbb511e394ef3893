"""Files beside docs/ that its pages link to, as pages of the site under project/: README.md, examples, tests.

On a code host these links are relative and lead to the file itself. No address of such a host is needed here.
"""

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "project"
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")

_LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)((?:#[^)\s]*)?\))")
_SOURCE = re.compile(r'(<img[^>]*\bsrc=")(?!\w+:)([^"#]+)(")')
_FENCE = re.compile(r"^(```+|~~~+)")
_KINDS = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".sh": "sh"}


def pages(texts: Iterable[str]) -> dict[str, str]:
    """Every page to make, by its path below docs/: of the files that are always there, and of those that texts link to.

    `texts`: of pages of docs/. Their links are relative to docs/, or to a folder in it.
    """
    found = set(ALWAYS)
    waiting = [(text, base) for text in texts for base in ("docs", "docs/how-to")]
    waiting += [((ROOT / name).read_text("utf-8"), posixpath.dirname(name)) for name in ALWAYS]
    while waiting:
        text, base = waiting.pop()
        for _, target, _ in _LINK.findall(text):
            path = posixpath.normpath(posixpath.join(base, target))
            if path in found or path.startswith(("..", "docs")) or not (ROOT / path).exists():
                continue
            found.add(path)
            if path.endswith(".md"):
                waiting.append(((ROOT / path).read_text("utf-8"), posixpath.dirname(path)))
    return {_page(path): _text(path) for path in sorted(found)}


def links_of(markdown: str) -> list[tuple[str, str]]:
    """Each link of a text to a file beside it, as the path that it names, which may be empty, and the anchor behind it."""
    text = re.sub(r"^(```+|~~~+).*?^\1$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return [(target, anchor.lstrip("#")) for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)", text)]


def relinked(markdown: str, page: str) -> str:
    """The text with each link that leaves docs/ led to the page of that file. `page`: its path below docs/."""
    here = posixpath.dirname(page)
    of = posixpath.relpath(here, FOLDER) if _is_elsewhere(page) else posixpath.normpath(posixpath.join("docs", here))

    def led(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(of, match[2]))
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif (ROOT / path).exists() and not path.startswith(".."):
            place = _page(path)
        else:
            return match[0]
        return f"{match[1]}{posixpath.relpath(place, here or '.')}{match[3]}"

    lines, fence = [], ""
    for line in markdown.split("\n"):
        if (mark := _FENCE.match(line)) and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        lines.append(line if fence else _SOURCE.sub(led, _LINK.sub(led, line)))
    return "\n".join(lines).replace("<details>", '<details markdown="1">')  # else what is folded would stay text


def _is_elsewhere(page: str) -> bool:
    return page.startswith(f"{FOLDER}/")


def _page(path: str) -> str:
    if path.endswith(".md"):
        return f"{FOLDER}/{path.removeprefix('.')}"
    return f"{FOLDER}/{path.removeprefix('.').replace('.', '-')}.md"


def _text(path: str) -> str:
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text("utf-8")
    if place.is_dir():
        files = sorted(one for one in place.iterdir() if one.is_file())
        return f"# {path}/\n\n" + "\n".join(f"- `{one.name}`" for one in files) + "\n"
    fence = "~~~~"
    return f"# {path}\n\n{fence}{_KINDS.get(place.suffix, 'text')}\n{place.read_text('utf-8').rstrip()}\n{fence}\n"
