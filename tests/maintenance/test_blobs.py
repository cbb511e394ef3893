"""Files of messages go along with what names them: exports, copies, rebuilt databases; the doctor finds what is damaged."""

import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import BlobUnreadable, InvalidValue
from persist.events import rebuild
from persist.maintenance import Finding, copy, doctor, export, import_
from tests.contract.blobs.body_stores import MemoryBlobStore
from tests.contract.blobs.test_blobs import body, digest
from tests.contract.chat.scenes import create
from tests.contract.chat.test_files import CAP, append, everything, file
from tests.contract.conftest import Raw
from tests.maintenance.test_import_lines import Lines, written

pytestmark = pytest.mark.one_database

PARTS = [file(), {"type": "text", "text": "x"}, file(2**20 + 5)]
HOSTS = body(3 * 2**20)


def filled(store: Store) -> str:
    """A session with files, and bytes that a host put."""
    session = create(store)
    append(store, session, *PARTS)
    store.blobs.put(HOSTS, "video/mp4")
    return session


def assert_whole(store: Store, session: str) -> None:
    assert all(read == PARTS for read in everything(store, session))
    assert [one for one in doctor(store) if one.subject.startswith("blob")] == []


PLACES = pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])


@PLACES
def test_an_export_of_a_session_holds_its_files(url: str, new_database: Callable[[], str], tmp_path: Path, outside: bool) -> None:
    path = tmp_path / "session.jsonl"
    with Store.open(url, blobs=MemoryBlobStore() if outside else None) as store:
        session = filled(store)
        tables = export(store, path, session_id=session).tables
        assert (tables["blobs"], tables["chat_part_blobs"], tables["blob_pieces"]) == (2, 2, 3)
    with Store.open(new_database()) as other:
        import_(other, path)
        assert_whole(other, session)
        assert len(other.blobs.list().items) == 2


def test_an_import_keeps_files_that_are_there(url: str, new_database: Callable[[], str], tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with Store.open(url) as store:
        session = filled(store)
        export(store, path, session_id=session)
    with Store.open(new_database()) as other:
        mine = create(other)
        append(other, mine, *PARTS[::-1])
        import_(other, path)
        assert_whole(other, session)
        assert other.chat.messages.list(mine)[0]["parts"] == PARTS[::-1]
        other.chat.sessions.delete(mine)
        assert_whole(other, session)


def without(lines: Lines, *tables: str) -> Lines:
    return [line for line in lines if line.get("table") not in tables]


def changed(lines: Lines, table: str, **cells: Any) -> Lines:
    return [line | {"row": line["row"] | cells} if line.get("table") == table else line for line in lines]


OTHER = {"base64": "AAAA"}
FORGED: dict[str, Callable[[Lines], Lines]] = {
    "no bodies": lambda lines: without(lines, "blobs", "blob_pieces"),
    "another body": lambda lines: changed(lines, "blob_pieces", body=OTHER),
    "another small body": lambda lines: changed(lines, "blobs", body=OTHER),
    "elsewhere": lambda lines: changed(without(lines, "blob_pieces"), "blobs", outside=1),
    "unnamed": lambda lines: changed(
        [one for one in lines if one.get("table", "blob").startswith("blob")], "blob_pieces", body=OTHER
    ),
}


@pytest.mark.parametrize("known", [False, True])
def test_an_import_names_no_file_whose_bytes_it_does_not_hold(store: Store, new_database: Callable[[], str], known: bool) -> None:
    exported = io.BytesIO()
    with Store.open(new_database()) as source:
        export(source, exported, session_id=filled(source))
    theirs = create(store)
    if known:
        append(store, theirs, *PARTS)
    for name, forge in FORGED.items():
        forged = forge([json.loads(line) for line in exported.getvalue().splitlines()])
        with pytest.raises(InvalidValue, match=r"^line [0-9]+: the bytes of the blob"):
            import_(store, io.BytesIO(written(forged)))
        assert [one.id for one in store.chat.sessions.list().items] == [theirs], name
    if not known:
        append(store, theirs, *PARTS)
    assert_whole(store, theirs)


def test_an_export_of_everything_has_bodies_that_are_outside(url: str, other_kind: str, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    with Store.open(url, blobs=MemoryBlobStore()) as store:
        session = filled(store)
        export(store, path)
    with Store.open(other_kind) as other:
        import_(other, path)
        assert_whole(other, session)
        assert other.blobs.read(digest(HOSTS)) == HOSTS


@pytest.mark.parametrize("own_place", [False, True], ids=["the same place", "a place of its own"])
def test_a_copy_of_bodies_that_are_outside(url: str, other_kind: str, own_place: bool) -> None:
    here = MemoryBlobStore()
    there = MemoryBlobStore() if own_place else here
    with Store.open(url, blobs=here) as store, Store.open(other_kind, blobs=there) as other:
        session = filled(store)
        copy(store, other)
        if own_place:
            assert there.bodies == here.bodies
            here.bodies.clear()
        assert_whole(other, session)
        assert other.blobs.read(digest(HOSTS)) == HOSTS


@pytest.mark.parametrize("alone", [False, True])
def test_a_rebuilt_database_has_the_files_of_its_messages(url: str, new_database: Callable[[], str], alone: bool) -> None:
    with Store.open(url, events=True) as store, Store.open(new_database()) as target:
        session = filled(store)
        gone = create(store)
        append(store, gone, file(CAP + 9))
        store.chat.sessions.delete(gone)
        assert store.blobs.delete(next(one.sha256 for one in store.blobs.list().items if one.size == CAP + 9))
        logged = str([event.data for event in store.events.read("*")])
        assert "persist-blob:" in logged
        assert len(logged) < CAP
        rebuild(store, target, session if alone else None)
        assert_whole(target, session)
        assert len(target.blobs.list().items) == (2 if alone else 3)


def codes(store: Store) -> list[tuple[str, str]]:
    def told(finding: Finding) -> bool:
        return finding.code.startswith(("blob", "file"))

    return [(finding.code, finding.subject) for finding in doctor(store) if told(finding)]


def test_the_doctor_finds_damaged_and_missing_bodies(url: str) -> None:
    with Store.open(url) as store, closing(Raw(url)) as raw:
        session = filled(store)
        small = store.blobs.put(b"small").sha256
        assert codes(store) == []
        raw.rows("UPDATE blobs SET body = ? WHERE sha256 = ?", b"other", small)
        raw.rows("DELETE FROM blob_pieces WHERE sha256 = ? AND position = 1", digest(HOSTS))
        assert sorted(codes(store)) == sorted([("blob_damaged", f"blob {name}") for name in (small, digest(HOSTS))])
        raw.rows("DELETE FROM chat_part_blobs")
        assert [one for one in codes(store) if one[0] == "file_unnamed"] == [("file_unnamed", f"session {session}")] * 2
        assert [part["type"] for part in store.chat.messages.list(session)[0]["parts"]] == ["file", "text", "file"]


def test_the_doctor_looks_for_bodies_that_are_outside(url: str) -> None:
    memory = MemoryBlobStore()
    with Store.open(url, blobs=memory) as store:
        session = filled(store)
        assert codes(store) == []
        del memory.bodies[digest(HOSTS)]
        assert codes(store) == [("blob_damaged", f"blob {digest(HOSTS)}")]
    with Store.open(url) as store:
        assert codes(store) == [("blobs_outside", "table blobs")]
        with pytest.raises(BlobUnreadable):
            store.chat.messages.list(session)
