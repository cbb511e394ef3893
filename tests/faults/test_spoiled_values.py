"""Values in a file that no program of ours wrote there, as a damaged or foreign file has them: errors of ours, and no others."""

import io
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from persist import Store
from persist.chat.permissions import decide
from persist.chat.reducer.partial_json import parse_partial
from persist.db.concurrency.ownership import new_owner
from persist.db.values.escaping import escape_json, escape_text, unescape_json, unescape_text
from persist.errors import PersistError, StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob
from persist.maintenance import doctor, export, import_
from persist.sessionlog import read_session_log
from persist.settings import Settings
from tests.cases import each


def _made(path: Path) -> str:
    path.unlink(missing_ok=True)
    url = f"sqlite:///{path}"
    with Store.open(url) as store, store.begin() as tx:
        tx.chat.sessions.create(id="ses_1", agent="build", model={})
        listed = [Blob("json", b"1"), Blob("json", b"2")]
        values: dict[str, Any] = {"c": ("1", Blob("json", b"1")), "l": ("1", listed)}
        tx.checkpoints.states.put("thread", "1", head=Blob("json", b"{}"), versions={"c": "1", "l": "1"}, values=values)
    return url


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


# Small texts that would cost much: deep or wide JSON, patterns that never come to an end, numbers beyond measure.


DEEP = "[" * 200_000
NESTED: Any = 0
for _ in range(5000):
    NESTED = [NESTED]
LONG = 200_000
NO_HANG = 20.0
"""Seconds: far more than any of these takes, far less than what grows with the square of its length."""


@each("text", [DEEP, '{"a":' * 200_000, '"' + "\\u" * LONG, "1" * LONG, "\\" * LONG, '{"a":"' + "\\\\" * LONG])
def test_a_stream_of_half_a_tools_input(text: str) -> None:
    started = time.monotonic()
    parse_partial(text)
    assert time.monotonic() - started < NO_HANG


@each("text", ["\ufdd0" * LONG, "\\ud800" * LONG, "\\" * LONG, "\\u0000" * LONG, "\x00" * LONG])
def test_escapes_take_as_long_as_the_text(text: str) -> None:
    started = time.monotonic()
    assert unescape_text(escape_text(text, nul=True)) == text
    unescape_json(escape_json(text))
    assert time.monotonic() - started < NO_HANG


def test_values_that_are_nested_too_deep(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        for give in (
            lambda: tx.chat.sessions.create(agent="a", model=NESTED),
            lambda: tx.workflows.runs.create("t", trigger_id="x", current_phase="p", context={"a": NESTED}),
            lambda: tx.checkpoints.memories.put(("n",), "k", {"a": NESTED}),
        ):
            with pytest.raises(PersistError):
                give()
        tx.chat.sessions.create(agent="a", model={})


@each("line", [DEEP, '{"table": "chat_sessions", "row": ' + "[" * 100_000, '{"a":' * 100_000, "1" * LONG])
def test_files_that_are_bombs(sqlite_url: str, tmp_path: Any, line: str) -> None:
    with Store.open(sqlite_url) as store:
        written = io.BytesIO()
        export(store, written)
        header = written.getvalue().splitlines(keepends=True)[0]
        with pytest.raises(PersistError):
            import_(store, io.BytesIO(header + line.encode() + b"\n"))
        with pytest.raises(PersistError):
            import_(store, io.BytesIO(line.encode()))
    log = tmp_path / "log.jsonl"
    log.write_text(f"{line}\n" + orjson.dumps({"type": "user", "message": {"role": "user", "content": "x"}}).decode() + "\n")
    assert len(read_session_log(log)) == 1


@each("pattern", ["*a" * 40 + "b", "*" * 500 + "b", "?*" * 50 + "b", "[a-z]*" * 40 + "b", "[" * 2000])
def test_a_pattern_of_a_permission(pattern: str) -> None:
    started = time.monotonic()
    decide([{"permission": "bash", "pattern": pattern, "action": "allow"}], "bash", "a" * 20_000)
    assert time.monotonic() - started < NO_HANG
