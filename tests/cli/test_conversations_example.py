"""examples/conversations.py, on both databases, twice on the same one."""

import os
import subprocess
import sys

import pytest

from persist import Store
from tests.markdown import ROOT
from tests.subprocesses import Worker

pytestmark = pytest.mark.one_database

SHOWN = """\
1. A conversation, and forks of forks of it
   main     inherits 0: You plan a picnic. / Will there be rain or sun? / Sun, and no wind.
   doubt    inherits 2: You plan a picnic. / Will there be rain or sun? / Rain, I fear.
   indoors  inherits 3: You plan a picnic. / Will there be rain or sun? / Rain, I fear. / What does a hall cost?
   budget   inherits 4: You plan a picnic. / Will there be rain or sun? / Rain, I fear. / What does a hall cost? / \
The price is over budget.
   6 messages are stored
2. Two sessions send each other messages
   the writer read ['Write an invitation.', 'Say that it may rain.']; unread now: 0 there, 1 here
3. What was said about money?
   0.00 The price is over budget.
   0.00 What does a hall cost?
4. Old sessions go, and what nothing else shows
   1 session, 1 branch and 1 of its 2 messages are gone
"""


def fresh(url: str) -> tuple[int, str, str]:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "conversations.py"), "--url", url]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def forked(url: str) -> tuple[int, str]:
    """What it ends with and what it says, forked from a process that has loaded persist."""
    with Worker("examples.conversations", "--url", url) as worker:
        said, _ = worker.communicate(timeout=120)
    return worker.wait(), said


def test_the_example_shows_what_it_says(database_url: str) -> None:
    code, said, errors = fresh(database_url)
    again = forked(database_url)
    assert (code, errors, again[0]) == (0, "", 0)
    for shown in (said, again[1]):
        # two messages are equally near, so either may be the first
        assert sorted(shown.splitlines()) == sorted(SHOWN.splitlines())


def test_the_example_leaves_the_sessions_of_others_alone(database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.conversations.sessions.create(id="mine", agent_name="somebody")
    assert forked(database_url) == (1, "")
    with Store.open(database_url) as store, store.read() as tx:
        assert [session.id for session in tx.conversations.sessions.list().items] == ["mine"]
