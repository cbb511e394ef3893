"""Exports: what is in them, and that importing them gives the same again."""

import io
import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.changes.journal import place_of
from persist.db.transactions.database_transaction import TableOperations
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted
from persist.maintenance import doctor, export, exporting, import_
from persist.schema.metadata import HEAD, metadata
from persist.single_owner_files import create_run_file, open_instance
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, opened
from tests.maintenance.test_import_lines import written
from tests.schema.filling import PROMPT, transcript
from tests.schema.places import Place

pytestmark = pytest.mark.one_database


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_format(store: Store, url: str, clock: FrozenClock, file: Path) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={"model_id": "m"}, id="ses_1")
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "Hello"}], id="msg_1")
    clock.advance(seconds=1)
    export(store, file)
    head, *rows, end = lines(file)
    name = "sqlite" if url.startswith("sqlite") else "postgresql"
    assert head == {
        "format": "persist-export",
        "version": 1,
        "revision": HEAD,
        "database": name,
        "exported_at": "2026-01-02T03:04:06.678Z",
        "session_id": None,
        "scopes": {},
    }
    by_table = {row["table"]: row["row"] for row in rows}
    assert by_table["chat_sessions"]["model_json"] == '{"model_id":"m"}'
    assert by_table["chat_messages"]["metadata_json"] == "{}"
    assert by_table["chat_messages"]["created_at"] == 1767323045678
    assert json.loads(by_table["chat_parts"]["data_json"]) == {"type": "text", "text": "Hello"}
    order = [row["table"] for row in rows]
    assert order.index("chat_sessions") < order.index("chat_messages") < order.index("chat_parts")
    assert end["end"]["tables"] == {table: order.count(table) for table in dict.fromkeys(order)}
    assert "_meta" not in order


def test_hard_values_are_in_it_in_the_published_form(url: str, file: Path) -> None:
    with Store.open(url) as store:
        with store.begin() as tx:
            tx.conversations.sessions.create(id="c", node_metadata={"note": "\ud83d\x00"})
            tx.conversations.branches.create("c", id="b")
            tx.conversations.messages.record(
                "b", {"id": "m", "role": "user", "content": 1e300, "created_at": 1.5, "embedding": [1.0]}
            )
        Place(url).run(
            f"UPDATE {Place(url).named('messages')} SET created_at = " + ("'Infinity'" if Place(url).is_postgres else "9e999")
        )
        export(store, file)
    rows = {line["table"]: line["row"] for line in lines(file)[1:-1]}
    assert rows["messages"]["embedding"] == {"base64": "AACAPw=="}
    assert rows["messages"]["created_at"] == {"float": "inf"}
    assert json.loads(rows["messages"]["content"]) == 1e300
    assert json.loads(rows["sessions"]["node_metadata"]) == {"note": "\ud83d\x00"}
    with Store.open("sqlite:///:memory:") as target:
        import_(target, file)
        assert target.conversations.sessions.get("c").node_metadata == {"note": "\ud83d\x00"}


KINDS: dict[str, tuple[str, str]] = {
    "chat session": ("chat_sessions", "SELECT session_id FROM {chat_messages} GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"),
    "conversation": ("sessions", "SELECT 'conv-1'"),
    "messaging session": ("messaging_sessions", "SELECT session_id FROM {messaging_messages} GROUP BY 1 ORDER BY count(*) DESC"),
    "workflow run": ("workflow_runs", "SELECT workflow_run_id FROM {executions} GROUP BY 1 ORDER BY count(*) DESC"),
    "program run": ("run", "SELECT id FROM {run}"),
}


LEFT_OUT = {
    "chat_part_deltas": "they are folded into their parts",
    "chat_turns": "who records a session does not record the copy",
    "system_prompts": "no message of these sessions names one",
    **dict.fromkeys(("exchange_cursors", "exchange_items"), "letters of an exchange are between conversations"),
    **dict.fromkeys(("cron_overrides", "workflow_limits", "workflow_overrides", "workflow_schedules"), "they are of no run"),
    "program_subagents": "they have tokens",
}
"""Tables of the streams of exported roots that no export of one root has, and why."""
BESIDE = ("app_artifacts", "app_artifact_versions", "blobs", "chat_part_blobs", "history_entries", "raw_writes")
"""Tables that an export of one root has, though their rows are in other streams than the root, or in none."""


