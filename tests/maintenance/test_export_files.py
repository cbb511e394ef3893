"""Where exports are written to, and read from."""

import io
import json
import stat
from pathlib import Path

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted
from persist.maintenance import export, import_
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import opened
from tests.schema.filling import transcript
from tests.schema.places import Place


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def test_a_file_is_its_owners_alone_and_never_overwritten(sqlite_url: str, file: Path) -> None:
    with Store.open(sqlite_url) as store:
        export(store, file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text("mine")
        with pytest.raises(Conflict, match="exists already"):
            export(store, file)
        assert file.read_text() == "mine"
        export(store, str(file), overwrite=True)
    assert json.loads(file.read_bytes().splitlines()[0])["format"] == "persist-export"
    assert [path.name for path in file.parent.iterdir() if path.suffix not in (".db", ".db-wal", ".db-shm")] == [file.name]


def test_a_failed_export_leaves_nothing(sqlite_url: str, file: Path) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at)"
        " VALUES ('r', 'w', 't', 'p', 'yesterday', '')"
    )
    with Store.open(sqlite_url) as store, pytest.raises(InvalidValue, match=r"workflow_runs\.started_at: in the row id 'r'"):
        export(store, file)
    assert [path.name for path in file.parent.iterdir() if ".jsonl" in path.name] == []


def test_places_where_no_file_can_be(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        with pytest.raises(InvalidValue, match="is a folder"):
            export(store, tmp_path)
        with pytest.raises(NotFound, match="folder"):
            export(store, tmp_path / "gone" / "x.jsonl")
        with pytest.raises(NotFound, match="file"):
            import_(store, tmp_path / "gone.jsonl")
        with pytest.raises(NotPermitted):
            import_(store, tmp_path)


def test_streams(sqlite_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    filled(sqlite_url, clock)
    stream = io.BytesIO()
    with opened(sqlite_url, f"sqlite:///{tmp_path / 'target.db'}") as (source, target):
        export(source, stream)
        stream.seek(0)
        import_(target, stream)
        assert transcript(target) == transcript(source)
