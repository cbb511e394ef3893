"""Following a log: every line once and whole, whatever happens to the file meanwhile."""

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.sessionlog import (
    LogMessage,
    find_session_log,
    list_session_logs,
    normalize_session_id,
    reader,
    session_log_path,
    slug_for_cwd,
    tail_session_log,
)
from tests.cases import each
from tests.sessionlog.scenes import AT_MS, text, writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def line(number: int) -> bytes:
    return json.dumps({"n": number}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def follow(path: Path, **options: Any) -> Iterator[list[LogMessage]]:
    return tail_session_log(path, poll=0.001, **options)


def at_once(path: Path, **options: Any) -> list[LogMessage]:
    """What is there, without waiting for more."""
    return [entry for batch in follow(path, stop=lambda: True, **options) for entry in batch]


def numbers(batch: list[LogMessage]) -> list[tuple[int, Any]]:
    return [(entry.index, entry.msg.get("n")) for entry in batch]


@given(st.lists(st.sampled_from(["", "x", "{", '{"n":"é"}', '{"n":"😀\u2028"}', "5", "\r"]), max_size=12), st.data())
def test_however_a_log_arrives_it_is_the_same(tmp_path_factory: pytest.TempPathFactory, parts: list[str], data: Any) -> None:
    path = tmp_path_factory.mktemp("tail") / "log.jsonl"
    whole = "\n".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    tail, found = follow(path), []
    assert next(tail) == []
    path.touch()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if start < end:
            append(path, whole[start:end])
            found += next(tail)
    wanted = [(n, json.loads(part)["n"]) for n, part in enumerate(parts[:-1]) if part.startswith('{"')]
    assert numbers(found) == wanted
    assert numbers(at_once(path)) == wanted


def test_since_index_is_the_first_one_wanted(path: Path) -> None:
    path.write_bytes(line(0) + b"\n" + line(2) + line(3))
    assert numbers(at_once(path, since_index=2)) == [(2, 2), (3, 3)]
    assert numbers(at_once(path, since_index=4)) == []
    tail = follow(path, since_index=5)
    assert next(tail) == []
    append(path, line(4))
    assert next(tail) == []
    append(path, line(5))
    assert numbers(next(tail)) == [(5, 5)]


def test_a_log_that_became_shorter_starts_again_from_its_first_line(path: Path) -> None:
    path.write_bytes(line(0) + line(1) + b'{"n":')
    tail = follow(path, since_index=1)
    assert numbers(next(tail)) == [(1, 1)]
    path.write_bytes(b"")
    assert next(tail) == []
    append(path, line(7))
    assert numbers(next(tail)) == [(0, 7)]


def test_another_file_in_its_place_starts_again_after_the_last_lines_of_the_old(path: Path) -> None:
    path.write_bytes(line(0))
    tail = follow(path)
    assert numbers(next(tail)) == [(0, 0)]
    append(path, line(1))
    other = path.with_suffix(".new")
    other.write_bytes(line(5) + line(6) + line(7) + b'{"n"')
    os.replace(other, path)
    assert numbers(next(tail)) == [(1, 1)]
    assert numbers(next(tail)) == [(0, 5), (1, 6), (2, 7)]
    append(path, b":8}\n")
    assert numbers(next(tail)) == [(3, 8)]


def test_a_log_that_is_removed_is_waited_for_again(path: Path) -> None:
    path.write_bytes(line(0) + line(1))
    missing: list[bool] = []

    def stop() -> bool:
        """Asked before and after every look: the log comes back after a few of them."""
        if path.exists():
            return bool(missing)
        missing.append(True)
        if len(missing) == 10:
            path.write_bytes(line(5))
        return False

    batches = follow(path, stop=stop)
    assert numbers(next(batches)) == [(0, 0), (1, 1)]
    path.unlink()
    assert [numbers(batch) for batch in batches] == [[(0, 5)]]


def test_the_lines_before_a_stop_are_handed_out(path: Path) -> None:
    path.write_bytes(line(0))
    stop = threading.Event()
    batches = follow(path, stop=stop)
    assert numbers(next(batches)) == [(0, 0)]
    append(path, line(1))
    stop.set()
    assert [numbers(batch) for batch in batches] == [[(1, 1)]]
    assert list(follow(path.with_suffix(".none"), stop=stop)) == [[]]


def test_a_stop_ends_the_wait(path: Path) -> None:
    """With an hour between two looks, only a stop that is noticed while waiting can end this."""
    path.write_bytes(line(0))
    for as_function in (False, True):
        event = threading.Event()
        batches = tail_session_log(path, poll=3600, stop=event.is_set if as_function else event)
        assert numbers(next(batches)) == [(0, 0)]
        threading.Timer(0.05, event.set).start()
        assert list(batches) == []


def test_a_long_log_comes_in_several_batches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHUNK", 64)
    path.write_bytes(b"".join(line(number) for number in range(100)) + b'{"n":"' + b"x" * 1000 + b'"}\n')
    batches = list(follow(path, stop=lambda: True))
    assert len(batches) > 10
    found = [entry for batch in batches for entry in batch]
    assert numbers(found) == [*((n, n) for n in range(100)), (100, "x" * 1000)]


def test_lines_come_as_they_are_stored_in_the_order_of_the_file(path: Path) -> None:
    entries: list[Any] = [{"type": "result"}, {"timestamp": "2"}, {"timestamp": "1", "role": "user"}, {}]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in [*entries, 5, [], None]), encoding="utf-8")
    assert at_once(path) == [LogMessage(index, entry) for index, entry in enumerate(entries)]


def test_a_writer_at_work_is_followed_line_by_line(home: Path) -> None:
    log = writer(home)
    log.feed({"type": "session", "id": "s1"})
    assert log.path is not None
    stop = threading.Event()
    found: list[LogMessage] = []

    def read() -> None:
        for batch in follow(log.path or home, stop=stop):
            found.extend(batch)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        log.feed(text(f"é{number}"))
    stop.set()
    reader.join(30)
    assert [entry.index for entry in found] == list(range(200))
    assert [entry.msg["message"]["content"][0]["text"] for entry in found] == [f"é{number}" for number in range(200)]


@each(
    ("name", "value"),
    [("since_index", value) for value in (-1, 1.0, True, None)]
    + [("poll", value) for value in (0, -1, float("nan"), 1e99, True, "1")],
)
def test_wrong_arguments_are_refused_at_once(path: Path, name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name):
        tail_session_log(path, **{name: value})


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PersistError):
        next(follow(tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PersistError):
        next(follow(tmp_path / "loop"))


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
