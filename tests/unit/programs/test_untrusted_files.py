"""Reading a file that may say anything: it ends, whatever it holds, and gives rows or one kind of error."""

import random
import sqlite3
from pathlib import Path

import pytest

from persist.db.dialects import untrusted_files
from persist.db.dialects.untrusted_files import Odd, create_lent_file, read_lent_file
from persist.errors import InvalidValue

DDL = ["CREATE TABLE a (x TEXT, y INTEGER)", "CREATE TABLE b (id INTEGER PRIMARY KEY AUTOINCREMENT, z TEXT)"]
COLUMNS = {"a": ("x", "y"), "b": ("id", "z")}


def content(path: Path, *statements: str) -> bytes:
    path.touch()
    create_lent_file(path, DDL, {"a": [{"x": "it's", "y": 1}, {"x": None, "y": None}]})
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        raw.execute(statement)
    raw.close()
    return path.read_bytes()


def read(data: bytes, *, max_rows: int = 50, max_value_bytes: int = 100_000) -> dict[str, list[tuple[object, ...]]]:
    return read_lent_file(data, DDL, COLUMNS, max_rows=max_rows, max_value_bytes=max_value_bytes)


def test_cells_are_text_numbers_null_or_odd(tmp_path: Path) -> None:
    data = content(tmp_path / "f", "INSERT INTO a VALUES (x'00', 9223372036854775807), (CAST(x'ff' AS TEXT), 1.5)")
    rows = read(data)["a"]
    assert rows[:2] == [("it's", 1), (None, None)]
    assert [type(cell) for row in rows[2:] for cell in row] == [Odd, int, Odd, float]


def test_what_is_too_large_or_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = content(tmp_path / "f", "INSERT INTO a VALUES (printf('%.*c', 200000, 'x'), 1)")
    with pytest.raises(InvalidValue, match="too large"):
        read(data)
    with pytest.raises(InvalidValue, match="more than 2 rows"):
        read(data, max_rows=2, max_value_bytes=300_000)
    monkeypatch.setattr(untrusted_files, "_STEPS", 1)
    monkeypatch.setattr(untrusted_files, "_CALLS", 0)
    monkeypatch.setattr(untrusted_files, "_CALLS_PER_PAGE", 0)
    with pytest.raises(InvalidValue, match="too long"):
        read(data, max_value_bytes=300_000)


def test_nothing_is_called_and_no_value_is_made_up(tmp_path: Path) -> None:
    """A function of the database is refused, and so are values that take no room in the file, which may be any number."""
    with pytest.raises(InvalidValue, match="cannot be read"):
        read_lent_file(content(tmp_path / "f"), DDL, {"a": ("abs(y)",)}, max_rows=50, max_value_bytes=100_000)
    made_up = f"CREATE TABLE a (x TEXT, y TEXT DEFAULT '{'y' * 2000}')"
    raw = sqlite3.connect(tmp_path / "g", isolation_level=None)
    for statement in (
        "CREATE TABLE a (x TEXT)",
        "INSERT INTO a SELECT value FROM json_each('[" + ", ".join("1" * 50) + "]')",
        "PRAGMA writable_schema = ON",
    ):
        raw.execute(statement)
    raw.execute("UPDATE sqlite_master SET sql = ?", [made_up])
    raw.close()
    with pytest.raises(InvalidValue, match="share their pages"):
        read_lent_file((tmp_path / "g").read_bytes(), [made_up], {"a": ("x", "y")}, max_rows=50, max_value_bytes=100_000)


def test_no_change_of_bytes_gives_anything_but_rows_or_a_refusal(tmp_path: Path) -> None:
    """Nor is what stands in the file repeated."""
    secret = "a secret of the file"
    whole = content(tmp_path / "f", f"INSERT INTO a VALUES ('{secret}', 1)", f"CREATE TABLE more (a TEXT DEFAULT '{secret}')")
    with pytest.raises(InvalidValue, match="schema"):
        read(whole)
    (tmp_path / "g").unlink(missing_ok=True)
    whole = content(tmp_path / "g", *(f"INSERT INTO a VALUES ('{secret} {n}', {n})" for n in range(40)))
    drawn = random.Random(7)
    outcomes, errors = set(), list[InvalidValue]()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            place = drawn.choice((drawn.randrange(len(data)), drawn.randrange(110), 4096 + drawn.randrange(100)))
            data[place] = drawn.randrange(256)
        try:
            found = read(bytes(data))
            outcomes.add("rows")
            assert set(found) == {"a", "b"}
        except InvalidValue as refused:
            outcomes.add("refused")
            errors.append(refused)
    assert outcomes == {"rows", "refused"}
    assert not [error for error in errors if secret in str(error) or error.__cause__ is not None]
