"""Every Python block of docs/ runs, page by page, in a folder of its own; every link leads somewhere; nothing is left unread."""

import logging
import re
from pathlib import Path

import click
import pytest

from persist.cli.root import main
from tests.cases import each
from tests.markdown import CHAT_SERVER, CONTAINERS, DOCS, FRAMEWORKS, PAGES, ROOT, WALKED, WITHOUT_CODE, run_blocks
from website.elsewhere import links_of
from website.questions import QUESTIONS, anchors_of, within

EVERY_PAGE = sorted(DOCS.rglob("*.md"))
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *EVERY_PAGE]
_FENCE = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_docs_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.NOTSET, "persist.statements")  # a page switches it on: the fixture sets it back
    assert run_blocks(page, {}) > 0


def test_every_block_is_run_by_a_test() -> None:
    """Python everywhere, a shell's lines and files on pages that are followed. Kinds console and py are only shown: of a terminal
    with a server, and lines of an application that the reader has."""
    ran_elsewhere = {CHAT_SERVER, CONTAINERS, *WALKED}
    for page in EVERY_PAGE:
        kinds = set(_FENCE.findall(page.read_text(encoding="utf-8")))
        if page in WITHOUT_CODE:
            assert kinds == set(), page
        elif page not in ran_elsewhere:
            assert kinds <= {"python", "console", "mermaid", "py"}, page
            assert page in PAGES or page in FRAMEWORKS


def test_links_between_pages_lead_somewhere() -> None:
    """To a file, and to a heading of it."""
    lost = []
    for page in LINKED:
        for target, anchor in links_of(page.read_text(encoding="utf-8")):
            place = (page.parent / target).resolve() if target else page
            if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors_of(place)):
                lost.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert lost == []


@each(("question", "answer"), QUESTIONS.items())
def test_an_answer_is_found_within_two_clicks(question: str, answer: str) -> None:
    """By the links in the text of pages, from the first page of docs/; the menu of the site is shorter still."""
    place, _, anchor = answer.partition("#")
    page = DOCS / place
    assert page.exists()
    assert not anchor or anchor in anchors_of(page)
    assert within(2, DOCS / "index.md", page, anchor)


def test_twenty_questions_at_least() -> None:
    assert len(QUESTIONS) >= 20


def test_the_guide_of_upgrades_has_every_revision() -> None:
    revisions = sorted(path.name[:4] for path in (ROOT / "alembic" / "versions").glob("0*.py"))
    guide = (DOCS / "upgrading.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d{4}) \| \S", guide, re.MULTILINE) == revisions


_SHOWN = re.compile(r"^(?: {4}|\$ )?(?:\w+=\S* )*(persist [a-z].*)$", re.MULTILINE)


def test_every_command_that_a_page_shows_exists() -> None:
    """Each name of a command, and each of its options, in whatever kind of block."""
    wrong, seen = [], 0
    for page in LINKED:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        blocks = "\n".join(re.findall(r"^(?: {4}[^\n]*|```(?:sh|console)\n.*?^```)$", text, re.MULTILINE | re.DOTALL))
        for line in _SHOWN.findall(blocks):
            words = (
                re.split(r" #|[|;<>]|&&", re.sub(r"\$\([^)]*\)", "ID", line))[0].replace("[", " ").replace("]", " ").split()[1:]
            )
            command: click.Command | None = main
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                command = command.get_command(click.Context(command), words.pop(0))
            seen += 1
            known = {"-h", "--help", *(name for parameter in command.params for name in parameter.opts)} if command else set()
            lost = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
            if command is None or lost:
                wrong.append(f"{page.relative_to(ROOT)}: {line}")
    assert wrong == []
    assert seen > 80
