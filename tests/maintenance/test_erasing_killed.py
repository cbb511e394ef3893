"""An erasure that is killed is done or not begun, and goes on: by the next one, or by `maintain`. Real processes are killed."""

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import NotFound, NotPermitted, StoreBusy
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.maintenance import copy, doctor, erase, maintain, rebuild
from tests.maintenance.erasing_scenes import events, files_of, person, places_of, rows, secret_of, selectors
from tests.maintenance.pruning_scenes import gone
from tests.subprocesses import Worker

MARIA = selectors("maria")


def die(url: str, step: int, when: str, *home: Path) -> bool:
    """Erase in a process that dies in a step; whether it had that many."""
    with closing(Worker("tests.maintenance.erasing_worker", url, step, when, *map(str, home))) as worker:
        said = worker.stdout.read()
        return worker.wait(120) == -signal.SIGKILL and said == ""


def two_people(url: str) -> None:
    with Store.open(url, events=True) as store:
        person(store, "maria")
        person(store, "peter")


def test_killed_again_and_again_it_still_goes_on(database_url: str, new_database: Callable[[], str]) -> None:
    """Each process gets further than the one before, and the counts in the end are those of all."""
    two_people(database_url)
    before = rows(database_url)
    for number, step in enumerate((0, 1, 5, 12, 30, 45, 60)):
        assert die(database_url, step, ("before", "within")[number % 2]), step
        with Store.open(database_url) as store:
            assert [one.code for one in doctor(store)] == ["erasure_unfinished"]
    with Store.open(database_url) as store:
        report = erase(store, **MARIA)
        assert gone(before, rows(database_url)) == report.tables
        assert places_of(database_url, secret_of("maria")) == set()
        assert doctor(store) == []
        of_peter = [row for of in rows(database_url).values() for row in of if "peter" in row]
        assert sorted(of_peter) == sorted(row for of in before.values() for row in of if "peter" in row)
        told = events(store)
        assert [event.position for event in told] == sorted({event.position for event in told})
        for stream in {event.stream_id for event in told}:
            seqs = [event.seq for event in told if event.stream_id == stream]
            assert seqs == list(range(1, len(seqs) + 1)), stream
        url = new_database()
        with Store.open(url) as target:
            rebuild(store, target)
        assert {table for table, of in rows(url).items() if of.total() != rows(database_url)[table].total()} <= {"_meta"}


def test_maintain_finishes_it(store: Store, url: str) -> None:
    two_people(url)
    before = rows(url)
    assert die(url, 20, "within")
    steps = {step.name: step for step in maintain(store).steps}
    assert steps["finish erasures"].error is None
    assert steps["finish erasures"].tables == gone(before, rows(url))
    assert "finish erasures" not in {step.name for step in maintain(store).steps}
    assert doctor(store) == []
    assert places_of(url, secret_of("maria")) == set()
    if url.startswith("sqlite"):
        assert [path for path in files_of(url) if secret_of("maria").encode() in path.read_bytes()] == []


def test_an_erasure_of_somebody_else_finishes_it(store: Store, url: str) -> None:
    two_people(url)
    assert die(url, 3, "before")
    assert erase(store, owner="nobody").tables == {}
    assert doctor(store) == []
    assert places_of(url, secret_of("maria")) == set()


def test_what_was_said_between_an_interruption_and_the_next_call_goes_too(logged: Store, url: str) -> None:
    """The person comes back under the same names, and what that left is in the log alone, and in a prompt that nothing names."""
    words = "said in a second life"

    def interrupted(what: str, done: int, total: int) -> None:
        if what == "the log of events":
            raise StoreBusy(0.0)

    person(logged, "peter")
    person(logged, "maria")
    with pytest.raises(StoreBusy):
        erase(logged, **MARIA, progress=interrupted)
    with logged.begin() as tx:
        digest = tx.chat.prompts.put(words)
        tx.chat.sessions.create(id="maria-session", agent="a", model={}, owner="maria", metadata={"a": words})
        said = [{"type": "text", "text": words}]
        tx.chat.messages.append("maria-session", role="user", parts=said, metadata={"system_prompt_digest": digest})
        tx.checkpoints.memories.put(("people", "maria"), "k", {"a": words})
        tx.app_sessions.artifacts.save(ArtifactKey("app", "maria", None, "other"), f'{{"a": "{words}"}}', data=b"x")
        tx.agent_tasks.webhooks.set("t1", "w1", owner="maria", data=words.encode())
    with logged.begin() as tx:
        tx.chat.sessions.delete("maria-session")
        tx.checkpoints.memories.delete(("people", "maria"), "k")
        tx.app_sessions.artifacts.delete(ArtifactKey("app", "maria", None, "other"))
        tx.agent_tasks.webhooks.delete("t1", id="w1", owner="maria")
    report = erase(logged, **MARIA)
    assert places_of(url, words) == set()
    assert places_of(url, secret_of("maria")) == set()
    assert report.kept["system_prompts: messages of others name them"] == 1
    assert doctor(logged) == []


