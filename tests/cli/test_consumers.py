"""`persist consumers`, and what `persist doctor` says of them, on both databases."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result

from persist import Store
from persist.maintenance import doctor
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]


@pytest.fixture
def consumed(database_url: str, clock: FrozenClock) -> str:
    """Two consumers of three events; one has acknowledged two, the other waits for none of them."""
    with Store.open(database_url, events=True, clock=clock) as store:
        with store.begin() as tx:
            for number in range(3):
                tx.events.append("audit", "noted", number)
        batch = store.events.consumers.next("outbox", lease=timedelta(minutes=5))
        store.events.consumers.ack("outbox", 2, token=batch.token)
        store.events.consumers.create("mail", at="now", types=["run.failed", "run.completed"])
    return database_url


def test_listing(command: Command, consumed: str) -> None:
    head, *rows = [line.split() for line in command("consumers", "ls").stdout.splitlines()]
    assert head[:3] == ["CONSUMER", "POSITION", "BEHIND"]
    assert [row[:3] for row in rows] == [["mail", "3", "0"], ["outbox", "2", "1"]]
    assert rows[0][-2:] == ["run.completed,", "run.failed"]
    assert command("consumers", "ls", "-q").stdout == "mail\noutbox\n"
    assert command("ls", "consumers").stdout == command("consumers", "ls").stdout
    found = json.loads(command("ls", "consumers", "--json", "--limit", "1").stdout)["items"]
    assert [(one["name"], one["position"], one["types"]) for one in found] == [("mail", 3, ["run.completed", "run.failed"])]
    assert command("ls", "consumers", "--after", "x").exit_code == 2


def test_removing(command: Command, consumed: str) -> None:
    assert command("consumers", "remove", "outbox").stdout == "Removed outbox.\n"
    assert command("consumers", "remove", "outbox").stdout == "There was no consumer outbox.\n"
    assert command("consumers", "remove", "mail", "-q").stdout == ""
    assert "No consumers." in command("consumers", "ls").output


def test_doctor_names_who_fell_behind(consumed: str, clock: FrozenClock) -> None:
    def found() -> list[tuple[str, str]]:
        with Store.open(consumed, clock=clock) as store:
            return [(finding.code, finding.subject) for finding in doctor(store) if finding.code.startswith("consumer")]

    clock.advance(delta=timedelta(days=7))
    assert found() == []
    clock.advance(seconds=1)
    assert found() == [("consumer_behind", "consumer outbox")]