def the_id(url: str, kind: str) -> str:
    place = Place(url)
    names = {"chat_messages", "messaging_messages", "executions", "run"}
    return str(place.ask(KINDS[kind][1].format(**{name: place.named(name) for name in names}))[0][0])


def test_one_session_with_all_that_belongs_to_it(pair: Pair, clock: FrozenClock, file: Path) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        before = transcript(source)

        @each("kind", KINDS)
        def comes_back(kind: str) -> None:
            id = the_id(pair[0], kind)
            written = export(source, file, session_id=id, overwrite=True)
            assert written.kind == kind
            assert written.tables[KINDS[kind][0]] == 1
            assert import_(target, file).session_id == id
            after = transcript(target)
            seen = {name: values[id] for name, values in before.items() if id in values and name != "chats"}
            assert seen
            assert {name: after[name][id] for name in seen} == seen
            assert lines(file)[0]["session_id"] == id
            with pytest.raises(Conflict):
                import_(target, file)
            assert transcript(target) == after

        comes_back()
        prefixes = {str(table.name): rule.prefix for table in metadata.sorted_tables if (rule := place_of(table)) is not None}
        otherwise = set()
        for kind in exporting.KINDS:
            root, found = kind.key.table, set[str]()
            for (id,) in Place(pair[0]).ask(f"SELECT {kind.key.name} FROM {Place(pair[0]).named(root.name)}"):
                found |= set(export(source, file, session_id=id, overwrite=True).tables)
            otherwise |= found ^ {name for name, prefix in prefixes.items() if prefix == prefixes[root.name]}
        assert otherwise == {*LEFT_OUT, *BESIDE}


def test_the_messages_of_a_chat_are_followed_by_their_parts(store: Store, file: Path) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={"model_id": "m"})
        for text in ("one", "two"):
            parts = [{"type": "text", "text": f"{text} {number}"} for number in range(2)]
            tx.chat.messages.append(session.id, role="user", parts=parts)
        other = tx.chat.sessions.create(agent="build", model={"model_id": "m"})
        tx.chat.messages.append(other.id, role="user", parts=[{"type": "text", "text": "not this"}])
    with store.record(session.id, system_prompt=PROMPT) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "start-step"}, {"type": "finish-step"}, {"type": "finish"}])
        recorder.step_usage(1, input_tokens=10, output_tokens=2)
    store.chat.prompts.put("Nobody was told this.")
    export(store, file, session_id=session.id)
    found = [line["table"] for line in lines(file)[1:-1]]
    turn = ["chat_messages", "chat_parts", "chat_parts"]
    assert found[:8] == ["system_prompts", "chat_sessions", *turn, *turn]
    assert found.count("chat_step_usage") == 1
    texts = [json.loads(line["row"]["data_json"]).get("text") for line in lines(file)[1:-1] if line["table"] == "chat_parts"]
    assert texts[:4] == ["one 0", "one 1", "two 0", "two 1"]


def test_a_session_comes_into_a_store_that_has_others(pair: Pair, clock: FrozenClock, file: Path) -> None:
    """Prompts, kinds of messages and messages may be there already; another's row is left, or refuses it."""
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        source.conversations.sessions.create(id="theirs")
        target.conversations.sessions.create(id="own")
        export(source, file, session_id="conv-1")
        import_(target, file)
        everything = transcript(target)
        export(target, file, session_id="conv-1", overwrite=True)
        target.conversations.sessions.delete("conv-1")
        import_(target, file)
        assert transcript(target)["conversations"] == everything["conversations"]
        assert set(transcript(target)["conversations"]) == {"own", "conv-1"}
        target.conversations.sessions.delete("conv-1")
        target.conversations.branches.create("own", id="mine")
        message = {"id": "m1", "created_at": 1.0, "role": "user", "content": "another"}
        target.conversations.messages.record("mine", message)
        before = transcript(target)
        with pytest.raises(Conflict, match="messages: there is another row 'm1' already"):
            import_(target, file)
        assert transcript(target) == before


def test_files_of_one_instance_and_of_nobody(tmp_path: Path, pair: Pair, file: Path) -> None:
    with open_instance(tmp_path, "box-1") as box:
        box.telemetry.status.record("idle")
        export(box, file)
    with opened(pair[1]) as (target,):
        import_(target, file)
        assert [one.new_status for one in target.telemetry.status.history(instance_id="box-1")] == ["idle"]
        assert target.instance_id == ("box-1" if pair[1].startswith("sqlite") else None)
        with pytest.raises(InvalidValue, match="the file says it is that of 'box-1'"):
            import_(target, file, scopes={"instance_id": "box-2"})


