"""Where logs lie, and which ones there are."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.sessionlog import find_session_log, list_session_logs, normalize_session_id, session_log_path, slug_for_cwd
from tests.cases import each
from tests.sessionlog.scenes import AT_MS

AT = datetime(2026, 6, 15, 11, tzinfo=UTC)


def put(home: Path, slug: str, name: str, content: str = "", modified: int = 1_000) -> Path:
    path = home / "projects" / slug / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    os.utime(path, (modified, modified))
    return path


def test_the_path_of_a_log(home: Path) -> None:
    assert session_log_path(home, slug_for_cwd("/home/agent"), "s-1_A") == home / "projects" / "-home-agent" / "s-1_A.jsonl"
    assert session_log_path(str(home), slug_for_cwd(Path("/app")), "s") == home / "projects" / "-app" / "s.jsonl"
    assert not home.exists()


def test_slugs_are_not_injective() -> None:
    assert slug_for_cwd("/a/b") == slug_for_cwd("/a-b") == "-a-b"


@each("id", ["", "a/b", "../a", "a.b", "a b", "é", "a\n", "a\x00", "\uff11", None, 5, b"a", ["a"]])
def test_unsafe_ids(home: Path, id: Any) -> None:
    assert normalize_session_id(id) is None
    with pytest.raises(InvalidValue, match="session_id"):
        session_log_path(home, "-app", id)
    with pytest.raises(InvalidValue, match="session_id"):
        find_session_log(home, id)


def test_names_that_are_too_long(home: Path) -> None:
    assert session_log_path(home, "x" * 255, "x" * 249).name == "x" * 249 + ".jsonl"
    for slug, id, where in (("x" * 256, "s", "project_slug"), ("-app", "x" * 250, "session_id")):
        with pytest.raises(PayloadTooLarge) as caught:
            session_log_path(home, slug, id)
        assert (caught.value.path, caught.value.size, caught.value.limit) == (where, 256, 255)


def test_the_last_written_is_the_first(home: Path) -> None:
    put(home, "-a", "old.jsonl", modified=1_000)
    put(home, "-app", "new.jsonl", modified=3_000)
    put(home, "-b", "middle.jsonl", modified=2_000)
    put(home, "-b", "also.jsonl", modified=2_000)
    assert [info.session_id for info in list_session_logs(home)] == ["new", "also", "middle", "old"]
    assert [info.session_id for info in list_session_logs(home, scope="sandbox")] == ["also", "middle", "old"]
    assert [info.session_id for info in list_session_logs(home, scope="chat")] == ["new"]
    with pytest.raises(InvalidValue, match="scope"):
        list_session_logs(home, scope="-app")


def test_side_chains_and_other_files_are_left_out(home: Path) -> None:
    put(home, "-a", "s1.jsonl")
    for name in ("agent-1.jsonl", "s1.json", "s1.jsonl.bak", "a b.jsonl", ".jsonl", "s 2/s3.jsonl", "s2.jsonl/s4.jsonl"):
        put(home, "-a", name)
    put(home, ".", "s5.jsonl")
    (home / "projects" / "-a" / "broken.jsonl").symlink_to("nowhere")
    assert [info.session_id for info in list_session_logs(home)] == ["s1"]
    assert find_session_log(home, "agent-1").session_id == "agent-1"


@each(
    ("content", "started"),
    [
        (f'{{"type":"user","timestamp":{AT_MS}}}\n{{"timestamp":"2027-01-01T00:00:00Z"}}\n', AT),
        ('\nbad\n{"type":"x"}\n{"timestamp":"soon"}\n{"timestamp":"2026-06-15T13:00:00+02:00"}\n', AT),
        ('{"timestamp":"2026-06-15T11:00:00.000Z"}', AT),
        ("", datetime.fromtimestamp(1_000, UTC)),
        ('{"type":"user"}\n', datetime.fromtimestamp(1_000, UTC)),
        ('{"timestamp":"2026-06-', datetime.fromtimestamp(1_000, UTC)),
    ],
)
def test_a_log_started_at_its_first_timestamp_or_its_last_write(home: Path, content: str, started: datetime) -> None:
    path = put(home, "-a", "s1.jsonl", content)
    (info,) = list_session_logs(home)
    assert (info.session_id, info.project_slug, info.path) == ("s1", "-a", path)
    assert (info.started_at, info.modified_at) == (started, datetime.fromtimestamp(1_000, UTC))
    assert info.size == len(content.encode())
    assert info.started_at.tzinfo is UTC


def test_a_home_without_logs(home: Path) -> None:
    assert list_session_logs(home) == []
    home.mkdir()
    assert list_session_logs(home) == []
    (home / "projects").mkdir()
    assert list_session_logs(home) == []


def test_a_home_that_is_a_file(home: Path) -> None:
    home.write_bytes(b"")
    with pytest.raises(PersistError):
        list_session_logs(home)


def test_finding_a_log(home: Path) -> None:
    put(home, "-a", "s1.jsonl")
    put(home, "-a", "s2.jsonl")
    put(home, "-b", "s2.jsonl")
    assert find_session_log(home, "s1").project_slug == "-a"
    with pytest.raises(Conflict, match=r"-a, -b"):
        find_session_log(home, "s2")
    assert find_session_log(home, "s2", project_slug="-b").project_slug == "-b"
    for id, slug in (("s3", None), ("s1", "-b"), ("s1", "-c")):
        with pytest.raises(NotFound) as caught:
            find_session_log(home, id, project_slug=slug)
        assert (caught.value.kind, caught.value.id) == ("session log", id)
    with pytest.raises(InvalidValue, match="project_slug"):
        find_session_log(home, "s1", project_slug="../projects/-a")
