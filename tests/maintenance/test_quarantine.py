"""The quarantine: what comes back and what cannot, while others write, with the log of events on, in every kind of store."""

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from persist import Store
from persist.errors import Conflict, NotFound, PersistError, ReadOnlyTransaction
from persist.maintenance import doctor, quarantined, quarantined_row, rebuild, restore_row
from persist.programs import create_run_file
from persist.testing import FrozenClock
from tests.maintenance.spoiling import raw_rows, spoil, spoilt_on_a_file
from tests.schema.filling import transcript
from tests.schema.places import Place

pytestmark = pytest.mark.one_database

CELLS = list(spoilt_on_a_file())


def test_what_cannot_come_back(filled_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(filled_file, path)
    (cell,) = [cell for cell in CELLS if cell[0].name == "memories" and cell[1].name == "created_at" and cell[2] == "'soon'"]
    with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
        spoil(path, cell)
        (finding,) = [one for one in doctor(store, fix=True) if one.code == "unreadable"]
        aside = quarantined(store)
        assert finding.message == f"created_at holds 'soon', which is no instant. Moved to quarantine as {aside[0].id}" + (
            f", with {len(aside) - 1} rows that hang on it." if len(aside) > 1 else "."
        )
        whole = quarantined_row(store, aside[0].id)
        assert whole.row is not None
        assert whole.row["created_at"] == {"text": "soon"}
        assert (whole.table, whole.cause) == ("memories", "created_at holds 'soon', which is no instant.")
        namespace, key = (next(iter((whole.row[name] or {}).values())) for name in ("namespace", "key"))
        store.checkpoints.memories.put(tuple(namespace.split(".")), key, {"new": True})
        before = raw_rows(path)
        with pytest.raises(Conflict, match="cannot come back"):
            restore_row(store, aside[-1].id)
        assert raw_rows(path) == before
        with pytest.raises(NotFound):
            restore_row(store, "qua_nothing")
        with pytest.raises(NotFound):
            quarantined_row(store, "qua_nothing")
        assert store.checkpoints.memories.delete(tuple(namespace.split(".")), key)
        assert [row.id for row in restore_row(store, aside[-1].id)] == [row.id for row in aside]
        assert [one.code for one in doctor(store)] == ["unreadable"]
    with Store.open(f"sqlite:///{path}", read_only=True) as store, pytest.raises(ReadOnlyTransaction):
        restore_row(store, aside[0].id)


def test_rows_whose_parent_went_meanwhile(filled_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(filled_file, path)
    (cell,) = [cell for cell in CELLS if cell[0].name == "chat_messages" and cell[1].name == "updated_at" and cell[2] == "'soon'"]
    with Store.open(f"sqlite:///{path}", clock=FrozenClock()) as store:
        spoil(path, cell)
        doctor(store, fix=True)
        aside = quarantined(store)
        held = quarantined_row(store, aside[0].id).row
        assert held is not None
        assert held["session_id"] is not None
        store.chat.sessions.delete(held["session_id"]["text"])
        with pytest.raises(Conflict, match="chat_sessions that is not there"):
            restore_row(store, aside[0].id)
        assert quarantined(store) == aside
        assert not [one for one in doctor(store) if one.code in ("foreign_key", "unreadable")]


def test_while_others_write(store: Store, url: str) -> None:
    """What a writer was told is stored is in its table or in quarantine, whichever of the two came first."""
    place, written = Place(url), list[str]()
    begun = threading.Event()
    session = store.chat.sessions.create(agent="build", model={}).id

    def write() -> None:
        while True:
            try:
                message = store.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "?"}])
            except PersistError:  # the session is gone
                return
            written.append(message.id)
            if len(written) == 20:
                begun.set()

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    assert begun.wait(60)
    place.run(f"UPDATE {place.named('chat_sessions')} SET permissions_json = '7'")
    while not all(finding.fixed for finding in doctor(store, fix=True) if finding.code == "unreadable"):
        pass
    for writer in writers:
        writer.join()
    assert doctor(store) == []
    aside = quarantined(store, limit=100_000)
    assert {row.key for row in aside if row.table == "chat_messages"} == {*written}
    assert len({row.group_id for row in aside}) == 1
    for table in ("chat_sessions", "chat_messages", "chat_parts"):
        assert place.ask(f"SELECT count(*) FROM {place.named(table)}") == [(0,)]
    assert len([row for row in aside if row.table == "chat_parts"]) == len(written)


def test_what_comes_back_while_the_log_is_on(filled_file: Path, tmp_path: Path) -> None:
    path, clock = tmp_path / "state.db", FrozenClock()
    shutil.copyfile(filled_file, path)
    wanted = [("messages", "created_at", "'soon'"), ("chat_sessions", "created_at", "'soon'")]
    with Store.open(f"sqlite:///{path}", clock=clock, events=True) as store:
        for cell in [one for one in CELLS if (one[0].name, one[1].name, one[2]) in wanted]:
            spoil(path, cell)
        doctor(store, fix=True)
        logged = transcript(store)
        for group in reversed(dict.fromkeys(row.group_id for row in quarantined(store, limit=1000))):
            restore_row(store, group)
        with Store.open(f"sqlite:///{tmp_path / 'again.db'}", clock=clock) as again:
            rebuild(store, again)
            own = {"events": 0, "event_consumers": 0}  # the log and its readers' places are no part of it
            assert transcript(again) | own == logged | own  # as long as it cannot be read, it is not told


@pytest.mark.parametrize("where", ["memory", "engine"])
def test_every_kind_of_store(where: str, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'state.db'}")
    Store.open(f"sqlite:///{tmp_path / 'state.db'}").close()
    with Store.open("sqlite://") if where == "memory" else Store.from_engine(engine) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={})
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "?"}])
            tx._work.select(text("UPDATE chat_sessions SET created_at = 'soon'"))
            tx._work.select(text("UPDATE chat_messages SET created_at = 'soon'"))
        fixed = [one for one in doctor(store, fix=True) if one.code == "unreadable"]
        assert [one.fixed for one in fixed] == [True, True]
        assert [one.table for one in quarantined(store)] == ["chat_sessions", "chat_messages", "chat_parts"]
        for group in reversed(dict.fromkeys(row.group_id for row in quarantined(store))):
            restore_row(store, group)
        assert len([one for one in doctor(store) if one.code == "unreadable"]) == 2
    engine.dispose()


def test_a_file_of_one_run(tmp_path: Path) -> None:
    with create_run_file(tmp_path, clock=FrozenClock()) as store:
        assert store.run_id is not None
        assert store.path is not None
        store.programs.executions.begin(store.run_id, statement_index=1, statement_text="session: look")
        with closing(sqlite3.connect(store.path, isolation_level=None)) as raw:
            raw.execute("DROP TRIGGER persist_row_guard_execution_update")
            raw.execute("UPDATE execution SET metadata = 'not json', status = 'thinking'")
        (finding,) = [one for one in doctor(store) if one.severity == "error"]
        assert (finding.subject, finding.message) == ("execution 1", "metadata holds text of 8 characters, which is no JSON.")
        assert [one.fixed for one in doctor(store, fix=True) if one.code == "unreadable"] == [True]
        assert [one for one in doctor(store) if one.code == "unreadable"] == []
        assert [row.key for row in quarantined(store)] == ["1"]
