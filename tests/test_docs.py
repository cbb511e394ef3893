"""Every Python block of docs/ runs, page by page, in a folder of its own."""

import re
from pathlib import Path

import pytest

from tests.markdown import CHAT_SERVER, PAGES, ROOT, run_blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_docs_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page, {}) > 0


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHAT_SERVER, *PAGES], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