def test_the_rows_of_a_run_file_in_a_file_of_others(tmp_path: Path, sqlite_url: str, file: Path) -> None:
    with create_run_file(tmp_path, program_source="say") as run:
        run_id = run.run_id or ""
        run.programs.executions.begin(run_id, statement_index=1, statement_text="say")
        export(run, file, session_id=run_id)
    with Store.open(sqlite_url) as many:
        many.workflows.workflow_overrides.set("x", enabled=True)
        import_(many, file)
        assert [one.statement_text for one in many.programs.executions.list(run_id)] == ["say"]
        assert many.run_id is None
    assert Place(sqlite_url).ask("SELECT run_id FROM execution") == [(run_id,)]


def test_a_file_is_its_owners_alone_and_never_overwritten(sqlite_url: str, file: Path) -> None:
    """A failed export leaves nothing."""
    with Store.open(sqlite_url) as store:
        export(store, file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text("mine")
        with pytest.raises(Conflict, match="is there already"):
            export(store, file)
        assert file.read_text() == "mine"
        export(store, str(file), overwrite=True)
        assert json.loads(file.read_bytes().splitlines()[0])["format"] == "persist-export"
        Place(sqlite_url).run(
            "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at)"
            " VALUES ('r', 'w', 't', 'p', 'yesterday', '')"
        )
        with pytest.raises(InvalidValue, match=r"workflow_runs\.started_at: in the row id 'r'"):
            export(store, file.with_name("other.jsonl"))
        assert [path.name for path in file.parent.iterdir() if ".jsonl" in path.name] == [file.name]


def test_places_where_no_file_can_be_and_ids_that_nothing_has(store: Store, tmp_path: Path, file: Path) -> None:
    with pytest.raises(InvalidValue, match="is a folder"):
        export(store, tmp_path)
    with pytest.raises(NotFound, match="folder"):
        export(store, tmp_path / "gone" / "x.jsonl")
    with pytest.raises(NotFound, match="file"):
        import_(store, tmp_path / "gone.jsonl")
    with pytest.raises(NotPermitted):
        import_(store, tmp_path)
    with pytest.raises(NotFound, match="no session or run 'nobody'"):
        export(store, file, session_id="nobody")
    with pytest.raises(InvalidValue):
        export(store, file, session_id="\x00")
    assert not file.exists()


def test_an_import_says_that_the_log_is_off(
    url: str, new_database: Callable[[], str], clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotPermitted("the role may not make triggers")

    filled(url, clock)
    with Store.open(url, clock=clock, events=True) as source:
        stream = io.BytesIO()
        export(source, stream)
        content = stream.getvalue()
    with Store.open(new_database(), clock=clock) as target:
        monkeypatch.setattr(TableOperations, "check_guard", refused)
        assert "may not make triggers" in str(import_(target, io.BytesIO(content)).log_off)
        monkeypatch.undo()
        assert not target.logs_events
        target.switch_events(True)
        assert [one for one in doctor(target) if one.severity == "error"] == []
    with Store.open(new_database(), clock=clock) as other:
        other.chat.sessions.create(agent="a", model={})
        assert "rows of its own" in str(import_(other, io.BytesIO(without_rows(content))).log_off)


def without_rows(content: bytes) -> bytes:
    """The export with the rows of `_meta` alone, which fit into any database."""
    head, *lines, _ = map(json.loads, content.splitlines())
    return written([head, *(line for line in lines if line["table"] == "_meta"), {}])


def test_the_doctor_mends_positions_that_an_older_import_left(sqlite_url: str) -> None:
    with Store.open(sqlite_url, events=True) as store:
        store.events.consumers.create("mirror")
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
            raw.execute("UPDATE event_heads SET settled = 7 WHERE stream_id = '*'")
            raw.commit()
        assert [one.code for one in doctor(store) if one.severity == "error"] == ["positions_foreign"]
        assert [one.fixed for one in doctor(store, fix=True) if one.code == "positions_foreign"] == [True]
        assert [one.code for one in doctor(store) if one.severity == "error"] == []
        assert [one.name for one in store.events.consumers.list()] == ["mirror"]
