"""Small texts that would cost much: deep or wide JSON, patterns that never come to an end, numbers beyond measure."""

import io
import time
from typing import Any

import orjson
import pytest

from persist import Store
from persist.chat.permissions import decide
from persist.chat.reducer.partial_json import parse_partial
from persist.db.values.escaping import escape_json, escape_text, unescape_json, unescape_text
from persist.errors import PersistError
from persist.maintenance import export, import_
from persist.sessionlog import read_session_log
from tests.cases import each

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
