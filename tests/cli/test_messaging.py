"""`persist messaging`, on both databases."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock
from tests.cli.golden import assert_golden

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
EVIL = "\x1b[2J\x9b\u202e"
IDS = {r"mse_\w+": "ID", r" +\n": "\n"}


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> list[str]:
    """The ids of three sessions, the oldest first: one that is over, one in a thread, one of another platform."""
    ids = []
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        keys = [("slack", None, "U1"), ("slack", f"171.5{EVIL}", "U2"), ("discord", None, "U3")]
        for platform, thread, user in keys:
            clock.advance(delta=timedelta(minutes=1))
            session = tx.messaging.sessions.get_or_create(platform=platform, channel_id="C1", thread_id=thread, user_id=user)
            ids.append(session.id)
        tx.messaging.sessions.deactivate(ids[0])
        tx.messaging.sessions.set_agent_session(ids[1], "ses_1")
        for role, content in (("user", f"Hello{EVIL}\nthere"), ("assistant", "Since noon.")):
            tx.messaging.messages.add(ids[1], role=role, content=content, platform_message_id=f"p{EVIL}")
            tx.messaging.sessions.touch(ids[1])
    return ids


def listed(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_what_it_looks_like(command: Command, stored: list[str]) -> None:
    shown = command("messaging", "ls").stdout + command("messaging", "show", stored[1]).stdout
    assert "\x1b" not in shown
    assert_golden("messaging", shown, IDS)


def test_ls_filters(command: Command, stored: list[str]) -> None:
    over, thread, other = stored
    assert set(listed(command("messaging", "ls", "-q"))) == set(stored)
    assert set(listed(command("messaging", "ls", "-q", "--platform", "slack"))) == {over, thread}
    assert listed(command("messaging", "ls", "-q", "--inactive")) == [over]
    assert set(listed(command("messaging", "ls", "-q", "--active"))) == {thread, other}


def test_ls_pages(command: Command, stored: list[str], database_url: str) -> None:
    first = json.loads(command("messaging", "ls", "--limit", "2", "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        page = tx.messaging.sessions.list(limit=2)
    assert first == {"items": [session.model_dump(mode="json") for session in page.items], "cursor": page.cursor}
    assert command("messaging", "ls", "--limit", "2").stderr == f"There are more: add --after {page.cursor}\n"
    last = json.loads(command("messaging", "ls", "--limit", "2", "--json", "--after", first["cursor"]).stdout)
    assert (len(last["items"]), last["cursor"]) == (1, None)
    wrong = command("messaging", "ls", "--after", "nonsense")
    assert (wrong.exit_code, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)


def test_ls_of_nothing(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("messaging", "ls")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No sessions.\n")


def test_show_json_is_everything(command: Command, stored: list[str], database_url: str) -> None:
    shown = json.loads(command("messaging", "show", stored[1], "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        assert shown["session"] == tx.messaging.sessions.get(stored[1]).model_dump(mode="json")
        messages = [message.model_dump(mode="json") for message in tx.messaging.messages.history(stored[1])]
    assert shown["messages"] == messages
    newest = json.loads(command("messaging", "show", stored[1], "--json", "--limit", "1").stdout)
    assert newest["messages"] == messages[-1:]


def test_show_quiet_is_the_messages_alone(command: Command, stored: list[str]) -> None:
    said = command("messaging", "show", stored[1], "-q").stdout
    assert "Since noon." in said
    assert "platform" not in said


def test_show_of_nobody(command: Command, stored: list[str]) -> None:
    result = command("messaging", "show", "mse_nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Error: There is no messaging session 'mse_nobody'.\n")


@pytest.mark.parametrize("wrong", [("ls", "--limit", "0"), ("ls", "extra", "more"), ("show",)], ids=["limit", "extra", "nobody"])
def test_called_wrongly(command: Command, stored: list[str], wrong: tuple[str, ...]) -> None:
    result = command("messaging", *wrong)
    assert (result.exit_code, result.stdout) == (2, "")