def test_session_logs_wait_until_somebody_names_their_folder(store: Store, url: str, tmp_path: Path) -> None:
    """Whoever goes on finishes what is in the database. No folder is written down, so the logs wait for a caller who names it."""
    two_people(url)
    home = tmp_path / "home"
    (home / "projects" / "-work").mkdir(parents=True)
    log, peters = (home / "projects" / "-work" / f"{name}-session.jsonl" for name in ("maria", "peter"))
    for path in (log, peters):
        path.write_text(secret_of("maria"))
    before = rows(url)
    assert die(url, 12, "within", home)
    assert places_of(url, str(home)) == set()
    for begun in (True, False):
        (step,) = [step for step in maintain(store).steps if step.name == "finish erasures"]
        assert "persist erase --session-logs" in str(step.error)
        assert step.tables == (gone(before, rows(url)) if begun else {})
        (problem,) = doctor(store)
        assert (problem.code, "persist erase --session-logs" in problem.message) == ("erasure_unfinished", True)
        assert places_of(url, secret_of("maria")) == set()
    report = erase(store, **MARIA)
    assert report.files == 0
    assert [count for reason, count in report.kept.items() if "session logs" in reason] == [1]
    assert log.exists()
    erase(store, owner="nobody", session_logs=home)
    assert doctor(store) == []
    assert (log.exists(), peters.exists()) == (False, True)


def test_logs_that_cannot_be_deleted_wait(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "home" / "projects" / "-work" / "maria-session.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(secret_of("maria"))

    def refuses(*_: Any, **__: Any) -> None:
        raise NotPermitted("a disk that is mounted to be read only")

    with pytest.raises(NotFound):
        erase(store, **MARIA, session_logs=tmp_path / "away")
    assert doctor(store) == []
    with monkeypatch.context() as patch:
        patch.setattr("persist.maintenance.erasing.erase_session_logs", refuses)
        assert len(erase(store, **MARIA, session_logs=tmp_path / "home").kept) == 1
    report = erase(store, **MARIA, session_logs=tmp_path / "home")
    assert (report.files, report.kept) == (1, {})
    assert doctor(store) == []


def test_one_that_fails_before_it_is_written_down_has_done_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two_people(url)
    before = rows(url)

    def fails(*_: Any) -> None:
        raise StoreBusy(5.0)

    monkeypatch.setattr("persist.maintenance.erasing.marks.begin", fails)
    with Store.open(url, sleep=lambda _: None) as store:
        with pytest.raises(StoreBusy):
            erase(store, **MARIA)
        assert rows(url) == before
        assert doctor(store) == []


def test_a_dry_run_leaves_an_unfinished_one_alone(store: Store, url: str) -> None:
    two_people(url)
    assert die(url, 10, "before")
    before = rows(url)
    erase(store, owner="peter", dry_run=True)
    erase(store, **MARIA, dry_run=True)
    assert rows(url) == before


def test_a_copy_knows_of_it(database_url: str, tmp_path: Path) -> None:
    """The mark is among the rows that a copy carries along: the erasure goes on there, too."""
    two_people(database_url)
    assert die(database_url, 10, "before")
    url = f"sqlite:///{(tmp_path / 'copy.db').as_posix()}"
    with Store.open(database_url) as store, Store.open(url) as target:
        copy(store, target)
        assert [one.code for one in doctor(target)] == ["erasure_unfinished"]
        maintain(target)
    assert places_of(url, secret_of("maria")) == set()
