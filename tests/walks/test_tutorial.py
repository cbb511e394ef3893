"""The tutorial, followed from an empty folder: killed and resumed, on a file and on Postgres."""

from pathlib import Path

from tests.walks.newcomer import newcomer_folder, run
from tests.walks.tutorial import follow


def test_the_tutorial_ends_well(tmp_path: Path, empty_postgres_url: str) -> None:
    folder = newcomer_folder(tmp_path)
    followed = follow(folder, empty_postgres_url)
    assert followed.told.differences == [], followed.output
    killed = [line for status, line in followed.told.statuses if status]
    assert killed == ['DIE_AFTER=30 python chat.py "What is the weather in Paris?"'], followed.output
    assert "Traceback" not in followed.output
    early = run("PERSIST_DATABASE_URL=sqlite:///new.db .venv/bin/python chat.py", folder)
    assert (early.returncode, early.stdout) == (1, "")
    assert early.stderr.startswith("Nothing was asked yet. Ask: python chat.py ")
