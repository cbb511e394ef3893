"""`persist telemetry` and `persist messaging`, on both databases."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock
from tests.cli.conftest import EVIL, SHOWN, Command
from tests.cli.golden import assert_golden

pytestmark = pytest.mark.one_database

PULL = "https://github.com/o/r/pull/1"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def box(database_url: str) -> list[str]:
    """The arguments that name an instance of which there is something of everything."""
    with Store.open(database_url) as store, store.begin() as tx:
        telemetry = tx.telemetry
        telemetry.status.record("busy", at=AT, instance_id="box")
        telemetry.status.record(f"odd{EVIL}", at=AT + timedelta(minutes=1), metadata={"why": EVIL}, instance_id="box")
        now = datetime.now(UTC)
        telemetry.usage.sample(at=AT, token_input=1000, cost_usd_micros=2_500_000, instance_id="box")
        telemetry.usage.sample(at=now, token_input=234, token_output=7, cost_usd_micros=1500, instance_id="box")
        telemetry.tools.record("bash", exit_code=0, duration_ms=1200, at=AT, instance_id="box")
        telemetry.tools.record(f"edit{EVIL}", exit_code=-9, at=AT, instance_id="box")
        telemetry.links.upsert(
            PULL, fetched_at=AT, pr_state="open", build_state=f"odd{EVIL}", pr_is_draft=True, instance_id="box"
        )
        telemetry.links.record_error("https://github.com/o/r/issues/2", f"502{EVIL}", at=now, instance_id="box")
    return ["--instance", "box"]


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    return result.stdout.splitlines()


def test_status(command: Command, box: list[str]) -> None:
    head, *rows = lines(command("telemetry", "status", *box))
    assert head.split() == ["SINCE", "(UTC)", "STATUS", "METADATA"]
    assert rows[0].split() == ["2026-01-02", "03:04:05", "busy"]
    assert rows[1].startswith(f"2026-01-02 03:05:05  odd{SHOWN}  ")
    assert len(lines(command("telemetry", "status", "--limit", "1", *box))) == 2
    assert lines(command("telemetry", "status", "-q", *box)) == [f"odd{SHOWN}"]
    found = json.loads(command("telemetry", "status", "--json", *box).stdout)["items"]
    assert [(entry["new_status"], entry["is_oldest"]) for entry in found] == [("busy", True), (f"odd{EVIL}", False)]


def test_usage(command: Command, box: list[str]) -> None:
    _, today, kept = lines(command("telemetry", "usage", *box))
    assert today.split() == ["today", "1", "234", "7", "-", "-", "$0.001500"]
    assert kept.split() == ["kept", "2", "1,234", "7", "-", "-", "$2.501500"]
    assert lines(command("telemetry", "usage", "-q", *box)) == ["$0.001500"]
    found = json.loads(command("telemetry", "usage", "--json", *box).stdout)
    assert (found["today"]["samples"], found["kept"]["cost_usd_micros"]) == (1, 2_501_500)


def test_tools(command: Command, box: list[str]) -> None:
    _, *rows = lines(command("telemetry", "tools", *box))
    assert [row.split()[2:] for row in rows] == [[f"edit{SHOWN}", "-9", "-"], ["bash", "0", "1,200"]]
    assert lines(command("telemetry", "tools", "-q", "--failures", *box)) == [f"edit{SHOWN}"]
    assert lines(command("telemetry", "tools", "-q", "--tool", "bash", *box)) == ["bash"]
    assert [call["exit_code"] for call in json.loads(command("telemetry", "tools", "--json", *box).stdout)["items"]] == [-9, 0]


def test_links(command: Command, box: list[str]) -> None:
    _, issue, pull = lines(command("telemetry", "links", *box))
    assert issue.split()[:3] == ["https://github.com/o/r/issue/2", "-", "never"]
    assert issue.endswith(f"502{SHOWN}")
    assert f"open, odd{SHOWN}, draft" in pull
    assert pull.split()[-2:] == ["2026-01-02", "03:09:05"]
    assert lines(command("telemetry", "links", "-q", "--due", *box)) == [PULL]
    assert [link["url"] for link in json.loads(command("telemetry", "links", "--json", "--due", *box).stdout)["items"]] == [PULL]


@pytest.mark.parametrize("what", ["status", "usage", "tools", "links"])
def test_without_an_instance_it_is_the_files_own(command: Command, box: list[str], backend: str, what: str) -> None:
    result = command("telemetry", what)
    if backend == "sqlite":
        assert result.exit_code == 0
        assert "box" not in result.output
    else:
        assert result.exit_code == 1
        assert "instance_id" in result.stderr


IDS = {r"mse_\w+": "ID", r" +\n": "\n"}


@pytest.fixture
def said(database_url: str, clock: FrozenClock) -> list[str]:
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


def test_what_it_looks_like(command: Command, said: list[str]) -> None:
    shown = command("messaging", "ls").stdout + command("messaging", "show", said[1]).stdout
    assert "\x1b" not in shown
    assert_golden("messaging", shown, IDS)


def test_ls_filters(command: Command, said: list[str]) -> None:
    over, thread, other = said
    assert set(listed(command("messaging", "ls", "-q"))) == set(said)
    assert set(listed(command("messaging", "ls", "-q", "--platform", "slack"))) == {over, thread}
    assert listed(command("messaging", "ls", "-q", "--inactive")) == [over]
    assert set(listed(command("messaging", "ls", "-q", "--active"))) == {thread, other}


def test_ls_pages(command: Command, said: list[str], database_url: str) -> None:
    first = json.loads(command("messaging", "ls", "--limit", "2", "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        page = tx.messaging.sessions.list(limit=2)
    assert first == {"items": [session.model_dump(mode="json") for session in page.items], "cursor": page.cursor}
    assert command("messaging", "ls", "--limit", "2").stderr == f"There are more: add --after {page.cursor}\n"
    last = json.loads(command("messaging", "ls", "--limit", "2", "--json", "--after", first["cursor"]).stdout)
    assert (len(last["items"]), last["cursor"]) == (1, None)
    wrong = command("messaging", "ls", "--after", "nonsense")
    assert (wrong.exit_code, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)


def test_show_json_is_everything(command: Command, said: list[str], database_url: str) -> None:
    shown = json.loads(command("messaging", "show", said[1], "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        assert shown["session"] == tx.messaging.sessions.get(said[1]).model_dump(mode="json")
        messages = [message.model_dump(mode="json") for message in tx.messaging.messages.history(said[1])]
    assert shown["messages"] == messages
    newest = json.loads(command("messaging", "show", said[1], "--json", "--limit", "1").stdout)
    assert newest["messages"] == messages[-1:]


def test_show_quiet_is_the_messages_alone(command: Command, said: list[str]) -> None:
    printed = command("messaging", "show", said[1], "-q").stdout
    assert "Since noon." in printed
    assert "platform" not in printed
