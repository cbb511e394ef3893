"""Small streams get their snapshots together when the log is switched on; large ones alone, and writers go on in between."""

import threading
from typing import Any

from tests.contract.chat.scenes import create, say
from tests.contract.events.scenes import assert_gapless, events
from tests.contract.faces import on_one_face
from tests.distributed_server import takes_triggers

MANY = 120
GROUPS = 3


def sessions(store: Any, count: int) -> list[str]:
    with store.begin() as tx:
        return [tx.chat.sessions.create(agent="build", model={}).id for _ in range(count)]


def all_events(store: Any) -> list[Any]:
    """Every event, however many there are."""
    found = events(store, limit=1000)
    while more := events(store, after=found[-1].position, limit=1000):
        found += more
    return found


def snapshots(store: Any) -> dict[str, Any]:
    """The rows of each stream's snapshots, as many lists as it has snapshots."""
    found: dict[str, Any] = {}
    for event in all_events(store):
        if event.type.startswith("snapshot"):
            found.setdefault(event.stream_id, []).append([change["row"] for change in event.data["changes"]])
    return found


@on_one_face
def test_rows_of_many_streams_are_read_by_one_statement_for_each_table(counted_store: Any, statements: list[str]) -> None:
    names = sessions(counted_store, MANY)
    del statements[:]
    assert counted_store.switch_events(True)
    reading = [one for one in statements if "chat_turns" in one and one.startswith("SELECT") and "DISTINCT" not in one]
    assert len([one for one in reading if "of_stream" in one]) == GROUPS
    assert len(reading) < MANY / 2  # the others are for the streams that many share
    found = snapshots(counted_store)
    assert [[row["id"] for row in found[name][0]] for name in names] == [[name] for name in names]


@on_one_face
def test_streams_that_are_too_large_to_go_together_get_theirs_alone(store: Any) -> None:
    large, small = sessions(store, 4), sessions(store, 2)
    with store.begin() as tx:
        for name in large:
            tx.chat.messages.sync(
                name, [{"id": f"{name}-{at}", "role": "user", "parts": [{"type": "text", "text": "hi"}]} for at in range(150)]
            )
    assert store.switch_events(True)
    found = snapshots(store)
    assert {name: [len(rows) for rows in found[name]] for name in large} == {name: [301] for name in large}
    assert {name: [len(rows) for rows in found[name]] for name in small} == {name: [1] for name in small}
    assert_gapless(all_events(store))


@on_one_face
def test_no_verb_and_no_transact_is_refused_while_the_log_is_switched(store: Any, open_store: Any, database_url: str) -> None:
    names = sessions(store, MANY)
    writer = open_store()
    ended, refused, written = threading.Event(), list[BaseException](), list[str]()

    def write(transacts: bool) -> None:
        part = [{"type": "text", "text": "hi"}]
        number = 0
        try:
            while not ended.is_set() or number < 5:
                name = names[number % MANY]
                number += 1
                if transacts:
                    written.append(
                        writer.transact(lambda tx, name=name: tx.chat.messages.append(name, role="user", parts=part)).id
                    )
                else:
                    written.append(writer.chat.messages.append(name, role="user", parts=part).id)
        except BaseException as error:
            refused.append(error)

    threads = [threading.Thread(target=write, args=(bool(number % 2),)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert store.switch_events(True)
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    assert refused == []
    found = all_events(store)
    assert_gapless(found)
    logged = {change["row"]["id"] for event in found for change in event.data["changes"] if change["table"] == "chat_messages"}
    assert not takes_triggers(database_url) or logged == set(written)


def test_a_stream_without_rows_that_had_events_ends_with_an_empty_snapshot(store: Any) -> None:
    assert store.switch_events(True)
    gone, kept = create(store), create(store)
    say(store, kept, "hi")
    with store.begin() as tx:
        tx.chat.sessions.delete(gone)
    assert store.switch_events(False)
    assert store.switch_events(True)
    found = snapshots(store)
    assert (found[gone], len(found[kept][0])) == ([[]], 3)
