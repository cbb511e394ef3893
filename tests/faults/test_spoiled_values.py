"""Values in a file that no program of ours wrote there, as a damaged or foreign file has them: errors of ours, and no others."""

import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.concurrency.ownership import new_owner
from persist.errors import InvalidValue, PersistError, StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob
from persist.maintenance import doctor
from persist.settings import Settings
from tests.cases import each


def _made(path: Path) -> str:
    path.unlink(missing_ok=True)
    url = f"sqlite:///{path}"
    with Store.open(url) as store, store.begin() as tx:
        tx.chat.sessions.create(id="ses_1", agent="build", model={})
        tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", id="run_1")
        tx.programs.runs.create(id="run_1")
        tx.conversations.sessions.create(id="cvs_1")
        texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        tx.chat.messages.append("ses_1", role="user", parts=texts)
        message = {"id": "msg_1", "role": "user", "content": {}, "created_at": 1.0, "embedding": [1.0]}
        tx.conversations.messages.put(message)
        tx.telemetry.status.record("idle", instance_id="i")
        listed = [Blob("json", b"1"), Blob("json", b"2")]
        values: dict[str, Any] = {"c": ("1", Blob("json", b"1")), "l": ("1", listed)}
        tx.checkpoints.states.put("thread", "1", head=Blob("json", b"{}"), versions={"c": "1", "l": "1"}, values=values)
    return url


def _thread(tx: Any) -> Any:
    return tx.checkpoints.states.find("thread")


READS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "milliseconds": ("chat_sessions SET created_at = ?", lambda tx: tx.chat.sessions.get("ses_1")),
    "seconds": ("status_log SET occurred_at = ?", lambda tx: tx.telemetry.status.current(instance_id="i")),
    "real": ("sessions SET created_at = ?", lambda tx: tx.conversations.sessions.get("cvs_1")),
    "text": ("workflow_runs SET started_at = ?", lambda tx: tx.workflows.runs.get("run_1")),
    "sql": ("run SET started_at = ?", lambda tx: tx.programs.runs.get("run_1")),
    "body": ("sessions SET name = ?", lambda tx: tx.conversations.sessions.get("cvs_1")),
    "part": ("chat_parts SET data_json = ?", lambda tx: tx.chat.messages.list("ses_1")),
    "index": ('chat_parts SET "index" = ? WHERE "index" = 0', lambda tx: tx.chat.messages.list("ses_1")),
    "embedding": ("messages SET embedding = ?", lambda tx: tx.conversations.messages.get("msg_1")),
    "versions": ("checkpoint_states SET versions_json = ?", _thread),
    "json": ("workflow_runs SET phase_history = ?", lambda tx: tx.workflows.runs.get("run_1")),
    "value": ("checkpoint_values SET data = ? WHERE channel = 'c'", _thread),
    "spans": ("checkpoint_values SET spans_json = ? WHERE channel = 'l'", _thread),
    "piece": (
        "checkpoint_pieces SET position = 7 WHERE position = 0 AND ? != ''",
        lambda tx: tx.checkpoints.states.find("thread"),
    ),
}


@each("read", READS)
def test_a_value_that_cannot_be_read(tmp_path: Path, read: str) -> None:
    url = _made(tmp_path / "state.db")
    spoil, look = READS[read]
    refused = 0
    for value in ("soon", b"\xff\xfe", 2**62, "9999-99-99", "[[0,9]]", "{"):
        with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as raw:
            raw.execute(f"UPDATE {spoil}", (value,))
        with Store.open(url) as store:
            try:
                with store.read() as tx:
                    look(tx)
            except (InvalidValue, StoreCorrupt):
                refused += 1
            if read in ("part", "index"):  # left out, with a warning
                refused += 1
    assert refused
    with Store.open(url) as store:
        doctor(store)
        with store.begin() as tx:
            tx.chat.sessions.create(agent="build", model={})


SPOILED_THREADS: dict[str, list[object]] = {
    "checkpoint_states SET versions_json = ?": [0, 1.5, "[]", "null", '"x"', '{"l": null}', '{"l": ["1"]}'],
    "checkpoint_states SET partial_json = ?": [-1, '"l"', '{"l": 1}', '[["l"]]', "[1]"],
    "checkpoint_states SET id = ? WHERE parent_id IS NULL": [b"\x80"],
    "checkpoint_values SET spans_json = ? WHERE channel = 'l'": ["[1]", '{"ab": 1}', '[["a", "b"]]', "[[0, null]]", "[[0]]"],
}


@each(("spoil", "value"), [(spoil, value) for spoil, some in SPOILED_THREADS.items() for value in some])
def test_a_thread_that_cannot_be_read(tmp_path: Path, spoil: str, value: object) -> None:
    """Whoever rebuilds a channel, prunes the thread or writes the list that grows is told, and deletes nothing."""
    url = _made(tmp_path / "state.db")
    grown = [Blob("json", b"1"), Blob("json", b"2"), Blob("json", b"3")]
    last: dict[str, Any] = {"head": Blob("json", b"{}"), "parent_id": "1", "versions": {"l": "2"}}
    with Store.open(url) as store, store.begin() as tx:
        tx.checkpoints.states.put("thread", "2", **last, partial=["l"])
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as raw:
        raw.execute(f"UPDATE {spoil}", (value,))
        before = raw.execute("SELECT count(*) FROM checkpoint_states").fetchone()
    refused = 0
    doings: list[Callable[[Any], Any]] = [
        lambda tx: tx.checkpoints.states.history("thread", "2", ["l"]),
        lambda tx: tx.checkpoints.threads.keep_latest("thread"),
        lambda tx: tx.checkpoints.states.put("thread", "3", **last, values={"l": ("2", grown)}),
    ]
    with Store.open(url) as store:
        for doing in doings[: 2 if "states" in spoil else 3]:
            try:
                with store.begin() as tx:
                    doing(tx)
            except StoreCorrupt:
                refused += 1
    assert refused
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as raw:
        assert raw.execute("SELECT count(*) FROM checkpoint_states").fetchone() == before


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    url = _made(tmp_path / "state.db")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as raw:
        raw.execute("UPDATE chat_sessions SET agent = CAST(x'ff' AS TEXT)")
    with Store.open(url) as store, store.read() as tx, pytest.raises(PersistError):
        tx.chat.sessions.get("ses_1")


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    url = _made(tmp_path / "state.db")
    content = (tmp_path / "state.db").read_bytes()
    (tmp_path / "state.db").write_bytes(content.replace(b"CREATE TABLE chat_sessions", b"CREATE \xff\xfe\xfdLE chat_sessions"))
    with pytest.raises(StoreCorrupt):
        Store.open(url, settings=Settings())


@each("owner", ["{host}/²/x", "{here}/²/1/x", "{here}/99999999999999999999/1/x", "{here}///", "{host}//", "/", ""])
def test_a_turn_of_no_process(tmp_path: Path, owner: str) -> None:
    url = _made(tmp_path / "state.db")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as raw:
        host, here = socket.gethostname(), new_owner().rsplit("/", 3)[0]
        values = (owner.format(host=host, here=here),)
        raw.execute("INSERT INTO chat_turns VALUES ('ses_1', NULL, 'running', ?, 1, 1, NULL)", values)
    with Store.open(url) as store:
        doctor(store)
        with store.record("ses_1") as recorder:
            recorder.feed({"type": "start", "messageId": "m"})
