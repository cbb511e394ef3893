"""Files that are not what `export` wrote: refused with the line, and nothing is written."""

import io
import json
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, PersistError
from persist.maintenance import export, import_
from persist.maintenance.transactions import TABLES
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import filled
from tests.maintenance.moving import many, opened
from tests.schema.filling import transcript

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    url = f"sqlite:///{tmp_path_factory.mktemp('exported') / 'source.db'}"
    filled(url, FrozenClock())
    stream = io.BytesIO()
    with Store.open(url) as store:
        export(store, stream)
    return stream.getvalue()


def written(lines: Lines) -> bytes:
    """The lines with an end that fits them."""
    rows, tables = lines[1:-1], dict.fromkeys([line["table"] for line in lines[1:-1] if "table" in line], 0)
    for line in rows:
        tables[line["table"]] += 1
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    end = {"end": {"tables": tables, "highest": {}, "checksum": sha256(body).hexdigest()}}
    return body + json.dumps(end).encode() + b"\n"


def place_of(lines: Lines, table: str) -> int:
    return next(number for number, line in enumerate(lines) if line.get("table") == table)


def header(**values: Any) -> Callable[[Lines], str]:
    def change(lines: Lines) -> str:
        lines[0] |= values
        return "line 1: "

    return change


def value(table: str, column: str, given: Any) -> Callable[[Lines], str]:
    def change(lines: Lines) -> str:
        number = place_of(lines, table)
        lines[number]["row"][column] = given
        return f"line {number + 1}: {table}"

    return change


def line(given: Any) -> Callable[[Lines], str]:
    def change(lines: Lines) -> str:
        lines.insert(5, given)
        return "line 6: "

    return change


CHANGES: dict[str, tuple[Callable[[Lines], str], str]] = {
    "another format": (header(format="other"), "no export of persist"),
    "a newer format": (header(version=3), "version 3 of the format is unknown"),
    "a newer revision": (header(revision="9999"), "revision '9999'"),
    "scopes that are none": (header(scopes={"run_id": 5}), "scopes"),
    "an unknown table": (line({"table": "tables", "row": {"id": 1}}), "no table 'tables'"),
    "an unknown column": (value("chat_sessions", "colour", "red"), "has no column 'colour'"),
    "a row that is none": (line({"table": "run", "row": 5}), "expected"),
    "a row of nothing": (line({"table": "run", "row": {}}), "expected"),
    "JSON that is none": (value("chat_sessions", "model_json", "{broken"), "no JSON"),
    "JSON in JSON": (value("chat_sessions", "model_json", {"a": 1}), "found an object"),
    "text for a number": (value("chat_sessions", "created_at", "now"), "expected a whole number"),
    "a number beyond 64 bits": (value("chat_sessions", "created_at", 2**63), "64 bits"),
    "a number for text": (value("chat_sessions", "agent", 5), "expected text"),
    "an instant that is none": (value("workflow_runs", "started_at", "now"), "no instant"),
    "a blob that is none": (value("messages", "embedding", {"base64": "?"}), "found an object"),
    "a NUL in an id": (value("chat_sessions", "id", "a\x00"), "NUL"),
}


