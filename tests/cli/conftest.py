"""The command in this process, on a database of the test's own."""

import math
import os
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from persist.cli import main

Command = Callable[..., Result]

EVIL = "\x1b[2J\x9b\u202e"
"""What clears a terminal, and turns what follows it around."""
SHOWN = "\\x1b[2J\\x9b\\u202e"


@pytest.fixture
def command(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`command("runs", "ls", …)` against the test's database, named by the environment."""
    for name in [name for name in os.environ if name.startswith("PERSIST_")]:
        if not name.startswith(("PERSIST_TEST_", "PERSIST_UPDATE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    monkeypatch.setattr("persist.cli.output._PLAIN_EVERY", math.inf)  # a slow machine says more
    return lambda *args, **options: CliRunner().invoke(main, list(args), **options)
