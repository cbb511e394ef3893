"""Rows that others put into a run, and several that name one file: nothing of theirs is removed, nothing that a row names."""

import sqlite3
from functools import partial
from pathlib import Path

import pytest

from persist import Store
from persist.errors import InvalidValue, UnreadableRow
from persist.programs import audit, instructions_for_subagent, open_run_file
from tests.at_once import together
from tests.programs.raw_rows import codes, put
from tests.programs.test_attachments import bind, resolve

LARGE = 200_000


ELSEWHERE = [
    "state.db",
    "./state.db",
    "state.db-wal",
    "program.prose",
    "attachments/../state.db",
    "attachments/x/../../state.db",
    "attachments/../attachments/theirs.md",
    "../../../secret.md",
    "attachments",
    "attachments/",
    "attachments/.",
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_row_that_names_another_file_costs_nobody_anything(
    run_file: Store, run: str, file: Path, folder: Path, outside: Path, raw: sqlite3.Connection, path: str
) -> None:
    (folder / "theirs.md").write_text("theirs")
    (folder / "x").mkdir()
    there = {one.relative_to(file.parent) for one in file.parent.rglob("*")}
    put(raw, "x", path)
    with pytest.raises(InvalidValue) as caught:
        resolve(run_file, run, "x")
    assert caught.value.path == "attachment_path"
    assert "attachment_escapes" in codes(run_file, run)
    bind(run_file, run, "x", "small")
    bind(run_file, run, "y", "later")
    assert {one.relative_to(file.parent) for one in file.parent.rglob("*")} == there
    assert outside.read_text() == "secret"
    assert dict(raw.execute("SELECT name, value FROM bindings")) == {"x": "small", "y": "later"}


def test_a_path_that_is_no_text_is_said_and_bound_anew(run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    put(raw, "x", b"\xff\x00")
    with pytest.raises(UnreadableRow) as caught:
        resolve(run_file, run, "x")
    assert caught.value.column == "attachment_path"
    assert codes(run_file, run) == ["unreadable"]
    bind(run_file, run, "x", "small")
    assert (resolve(run_file, run, "x"), codes(run_file, run)) == ("small", [])


@pytest.mark.parametrize("path", ["attachments/theirs.md", "./attachments//theirs.md", "attachments/sub/theirs.md"])
def test_a_file_that_others_named_is_read_and_stays(
    run_file: Store, run: str, folder: Path, raw: sqlite3.Connection, path: str, system: str
) -> None:
    (folder / "sub").mkdir()
    theirs = folder.parent / path
    theirs.write_text("theirs")
    put(raw, "x", path)
    assert resolve(run_file, run, "x") == "theirs"
    assert all("theirs" not in finding.subject for finding in audit(run_file, run))
    bind(run_file, run, "x", "y" * LARGE)
    bind(run_file, run, "x", "small")
    assert theirs.read_text() == "theirs"
    assert "attachment_unused" in codes(run_file, run)


def test_a_file_that_a_subagent_was_lent_stays(run_file: Store, run: str, folder: Path, raw: sqlite3.Connection) -> None:
    """It may write it again at any time, and bind it then."""
    text = instructions_for_subagent(run_file, run, binding="x")
    path = next(word.strip("',") for word in text.split() if word.startswith("'attachments/"))
    (folder.parent / path).write_text("from a shell")
    put(raw, "x", path)
    bind(run_file, run, "x", "small")
    put(raw, "x", path)
    assert resolve(run_file, run, "x") == "from a shell"


@pytest.mark.parametrize("spelled", ["{}", "./{}", "attachments//{name}", "ATTACHMENTS/{name}"])
def test_a_file_goes_when_its_last_row_goes(run_file: Store, run: str, file: Path, raw: sqlite3.Connection, spelled: str) -> None:
    path = str(bind(run_file, run, "x", "one" * LARGE).attachment_path)
    put(raw, "copy", spelled.format(path, name=path.partition("/")[2]))
    raw.execute("INSERT INTO bindings (name, execution_id, kind, attachment_path) VALUES ('x', 7, 'let', ?)", (path,))
    bind(run_file, run, "x", "two" * LARGE)
    assert (file.parent / path).read_text() == "one" * LARGE
    bind(run_file, run, "copy", "three" * LARGE)
    assert (file.parent / path).read_text() == "one" * LARGE
    raw.execute("UPDATE bindings SET name = 'last', execution_id = NULL WHERE execution_id = 7")
    bind(run_file, run, "last", "small")
    assert not (file.parent / path).exists()
    assert [resolve(run_file, run, name) for name in ("x", "copy")] == ["two" * LARGE, "three" * LARGE]
    assert {one.code for one in audit(run_file, run)} == {"raw_write"}


def test_a_rolled_back_row_keeps_what_it_named(run_file: Store, run: str) -> None:
    bind(run_file, run, "x", "one" * LARGE)

    def fails(name: str, value: str) -> None:
        with run_file.begin() as tx:
            tx.programs.bindings.bind(run, name, value)
            tx.programs.bindings.bind(run, name, "small")
            raise RuntimeError("no")

    for name in ("x", "x", "other"):
        with pytest.raises(RuntimeError, match="no"):
            fails(name, "two" * LARGE)
    assert resolve(run_file, run, "x") == "one" * LARGE


def test_writers_of_one_name_never_mix_their_values(run_file: Store, run: str, file: Path) -> None:
    """Each has a store of its own; a subagent's shell is beside them in the torture run."""

    def write(letter: str, met: list[str]) -> None:
        with open_run_file(file) as store:
            for number in range(15):
                bind(store, run, "x", f"{letter}{number} " + letter * LARGE, summary=f"{letter}{number}")
                bound = store.programs.bindings.get(run, "x")
                assert bound is not None
                met.append(str(bound.value))
                text = str(resolve(store, run, "x"))
                if text != f"{text.split()[0]} " + text[0] * LARGE:
                    met.append(f"mixed: {text[:20]} … {text[-20:]}")

    found: dict[str, list[str]] = {letter: [] for letter in "abc"}
    together([partial(write, *item) for item in found.items()])
    assert [len(met) for met in found.values()] == [15] * 3
    last = run_file.programs.bindings.resolve(run, "x").value
    row = run_file.programs.bindings.get(run, "x")
    assert row is not None
    assert str(last).startswith(f"{row.value} ")
    assert [one.name for one in (file.parent / "attachments").iterdir()] == [str(row.attachment_path).partition("/")[2]]