@pytest.mark.one_database
def test_a_wrong_line_is_named_and_nothing_is_written(store: Store, exported: bytes) -> None:
    before = transcript(store)

    @each("change", CHANGES)
    def refuse(change: str) -> None:
        lines = [json.loads(text) for text in exported.splitlines()]
        where = CHANGES[change][0](lines)
        with pytest.raises(InvalidValue, match=CHANGES[change][1]) as error:
            import_(store, io.BytesIO(written(lines)))
        assert str(error.value).startswith(where)
        assert transcript(store) == before

    refuse()
    import_(store, io.BytesIO(exported))  # and the file as it was is taken


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda whole: b"", "no export of persist"),
    "no JSON": (lambda whole: b"{oops\n" + whole, "line 1: it is no JSON"),
    "a list": (lambda whole: b"[]\n" + whole, "line 1: expected a JSON object"),
    "cut in a line": (lambda whole: whole[: len(whole) // 2], "it is cut off"),
    "cut after a line": (lambda whole: whole[: whole.index(b"\n", len(whole) // 2) + 1], "ends before its last line"),
    "a line left out": (
        lambda whole: b"".join(whole.splitlines(keepends=True)[:-2] + whole.splitlines(keepends=True)[-1:]),
        "not whole",
    ),
    "a changed letter": (lambda whole: whole.replace(b"Hello?", b"Hallo?"), "checksum does not fit"),
    "twice": (lambda whole: whole + whole, "more after the last line"),
}


@each("damage", DAMAGE)
def test_a_file_that_is_not_whole_is_refused(store: Store, exported: bytes, damage: str) -> None:
    before = transcript(store)
    with pytest.raises(InvalidValue, match=DAMAGE[damage][1]):
        import_(store, io.BytesIO(DAMAGE[damage][0](exported)))
    assert transcript(store) == before


@pytest.mark.one_database
def test_columns_that_an_older_export_does_not_have_get_their_defaults(store: Store, exported: bytes) -> None:
    lines = [json.loads(text) for text in exported.splitlines()]
    for one in lines:
        if one.get("table") == "chat_sessions":
            del one["row"]["permissions_json"], one["row"]["total_tokens"]
    import_(store, io.BytesIO(written(lines)))
    found = store.chat.sessions.list(include_archived=True).items
    assert {(session.total_tokens, tuple(session.permissions)) for session in found} == {(0, ())}


def peak(folder: Path, rows: int) -> int:
    """Bytes of Python's own at the highest, while so many rows are exported and imported."""
    source_url = f"sqlite:///{folder / f'{rows}.db'}"
    many(source_url, rows)
    with opened(source_url, f"sqlite:///{folder / f'{rows}-to.db'}") as (source, target):
        tracemalloc.start()
        try:
            export(source, folder / f"{rows}.jsonl")
            assert import_(target, folder / f"{rows}.jsonl").tables["messaging_messages"] == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = [peak(tmp_path, rows) for rows in (1_000, 3_000, 9_000)]  # the first one pays for what is made once
    assert peaks[2] < peaks[1] * 1.25
    assert peaks[2] < 16 * 2**20


WRONG: list[Any] = [[], {}, True, 1.5, "x", -1, 2**63, {"base64": 5}, {"float": []}, ["x"]]
"""Values of which each column refuses some."""


def test_cells_are_tried_with_null_and_a_wrong_kind(exported: bytes) -> None:
    try_cells(exported, 30)


def test_every_cell_is_tried_with_null_and_a_wrong_kind(exported: bytes) -> None:
    try_cells(exported, 1)


def try_cells(exported: bytes, every: int) -> None:
    head, *lines = map(json.loads, exported.splitlines())
    first = {line["table"]: line["row"] for line in reversed(lines[:-1])}
    tables = {table.name: table for table in TABLES}
    cells = [(name, column) for name in first for column in tables[name].columns]
    assert len(cells) > 400
    with ExitStack() as stack:
        store = stack.enter_context(Store.open("sqlite:///:memory:"))
        for number, (name, column) in list(enumerate(cells))[::every]:
            for given in (None, WRONG[number % len(WRONG)]):
                line = {"table": name, "row": {**first[name], column.name: given}}
                # as that of a session, which need not look whether the database is empty, but for what is only taken then
                part = None if name == "_meta" or name.startswith("event_") else "ses_1"
                try:
                    import_(store, io.BytesIO(written([head | {"session_id": part}, line, {}])))
                except InvalidValue:
                    continue
                except PersistError:  # such as a row without the one that it refers to
                    assert given is not None or column.nullable, f"{name}.{column.name}"
                else:
                    assert given is not None or column.nullable, f"{name}.{column.name}"
                    store = stack.enter_context(Store.open("sqlite:///:memory:"))
