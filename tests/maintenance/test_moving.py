"""Whatever moves a whole store moves every row of every table, from either database to either: all ways give the same."""

import io
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from persist import Store
from persist.maintenance import backup, copy, copy_resumably, doctor, export, import_, quarantined
from persist.maintenance.quarantine import quarantine
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, checksums, new_url, opened
from tests.schema.filling import LONG, fill, transcript
from tests.schema.places import Place
from tests.seeded_databases import with_file


def set_aside(store: Store, clock: FrozenClock) -> None:
    """A row in quarantine, with bytes that only a file has."""
    row: dict[str, Any] = {"table_name": "tasks", "moved_at": clock(), "row_key": "1", "cause": "\x00 holds \ud83d."}
    with store.begin() as tx:
        contents = '{"database": "sqlite", "row": {"body": {"text_base64": "wyg="}}}'
        tx._work.change(insert(quarantine).values(id="qua_1", group_id="qua_1", position=0, contents=contents, **row))


def by_copy(source: Store, url: str) -> dict[str, int]:
    with Store.open(with_file(url)) as target:
        report = copy(source, target)
    assert report.tables.keys() == report.checksums.keys() == {table.name for table in metadata.sorted_tables}
    assert report.left_out == ()
    return report.tables


def by_steps(source: Store, url: str) -> dict[str, int]:
    return copy_resumably(source, url, rows=25).tables


def by_lines(source: Store, url: str) -> dict[str, int]:
    stream = io.BytesIO()
    written = export(source, stream)
    assert written.kind is None
    stream.seek(0)
    with Store.open(with_file(url)) as target:
        read = import_(target, stream)
    assert (read.tables, read.session_id) == (written.tables, None)
    return dict(read.tables)


def by_backup(source: Store, url: str) -> dict[str, int]:
    backup(source, Path(url.removeprefix("sqlite:///")))
    return {}


WAYS: dict[str, Callable[[Store, str], dict[str, int]]] = {"copy": by_copy, "steps": by_steps, "lines": by_lines}
TAILS = ("chat_part_deltas", "chat_parts", "chat_turns")
"""An export has no text that waits and no turn: it has the parts as they are read."""


def errors(store: Store) -> list[Any]:
    return [one for one in doctor(store) if one.severity == "error"]


def without_tails(kept: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kept.items() if name not in TAILS}


def test_everything_arrives(url: str, clock: FrozenClock, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With a turn that runs, text that is not folded yet, the log of events, and a row in quarantine."""
    with Store.open(with_file(url), clock=clock, settings=LONG) as source, ExitStack() as stack:
        fill(source, clock, stack)
        set_aside(source, clock)
        session = source.messaging.sessions.list().items[0].id
        highest = source.messaging.messages.add(session, role="user", content="will be gone").id
        Place(url).run(f"DELETE FROM {Place(url).named('messaging_messages')} WHERE id = {highest}")
        expected, seen, wrong, aside = checksums(source), transcript(source), errors(source), quarantined(source)
        own = {table: len(found) for table, found in Place(url).rows().items()}
        assert [table for table, count in own.items() if not count] == []
        assert aside != []

        def arrives(way: str, kind: str) -> None:
            there = new_url(request, kind, tmp_path, f"{way}.db")
            moved = {**WAYS, "backup": by_backup}[way](source, there)
            if way != "backup":
                counted = moved if way != "lines" else without_tails(moved)
                assert counted == {name: own[name] if name != "_meta" else moved[name] for name in counted}
                assert set(own) - set(moved) <= {"persist_alembic_version", *((*TAILS, "_meta") if way == "lines" else ())}
            with Store.open(there, clock=clock) as target:
                found = transcript(target)
                if way == "lines":
                    assert without_tails(checksums(target)) == without_tails(expected)
                    assert found["messages"] == seen["messages"]
                else:
                    assert way == "copy" or checksums(target) == expected  # a copy has compared each row
                    assert found == seen
                assert quarantined(target) == aside
                assert way != "lines" or errors(target) == wrong
                # it is a store like any other, and its numbers go on above the highest ever given
                assert target.messaging.messages.add(session, role="user", content="new").id > highest

        kinds = {"sqlite": ["copy", "backup"], "postgres": [*WAYS]}
        if source.path is None:
            kinds = {"sqlite": ["steps", "lines"], "postgres": ["copy"]}
        each(("way", "kind"), [(way, kind) for kind, ways in kinds.items() for way in ways])(arrives)()


def meant(value: Any) -> Any:
    """The value of a JSON text, which the two kinds of databases spell with other escapes."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def lines_of(store: Store) -> list[str]:
    """The rows of an export, but for how a database counts positions: a server by a sequence, a file in a row."""
    stream, found = io.BytesIO(), []
    export(store, stream)
    for line in map(json.loads, stream.getvalue().splitlines()[1:-1]):
        if line["table"] == "event_heads" and line["row"]["stream_id"] == "*":
            line["row"] |= {"seq": None, "settled": None}
        line["row"] = {name: meant(value) for name, value in line["row"].items()}
        found.append(json.dumps(line, sort_keys=True))
    return sorted(found)


@pytest.mark.parametrize("way", WAYS)
def test_a_log_and_its_consumers_go_on(pair: Pair, clock: FrozenClock, way: str) -> None:
    filled(pair[0], clock)
    with Store.open(pair[0], clock=clock, events=True) as source:
        source.events.consumers.create("mirror", at="now")
        session = source.messaging.sessions.list().items[0].id
        source.messaging.messages.add(session, role="user", content="after the consumer's place")
        WAYS[way](source, pair[1])
        with opened(pair[1]) as (target,):
            assert target.logs_events
            assert lines_of(target) == lines_of(source)
            ours, theirs = source.events.consumers.list(), target.events.consumers.list()
            assert [(one.name, one.position, one.behind) for one in ours] == [
                (one.name, one.position, one.behind) for one in theirs
            ]
            given = source.events.consumers.next("mirror")
            assert target.events.consumers.next("mirror").events == given.events
            target.messaging.messages.add(session, role="user", content="new")
            (new,) = target.events.consumers.next("mirror").events or target.events.read("*", after=given.position)
            assert new.position == given.position + 1
            assert errors(target) == errors(source)
