"""Files of messages go along with what names them: exports, copies, rebuilt databases; the doctor finds what is damaged."""

import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

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


@pytest.fixture
def other_kind(backend: str, request: pytest.FixtureRequest) -> str:
    """A new database of the other kind."""
    return str(request.getfixturevalue("sqlite_url" if backend == "postgres" else "postgres_url"))


PLACES = pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])


@PLACES
def test_an_export_of_a_session_holds_its_files(
    database_url: str, new_database: Callable[[], str], tmp_path: Path, outside: bool
) -> None:
    path = tmp_path / "session.jsonl"
    with Store.open(database_url, blobs=MemoryBlobStore() if outside else None) as store:
        session = filled(store)
        tables = export(store, path, session_id=session).tables
        assert (tables["blobs"], tables["chat_part_blobs"], tables["blob_pieces"]) == (2, 2, 3)
    with Store.open(new_database()) as other:
        import_(other, path)
        assert_whole(other, session)
        assert len(other.blobs.list().items) == 2


def test_an_import_keeps_files_that_are_there(database_url: str, new_database: Callable[[], str], tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with Store.open(database_url) as store:
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


def without_bodies(lines: Lines) -> Lines:
    return [line for line in lines if line.get("table") not in ("blobs", "blob_pieces")]


def other_body(lines: Lines) -> Lines:
    return [
        line | {"row": line["row"] | {"body": {"base64": "AAAA"}}} if line.get("table") == "blob_pieces" else line
        for line in lines
    ]


def other_small_body(lines: Lines) -> Lines:
    return [
        line | {"row": line["row"] | {"body": {"base64": "AAAA"}}} if line.get("table") == "blobs" else line for line in lines
    ]


def elsewhere(lines: Lines) -> Lines:
    return [
        line | {"row": line["row"] | {"outside": 1}} if line.get("table") == "blobs" else line
        for line in lines
        if line.get("table") != "blob_pieces"
    ]


def unnamed(lines: Lines) -> Lines:
    return other_body([line for line in lines if line.get("table", "blob").startswith("blob")])


@pytest.mark.parametrize("forge", [without_bodies, other_body, other_small_body, elsewhere, unnamed])
@pytest.mark.parametrize("known", [False, True])
def test_an_import_names_no_file_whose_bytes_it_does_not_hold(
    database_url: str, new_database: Callable[[], str], forge: Callable[[Lines], Lines], known: bool
) -> None:
    exported = io.BytesIO()
    with Store.open(new_database()) as source:
        session = filled(source)
        export(source, exported, session_id=session)
    forged = forge([json.loads(line) for line in exported.getvalue().splitlines()])
    with Store.open(database_url) as store:
        theirs = create(store)
        if known:
            append(store, theirs, *PARTS)
        with pytest.raises(InvalidValue, match=r"^line [0-9]+: the bytes of the blob"):
            import_(store, io.BytesIO(written(forged)))
        assert store.chat.sessions.list().items[0].id == theirs
        if not known:
            append(store, theirs, *PARTS)
        assert_whole(store, theirs)


@PLACES
def test_an_export_of_everything(database_url: str, other_kind: str, tmp_path: Path, outside: bool) -> None:
    path = tmp_path / "all.jsonl"
    with Store.open(database_url, blobs=MemoryBlobStore() if outside else None) as store:
        session = filled(store)
        export(store, path)
    with Store.open(other_kind) as other:
        import_(other, path)
        assert_whole(other, session)
        assert other.blobs.read(digest(HOSTS)) == HOSTS


@PLACES
@pytest.mark.parametrize("own_place", [False, True], ids=["the same place", "a place of its own"])
def test_a_copy(database_url: str, other_kind: str, outside: bool, own_place: bool) -> None:
    here = MemoryBlobStore() if outside else None
    there = MemoryBlobStore() if own_place else here
    with Store.open(database_url, blobs=here) as store, Store.open(other_kind, blobs=there) as other:
        session = filled(store)
        copy(store, other)
        if here is not None and own_place:
            assert there is not None
            assert there.bodies == here.bodies
            here.bodies.clear()
        assert_whole(other, session)
        assert other.blobs.read(digest(HOSTS)) == HOSTS


@pytest.mark.parametrize("alone", [False, True])
def test_a_rebuilt_database_has_the_files_of_its_messages(
    database_url: str, new_database: Callable[[], str], alone: bool
) -> None:
    with Store.open(database_url, events=True) as store, Store.open(new_database()) as target:
        session = filled(store)
        gone = create(store)
        append(store, gone, file(CAP + 9))
        store.chat.sessions.delete(gone)
        assert store.blobs.delete(next(one.sha256 for one in store.blobs.list().items if one.size == CAP + 9))
        with store.read() as tx:
            logged = str([event.data for event in tx.events.read("*")])
        assert "persist-blob:" in logged
        assert len(logged) < CAP
        rebuild(store, target, session if alone else None)
        assert_whole(target, session)
        assert len(target.blobs.list().items) == (2 if alone else 3)


def codes(store: Store) -> list[tuple[str, str]]:
    def told(finding: Finding) -> bool:
        return finding.code.startswith(("blob", "file"))

    return [(finding.code, finding.subject) for finding in doctor(store) if told(finding)]


def test_the_doctor_finds_damaged_and_missing_bodies(database_url: str) -> None:
    with Store.open(database_url) as store, closing(Raw(database_url)) as raw:
        session = filled(store)
        small = store.blobs.put(b"small").sha256
        assert codes(store) == []
        raw.rows("UPDATE blobs SET body = ? WHERE sha256 = ?", b"other", small)
        raw.rows("DELETE FROM blob_pieces WHERE sha256 = ? AND position = 1", digest(HOSTS))
        assert sorted(codes(store)) == sorted([("blob_damaged", f"blob {name}") for name in (small, digest(HOSTS))])
        raw.rows("DELETE FROM chat_part_blobs")
        assert [one for one in codes(store) if one[0] == "file_unnamed"] == [("file_unnamed", f"session {session}")] * 2
        assert [part["type"] for part in store.chat.messages.list(session)[0]["parts"]] == ["file", "text", "file"]


def test_the_doctor_looks_for_bodies_that_are_outside(database_url: str) -> None:
    memory = MemoryBlobStore()
    with Store.open(database_url, blobs=memory) as store:
        session = filled(store)
        assert codes(store) == []
        del memory.bodies[digest(HOSTS)]
        assert codes(store) == [("blob_damaged", f"blob {digest(HOSTS)}")]
    with Store.open(database_url) as store:
        assert codes(store) == [("blobs_outside", "table blobs")]
        with pytest.raises(BlobUnreadable):
            store.chat.messages.list(session)
