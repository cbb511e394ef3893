"""What the verbs of executions refuse: unknown ids, writes in a reading transaction, values that cannot be kept."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import NotFound, PayloadTooLarge, ReadOnlyTransaction
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    COUNTS,
    NOT_AMOUNTS,
    NOT_BODIES,
    NOT_COUNTS,
    NOT_FLAGS,
    NOT_LABELS,
    NOT_OPTIONAL_LABELS,
    SKILL,
    STARTED,
    TRIGGER,
    done,
    execution,
    refused,
    refused_at,
    start,
)


def test_an_unknown_execution_is_not_found_and_not_written(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        verbs = tx.workflows.executions
        assert not verbs.set_session("gone", "log")
        assert not verbs.finish("gone", success=True)
        assert not verbs.set_output("gone", "text")
        for read in (verbs.get, verbs.output_text):
            with pytest.raises(NotFound) as caught:
                read("gone")
            assert (caught.value.kind, caught.value.id) == ("execution", "gone")
        verbs.start(trigger_type="api", trigger_id="t", skill="s")
    assert raw.count("executions") == 1


def test_no_writing_verb_runs_in_a_read(store: Any) -> None:
    id = start(store)
    with store.read() as tx:
        verbs = tx.workflows.executions
        writes: list[Callable[[], Any]] = [
            lambda: verbs.start(trigger_type="api", trigger_id="t", skill="s"),
            lambda: verbs.finish(id, success=True),
            lambda: verbs.set_session(id, "log"),
            lambda: verbs.set_output(id, "text"),
            lambda: tx.workflows.executions.skip("s", "t", reason="r"),
            lambda: verbs.mark_stale("t"),
            lambda: verbs.veto_latest("s", "t", "r"),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyTransaction):
                write()


def test_start_refuses_what_it_cannot_keep(store: Any, raw: Raw) -> None:
    good = {"trigger_type": "webhook", "trigger_id": TRIGGER, "skill": SKILL}
    with store.begin() as tx:
        verb = tx.workflows.executions.start
        for name in good:
            refused(verb, name, [*NOT_LABELS, None], **good)
        for name in ("repo", "workflow_run_id", "session_id", "id"):
            refused(verb, name, NOT_OPTIONAL_LABELS, **good)
        refused(verb, "issue_number", NOT_COUNTS, **good)
        refused(verb, "lease", [1, "lease", {}, True], **good)
        refused(verb, "lease", ["lease"], **good, workflow_run_id="run_gone")
        verb(**good)
    assert raw.count("executions") == 1


def test_finish_refuses_what_it_cannot_keep(store: Any) -> None:
    id = start(store)
    before = execution(store, id)
    with store.begin() as tx:
        verb = tx.workflows.executions.finish
        refused_at(verb, 0, "id", [*NOT_LABELS, None], id, success=True)
        refused(verb, "success", NOT_FLAGS, id)
        refused(verb, "error", NOT_BODIES, id, success=True)
        for name in COUNTS:
            refused(verb, name, NOT_COUNTS, id, success=True)
        refused(verb, "cost_usd", NOT_AMOUNTS, id, success=True)
        for name in ("session_id", "stop_reason"):
            refused(verb, name, NOT_OPTIONAL_LABELS, id, success=True)
        refused(verb, "extension_status", [{1: 2}, {"a": float("nan")}, {"a": object()}, 2**64, STARTED], id, success=True)
        refused(verb, "lease", [1, "lease", {}, True], id, success=True)
        assert tx.workflows.executions.get(id) == before
        assert verb(id, success=True)


def test_the_other_writes_refuse_what_they_cannot_keep(store: Any) -> None:
    id = start(store)
    before = execution(store, id)
    with store.begin() as tx:
        verbs = tx.workflows.executions
        refused_at(verbs.set_session, 0, "id", [*NOT_LABELS, None], id, "log")
        refused_at(verbs.set_session, 1, "session_id", [*NOT_LABELS, None], id, "log")
        refused_at(verbs.set_output, 0, "id", [*NOT_LABELS, None], id, "text")
        refused_at(verbs.set_output, 1, "text", [*NOT_BODIES, None], id, "text")
        refused(verbs.set_output, "lease", [1, "lease", {}, True], id, "text")
        refused_at(verbs.get, 0, "id", [*NOT_LABELS, None], id)
        refused_at(verbs.output_text, 0, "id", [*NOT_LABELS, None], id)
        assert verbs.get(id) == before
        assert verbs.output_text(id) is None
        assert verbs.set_output(id, "kept")
    with store.read() as tx:
        assert tx.workflows.executions.output_text(id) == "kept"


def test_the_largest_numbers_come_back(store: Any) -> None:
    maximum = 2**63 - 1
    result = {"turns": maximum, "duration_ms": maximum, "input_tokens": maximum, "cost_usd": 1e300}
    found = execution(store, done(store, issue_number=maximum, result=result))
    assert found.issue_number == maximum
    assert {name: getattr(found, name) for name in result} == result


def test_oversized_text_is_refused_whole(open_store: Any) -> None:
    store = open_store(settings=Settings(max_text_bytes=10))
    id = start(store)
    with store.begin() as tx:
        verbs = tx.workflows.executions
        writes: list[Callable[[str], Any]] = [
            lambda text: verbs.set_output(id, text),
            lambda text: verbs.finish(id, success=False, error=text),
            lambda text: tx.workflows.executions.skip(SKILL, TRIGGER, reason=text),
            lambda text: verbs.mark_stale(TRIGGER, reason=text),
            lambda text: verbs.veto_latest(SKILL, TRIGGER, text),
        ]
        for write in writes:
            with pytest.raises(PayloadTooLarge) as caught:
                write("é" * 6)
            assert (caught.value.size, caught.value.limit) == (12, 10)
        assert verbs.output_text(id) is None
        assert verbs.get(id).success is None
        assert verbs.set_output(id, "é" * 5)
        assert len(verbs.list().items) == 1


def test_an_oversized_extension_status_is_refused_whole(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=100))
    id = start(store)
    with store.begin() as tx:
        with pytest.raises(PayloadTooLarge):
            tx.workflows.executions.finish(id, success=True, extension_status="x" * 99)
        assert tx.workflows.executions.get(id).success is None
        assert tx.workflows.executions.finish(id, success=True, extension_status="x" * 98)
