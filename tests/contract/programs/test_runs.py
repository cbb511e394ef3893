"""Runs of programs: what a new one is, lists, how they end and go on."""

import re
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, ReadOnlyTransaction, TransitionError
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.programs.scenes import OTHER, RUN, ask, do, make

SECOND = "2026-01-02T03:04:05+00:00"


def test_a_new_run_is_running_and_has_an_id_of_its_time(store: Any) -> None:
    run = do(store, "runs", "create", program_path="a.prose", program_source="it's \x00 \ud800 'all'")
    assert re.fullmatch(r"20260102-030405-[0-9a-z]{6}", run.id)
    assert (run.status, run.program_path, run.program_source) == ("running", "a.prose", "it's \x00 \ud800 'all'")
    assert run.started_at.isoformat() == run.updated_at.isoformat() == SECOND
    assert ask(store, "runs", "get", run.id) == run


def test_ids_are_taken_once(store: Any) -> None:
    make(store)
    with pytest.raises(Conflict):
        make(store)


def test_unknown_runs_are_not_found(store: Any) -> None:
    for verb in ("get", "resume_point", "audit"):
        with pytest.raises(NotFound) as caught:
            ask(store, "runs", verb, RUN)
        assert (caught.value.kind, caught.value.id) == ("program run", RUN)
    for verb, args in (("finish", ["completed"]), ("resume", [])):
        with pytest.raises(NotFound):
            do(store, "runs", verb, RUN, *args)


@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
def test_a_running_run_finishes_once(store: Any, clock: FrozenClock, status: str) -> None:
    make(store)
    clock.advance(seconds=5)
    run = do(store, "runs", "finish", RUN, status)
    assert (run.status, (run.updated_at - run.started_at).total_seconds()) == (status, 5.0)
    with pytest.raises(TransitionError) as caught:
        do(store, "runs", "finish", RUN, "failed")
    assert (caught.value.current, caught.value.requested) == (status, "failed")


@pytest.mark.parametrize(("status", "may"), [("interrupted", True), ("failed", True), ("completed", False), (None, False)])
def test_interrupted_and_failed_runs_go_on(store: Any, status: str | None, may: bool) -> None:
    make(store)
    if status:
        do(store, "runs", "finish", RUN, status)
    if may:
        assert do(store, "runs", "resume", RUN).status == "running"
    else:
        with pytest.raises(TransitionError):
            do(store, "runs", "resume", RUN)


@pytest.mark.parametrize("status", ["running", "done", "", None])
def test_a_run_finishes_in_words_that_end_it(store: Any, status: Any) -> None:
    make(store)
    with pytest.raises(InvalidValue):
        do(store, "runs", "finish", RUN, status)


def test_lists_are_newest_first_and_paged(store: Any, clock: FrozenClock) -> None:
    ids = []
    for number in range(5):
        ids.append(make(store, f"run-{number}"))
        clock.advance(seconds=0.6)  # some share a second, and the id decides
    do(store, "runs", "finish", "run-1", "failed")
    pages, cursor = [], None
    while True:
        page = ask(store, "runs", "list", limit=2, after=cursor)
        pages.append([run.id for run in page.items])
        cursor = page.cursor
        if cursor is None:
            break
    assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]
    assert [run.id for run in ask(store, "runs", "list", status="failed").items] == ["run-1"]
    assert [run.id for run in ask(store, "runs", "list", status="running").items] == ["run-4", "run-3", "run-2", "run-0"]
    first = ask(store, "runs", "list", limit=1)
    with pytest.raises(InvalidValue):
        ask(store, "runs", "list", limit=1, status="failed", after=first.cursor)


@each("run", ["", None, 3, "a\x00b"])
def test_a_scope_is_always_said(store: Any, run: Any) -> None:
    """Without a run there is no scope: nothing is guessed."""
    for aggregate, verb, args in (
        ("executions", "list", ()),
        ("bindings", "list", ()),
        ("agents", "recall", ("a",)),
        ("imports", "list", ()),
    ):
        with pytest.raises(InvalidValue):
            ask(store, aggregate, verb, run, *args)


def test_writing_verbs_are_refused_under_read(store: Any) -> None:
    make(store)
    for aggregate, verb, args, options in (
        ("runs", "create", (), {}),
        ("bindings", "bind", (RUN, "x", "1"), {}),
        ("agents", "remember", (RUN, "a", "m"), {}),
        ("executions", "begin", (RUN,), {"statement_index": 1, "statement_text": "x"}),
    ):
        with pytest.raises(ReadOnlyTransaction):
            ask(store, aggregate, verb, *args, **options)


def test_imports_are_registered_under_aliases(store: Any) -> None:
    make(store)
    make(store, OTHER)
    added = do(store, "imports", "add", RUN, "research", "https://example.org/a", inputs_schema={"topic": "string"})
    assert (added.alias, added.source_url, added.inputs_schema, added.outputs_schema) == (
        "research",
        "https://example.org/a",
        {"topic": "string"},
        None,
    )
    again = do(store, "imports", "add", RUN, "research", "https://example.org/b", outputs_schema=["findings"])
    do(store, "imports", "add", RUN, "a", "https://example.org/c")
    assert ask(store, "imports", "get", RUN, "research") == again
    assert [one.alias for one in ask(store, "imports", "list", RUN)] == ["a", "research"]
    assert ask(store, "imports", "list", OTHER) == []
    with pytest.raises(NotFound):
        ask(store, "imports", "get", OTHER, "research")
    for alias in ("", "a.b"):
        with pytest.raises(InvalidValue):
            do(store, "imports", "add", RUN, alias, "https://example.org/d")
