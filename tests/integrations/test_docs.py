"""The Python blocks of pages that need frameworks run, each page in a folder of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from persist import Store
from tests.markdown import FRAMEWORKS, ROOT, run_blocks

ALONE = ("django.md", "celery-and-fork.md")
"""Pages that settle something for their whole process, or fork it."""
_RUN = "import sys; sys.path.insert(0, sys.argv[2]); from tests.markdown import *; assert run_blocks(Path(sys.argv[1]), {})"


@pytest.mark.parametrize("page", FRAMEWORKS, ids=lambda page: page.name)
def test_blocks_of_the_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name in ALONE:
        done = subprocess.run([sys.executable, "-c", _RUN, str(page), str(ROOT)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    else:
        namespace: dict[str, object] = {}
        assert run_blocks(page, namespace) > 0
        for left in namespace.values():  # a server that a page only builds would close its store when it stops
            if isinstance(left, Store):
                left.close()
