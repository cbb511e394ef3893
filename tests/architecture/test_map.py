"""The map is true: what docs/architecture.md, tests/README.md and CONTRIBUTING.md name is there, and the glossary stays short."""

import re
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.cases import each

PAGES = ("docs/architecture.md", "tests/README.md", "CONTRIBUTING.md")
MAX_WORDS = 12

_FOLDERS = "persist|tests|alembic|benchmarks|docs|examples"
_NAMED = re.compile(rf"`((?:{_FOLDERS})/[^`\s:]*|pyproject\.toml|Makefile)(?::([\w.]+))?`")
_PLACEHOLDER = re.compile(r"<\w+>|N(?=_)")
"""As in `persist/<domain>/models.py` and `alembic/versions/000N_<what>.py`."""


def named(page: str) -> list[tuple[str, str]]:
    """Every `path` and `path:Name` of the page, the name empty where there is none."""
    return _NAMED.findall((ROOT / page).read_text(encoding="utf-8"))


def defines(path: Path, name: str) -> bool:
    """Whether the module defines each word of the name, as in `Class.method`."""
    text = path.read_text(encoding="utf-8")
    return all(re.search(rf"^\s*(?:class |def |async def )?{word}\b\s*[=:(\[]", text, re.MULTILINE) for word in name.split("."))


@each("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = {path for path, _ in named(page)}
    assert len(paths) > 5
    assert sorted(path for path in paths if not list(ROOT.glob(_PLACEHOLDER.sub("*", path)))) == []


@each("page", PAGES)
def test_every_name_is_defined_where_the_page_says(page: str) -> None:
    assert [(path, name) for path, name in named(page) if name and not defines(ROOT / path, name)] == []


def test_the_glossary_has_at_most_twelve_words() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (glossary,) = re.findall(r"^## Words of our own\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    words = re.findall(r"^\| (?!word )([a-z -]+) \|", glossary, re.MULTILINE)
    assert 0 < len(words) <= MAX_WORDS
    assert len(set(words)) == len(words)
