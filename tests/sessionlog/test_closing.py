"""When lines reach the disk, and the end of a writer."""

import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persist.errors import Closed, InvalidValue, Unavailable
from persist.sessionlog import SessionLogWriter, read_session_log, session_log_path
from persist.sessionlog.reader import read_line
from tests.cases import each
from tests.markdown import ROOT
from tests.sessionlog.scenes import NOW_TEXT, fresh, lines, log_path, text, writer


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every file when it is brought to the disk; folders are left out."""
    sizes: list[int] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            sizes.append(found.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    return sizes


def test_never(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="never") as log:
        log.feed(text("a"))
    assert synced == []


def test_after_every_batch(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="batch") as log:
        log.feed_many([text("a"), text("b")])
        first = log_path(home).stat().st_size
        log.finalize()
        assert synced == [first, log_path(home).stat().st_size]
    assert len(synced) == 2


def test_the_names_of_a_new_log_reach_the_disk_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[int] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            folders.append(found.st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    log = writer(home, fsync="batch")
    log.feed(text("a"))
    log.feed(text("b"))
    slug = log_path(home).parent
    assert folders == [folder.stat().st_ino for folder in (slug, slug.parent, home)]


def test_on_close(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="close") as log:
        log.feed_many([text("a"), {"type": "session", "id": "s2"}, text("b")])
        assert synced == []
    assert sorted(synced) == sorted(log_path(home, session).stat().st_size for session in ("s1", "s2"))
    log.close()
    assert len(synced) == 2


def test_the_disk_may_refuse_on_close(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", refuse)
    for strict in (False, True):
        log = writer(home, fsync="close", strict=strict)
        log.feed(text("a"))
        if strict:
            with pytest.raises(Unavailable):
                log.close()
        else:
            log.close()
            assert isinstance(log.error, Unavailable)


@pytest.mark.parametrize("strict", [False, True])
def test_a_closed_writer_takes_nothing(home: Path, strict: bool) -> None:
    log = writer(home, strict=strict)
    log.feed(text("a"))
    log.close()
    log.close()
    late: list[Callable[[], object]] = [
        lambda: log.feed(text("b")),
        lambda: log.feed_many([]),
        lambda: log.finalize(),
        lambda: log.finalize_with_fallback("s1"),
    ]
    for call_late in late:
        with pytest.raises(Closed):
            call_late()
    assert len(lines(home)) == 1


def test_an_exception_closes_too(home: Path) -> None:
    log = writer(home)
    with pytest.raises(KeyError), log:
        raise KeyError
    with pytest.raises(Closed):
        log.feed(text("a"))


RESULT = {"type": "result", "subtype": "success", "timestamp": NOW_TEXT}
FAILED = RESULT | {"subtype": "error_fatal"}
PROMPT = {"type": "user", "message": {"role": "user", "content": "Do it"}, "timestamp": NOW_TEXT}


def error(said: str, session: str = "s1") -> dict[str, Any]:
    return {"type": "assistant", "isApiErrorMessage": True, "error": said, "timestamp": NOW_TEXT, "sessionId": session}


def test_a_result_has_what_is_known_and_no_session_id(home: Path) -> None:
    log = writer(home)
    log.feed(text("a"))
    log.finalize(subtype="error_max_turns", num_turns=0, total_cost_usd=0.0, result="", stop_reason="max_turns")
    assert list(lines(home)[1].items()) == [
        ("type", "result"),
        ("subtype", "error_max_turns"),
        ("result", ""),
        ("num_turns", 0),
        ("total_cost_usd", 0.0),
        ("stop_reason", "max_turns"),
        ("timestamp", NOW_TEXT),
    ]


def test_an_error_of_the_provider_comes_just_before_the_result(home: Path) -> None:
    log = writer(home)
    log.feed(text("a"))
    log.finalize(api_error="insufficient quota")
    assert lines(home)[1:] == [error("insufficient quota"), FAILED]


@each(
    ("given", "subtype"),
    [
        ({}, "success"),
        ({"stop_reason": "end_turn"}, "success"),
        ({"api_error": ""}, "error_fatal"),
        ({"api_error": "quota"}, "error_fatal"),
        ({"api_error": "quota", "stop_reason": ""}, "error_fatal"),
        ({"api_error": "quota", "stop_reason": "error_api"}, "error_api"),
        ({"api_error": "quota", "subtype": "error_max_turns", "stop_reason": "error_api"}, "error_max_turns"),
    ],
)
def test_a_run_with_an_error_did_not_end_in_success(home: Path, given: dict[str, Any], subtype: str) -> None:
    home = fresh(home)
    log = writer(home)
    log.feed(text("a"))
    log.finalize(**given)
    log.finalize_with_fallback("s9", **given)
    assert [line["subtype"] for line in lines(home) if line["type"] == "result"] == [subtype] * 2


def test_a_result_straight_after_the_session_has_no_prompt(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed({"type": "session", "id": "s1"})
    log.finalize()
    assert lines(home) == [RESULT]


def test_a_result_without_a_session_goes_nowhere(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.finalize(api_error="boom")
    assert not home.exists()


@each(
    ("options", "given", "wanted"),
    [
        ({"initial_prompt": "Do it"}, {}, [PROMPT | {"sessionId": "s9"}, RESULT]),
        ({"initial_prompt": "Do it"}, {"error": "died"}, [PROMPT | {"sessionId": "s9"}, error("died", "s9"), FAILED]),
        ({}, {"error": "", "api_error": ""}, [FAILED]),
        ({}, {"error": "died", "api_error": "quota"}, [error("died", "s9"), error("quota", "s9"), FAILED]),
        ({}, {"error": "died", "stop_reason": "oom"}, [error("died", "s9"), RESULT | {"subtype": "oom", "stop_reason": "oom"}]),
    ],
)
def test_a_fallback_writes_under_the_given_id(
    home: Path, options: dict[str, Any], given: dict[str, Any], wanted: list[Any]
) -> None:
    home = fresh(home)
    log = writer(home, **options)
    assert log.finalize_with_fallback("s9", **given) == "s9"
    assert lines(home, "s9") == wanted
    assert log.session_id == "s9"


def test_a_fallback_after_a_session_is_a_plain_end(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed({"type": "session", "id": "s1"})
    assert log.finalize_with_fallback("s9") == "s1"
    assert log.finalize_with_fallback("s9", error="died") == "s1"
    assert lines(home) == [RESULT, FAILED]
    assert not log_path(home, "s9").exists()


def test_a_fallback_after_an_unsafe_session_uses_the_given_id(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed(text("a", session="../s1"))
    assert log.finalize_with_fallback("s9") == "s9"
    assert len(lines(home, "s9")) == 2


@each("unsafe", ["../s9", "", "a b", "s9.jsonl", "s9\n", None, 9, "x" * 300])
def test_an_unsafe_fallback_writes_nothing(home: Path, unsafe: Any) -> None:
    log = writer(home, initial_prompt="Do it")
    assert log.finalize_with_fallback(unsafe, error="died") is None
    assert log.failed
    assert not home.exists()
    with pytest.raises(InvalidValue, match="session_id"):
        writer(home, strict=True).finalize_with_fallback(unsafe)
    assert not home.exists()


def test_events_after_a_fallback_go_on_in_its_file(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.finalize_with_fallback("s9")
    log.feed(text("late"))
    assert lines(home, "s9")[2]["message"]["content"] == [{"type": "text", "text": "late"}]


def start(home: Path, name: str, *batches: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("worker.py")), str(home), name, *batches], env=environment
    )


def test_two_processes_interleave_whole_batches(home: Path) -> None:
    processes = [start(home, name, "300") for name in ("a", "b")]
    assert [process.wait(60) for process in processes] == [0, 0]
    whole = session_log_path(home, "-x", "s1").read_bytes()
    assert whole.endswith(b"\n")
    said = [json.loads(line)["message"]["content"][0]["text"] for line in whole.split(b"\n")[:-1] if line]
    assert len(said) == 2 * 300 * 5
    heads = [tuple(part.split(" ")[:3]) for part in said]
    for name in ("a", "b"):
        assert [head[1:] for head in heads if head[0] == name] == [(str(n), str(line)) for n in range(300) for line in range(5)]
    for at in range(0, len(heads), 5):
        assert len({head[:2] for head in heads[at : at + 5]}) == 1, "a batch was torn apart"


def test_a_killed_writer_costs_at_most_its_last_line(home: Path) -> None:
    path = session_log_path(home, "-x", "s1")
    for round in range(3):
        process = start(home, f"round{round}")
        try:
            deadline = time.monotonic() + 30
            size = path.stat().st_size if path.exists() else 0
            while (not path.exists() or path.stat().st_size < size + 100_000) and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait(30)
        before = path.read_bytes()
        assert len(before) >= size + 100_000
        SessionLogWriter(home, "-x", initial_prompt=f"after {round}", strict=True).finalize_with_fallback("s1")
        assert path.read_bytes().startswith(before)
        whole = sum(len(read_line(line).records) for line in before.split(b"\n"))
        said = [entry.msg["content"] for entry in read_session_log(path)]
        assert said.count(f"after {round}") == 1
        assert len(said) == whole + 1 - round  # the result line of each round says nothing
