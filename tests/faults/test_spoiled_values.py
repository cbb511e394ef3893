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
from persist.errors import StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob
from persist.maintenance import doctor
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
