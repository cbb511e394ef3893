"""The Python blocks of the page about frameworks run, in a folder of their own, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.markdown import FRAMEWORKS, run_blocks


def test_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(FRAMEWORKS, {}) > 0


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", FRAMEWORKS.read_text(encoding="utf-8")):
        assert (FRAMEWORKS.parent / target).exists(), target
