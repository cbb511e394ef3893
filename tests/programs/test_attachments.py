"""Values too large for a row: files of the run, and nothing outside of its folder."""

import re
from pathlib import Path

import pytest

from persist import Store
from persist.errors import Conflict, NotFound, Unavailable
from persist.programs import audit, open_run_file
from persist.programs.schemas import Binding
from tests.cases import each


def bind(store: Store, run: str, name: str, value: str, frame: int | None = None, **options: str) -> Binding:
    return store.programs.bindings.bind(run, name, value, execution_id=frame, **options)


def resolve(store: Store, run: str, name: str, frame: int | None = None) -> str | None:
    return store.programs.bindings.resolve(run, name, execution_id=frame).value


@each("character", ["x", "é", "🦊"])
def test_the_limit_is_in_bytes(run_file: Store, run: str, file: Path, character: str) -> None:
    size = len(character.encode())
    kept = character * (102_400 // size) + "x" * (102_400 % size)
    assert bind(run_file, run, "kept", kept).attachment_path is None
    moved = bind(run_file, run, "moved", kept + "x", summary="a summary")
    assert moved.value == "a summary"
    assert re.fullmatch(r"attachments/moved__[0-9a-f]{32}\.md", str(moved.attachment_path))
    assert (file.parent / str(moved.attachment_path)).read_text(encoding="utf-8") == kept + "x"
    assert [resolve(run_file, run, name) for name in ("kept", "moved")] == [kept, kept + "x"]
    assert run_file.programs.bindings.get(run, "moved") == moved
    assert audit(run_file, run) == []


def test_frames_have_files_of_their_own(run_file: Store, run: str) -> None:
    with run_file.begin() as tx:
        frames = [tx.programs.executions.begin(run, statement_index=1, statement_text="x").id for _ in range(2)]
    large = {None: "r" * 200_000, frames[0]: "a" * 200_000, frames[1]: "b" * 200_000}
    paths = [bind(run_file, run, "result", value, frame).attachment_path for frame, value in large.items()]
    stems = [str(path).rpartition("__")[0] for path in paths]
    assert stems == ["attachments/result", *[f"attachments/result__{frame}" for frame in frames]]
    assert all(resolve(run_file, run, "result", frame) == value for frame, value in large.items())
    assert bind(run_file, run, f"result__{frames[0]}", "c" * 200_000).attachment_path not in paths
    assert resolve(run_file, run, "result", frames[0]) == large[frames[0]]


def test_a_replaced_file_goes_when_the_transaction_is_done(run_file: Store, run: str, file: Path) -> None:
    for number in range(4):
        bind(run_file, run, "x", f"{number}" * 200_000)
        assert resolve(run_file, run, "x") == f"{number}" * 200_000
        assert len(list((file.parent / "attachments").iterdir())) == 1
    assert bind(run_file, run, "x", "small").attachment_path is None
    assert list((file.parent / "attachments").iterdir()) == []
    assert audit(run_file, run) == []


def test_a_reader_whose_file_was_replaced_gets_the_newer_value(run_file: Store, run: str, file: Path) -> None:
    frame = run_file.programs.executions.begin(run, statement_index=1, statement_text="x").id
    bind(run_file, run, "x", "one" * 50_000)
    bind(run_file, run, "x", "one" * 50_000, frame)
    with run_file.read() as tx, open_run_file(file) as other:
        assert len(tx.programs.bindings.list(run)) == 2
        bind(other, run, "x", "two" * 50_000)
        bind(other, run, "x", "small", frame)
        assert tx.programs.bindings.resolve(run, "x").value == "two" * 50_000
        assert tx.programs.bindings.resolve(run, "x", execution_id=frame).value == "small"


def test_a_refused_value_leaves_no_file(run_file: Store, run: str, file: Path) -> None:
    bind(run_file, run, "x", "1", kind="const")
    with pytest.raises(Conflict):
        bind(run_file, run, "x", "x" * 200_000)
    assert not (file.parent / "attachments").exists()


@each(
    "name", ["../../escape", "/etc/passwd", "..", ".hidden", "a/b", "a\\b", "con:", "é 🦊", "a" * 300, "research.findings", "%2F"]
)
def test_no_name_leads_out_of_the_folder(run_file: Store, run: str, file: Path, tmp_path: Path, name: str) -> None:
    before = {path for path in tmp_path.rglob("*") if "attachments" not in path.parts and file.name not in path.name}
    bound = bind(run_file, run, name, "x" * 200_000)
    assert bound.attachment_path is not None
    path = file.parent / bound.attachment_path
    assert path.parent == file.parent / "attachments"
    assert path.name.isascii()
    assert resolve(run_file, run, name) == "x" * 200_000
    assert {path for path in tmp_path.rglob("*") if "attachments" not in path.parts and file.name not in path.name} == before


def test_a_missing_file_is_not_found(run_file: Store, run: str, file: Path) -> None:
    bound = bind(run_file, run, "x", "x" * 200_000)
    (file.parent / str(bound.attachment_path)).unlink()
    with pytest.raises(NotFound) as caught:
        resolve(run_file, run, "x")
    assert (caught.value.kind, caught.value.id) == ("attachment", bound.attachment_path)
    assert [one.code for one in audit(run_file, run)] == ["attachment_missing"]


def test_a_folder_that_cannot_be_written_is_said(run_file: Store, run: str, file: Path) -> None:
    (file.parent / "attachments").write_text("in the way")
    with pytest.raises(Unavailable) as caught:
        bind(run_file, run, "x", "x" * 200_000)
    assert "attachments" in str(caught.value)
    assert run_file.programs.bindings.get(run, "x") is None


def test_a_moved_run_still_reads_its_attachments(run_file: Store, run: str, file: Path, tmp_path: Path) -> None:
    bind(run_file, run, "x", "x" * 200_000)
    run_file.close()
    moved = tmp_path / "moved"
    file.parent.rename(moved)
    with open_run_file(moved) as store:
        assert resolve(store, run, "x") == "x" * 200_000
