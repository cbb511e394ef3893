"""What a subagent may do through its handle, and what an audit finds of what it did behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted
from persist.programs import audit, instructions_for_subagent, subagent
from persist.programs.subagents.handles import (
    AsyncSubagentAgents,
    AsyncSubagentBindings,
    AsyncSubagentHandle,
    SubagentAgents,
    SubagentBindings,
    SubagentHandle,
)
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.programs.scenes import OTHER, RUN, ask, begin, bind, do, given, make, resolve


@pytest.fixture(autouse=True)
def run(store: Any) -> str:
    return make(store)


def test_a_handle_writes_values_and_memory_of_its_frame(store: Any) -> None:
    frame = begin(store)
    bind(store, "topic", "safety")
    handle = given(store, subagent, RUN, frame)
    assert handle.bindings.resolve("topic").value == "safety"
    bound = handle.bindings.bind("result", "it's done", kind="const", source_statement="const result = …")
    assert (bound.execution_id, bound.kind, bound.value) == (frame, "const", "it's done")
    assert handle.bindings.get("result") == bound
    assert handle.bindings.get("topic") is None
    assert resolve(store, "result", frame) == "it's done"
    with pytest.raises(Conflict):
        handle.bindings.bind("result", "again")
    assert handle.agents.recall("captain") is None
    handle.agents.remember("captain", "m")
    handle.agents.add_segment("captain", prompt="p", summary="s")
    assert [one.segment_number for one in handle.agents.segments("captain")] == [1]
    assert ask(store, "agents", "recall", RUN, "captain").memory == "m"


def test_a_handle_without_a_frame_writes_to_the_root(store: Any) -> None:
    assert given(store, subagent, RUN).bindings.bind("x", "1").execution_id is None


@every_way
def test_the_handle_of_an_agent_has_that_agents_memory_alone(store: Any) -> None:
    for agent in ("captain", "rival"):
        do(store, "agents", "start", RUN, agent, resume=False)
        do(store, "agents", "remember", RUN, agent, f"of {agent}")
        do(store, "agents", "add_segment", RUN, agent, prompt="p", summary=agent)
    agents = given(store, subagent, RUN, agent="captain").agents
    agents.remember("captain", "new")
    agents.add_segment("captain", prompt="p", summary="s")
    assert agents.recall("captain").memory == "new"
    assert [one.segment_number for one in agents.segments("captain")] == [1, 2]
    for other in ("rival", "nobody", "Captain", "captain\x00", "", None, 5, b"captain"):
        for verb, given_too in (
            (agents.remember, {"memory": "hurt"}),
            (agents.remember, {"memory": "hurt", "scope": "project"}),
            (agents.recall, {}),
            (agents.segments, {}),
            (agents.add_segment, {"prompt": "hurt", "summary": "hurt"}),
        ):
            with pytest.raises(NotPermitted):
                verb(other, **given_too)
    assert [one.name for one in ask(store, "agents", "list", RUN)] == ["captain", "rival"]
    assert ask(store, "agents", "recall", RUN, "rival").memory == "of rival"
    assert len(ask(store, "agents", "segments", RUN, "rival")) == 1
    with pytest.raises(InvalidValue):
        given(store, subagent, RUN, agent="")


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_nothing_else_is_reachable(store: Any) -> None:
    handle = given(store, subagent, RUN)
    handle = getattr(handle, "_target", handle)
    assert public(handle) == {"agents", "bindings"}
    assert public(handle.bindings) == {"bind", "bind_file", "get", "open_file", "resolve"}
    assert public(handle.agents) == {"add_segment", "recall", "remember", "segments"}
    with pytest.raises(TypeError):
        given(store, subagent, RUN).bindings.bind("x", "1", execution_id=1)
    with pytest.raises(AttributeError):
        handle.executions = None


def test_both_handles_have_the_same_methods() -> None:
    for sync, other in ((SubagentBindings, AsyncSubagentBindings), (SubagentAgents, AsyncSubagentAgents)):
        assert sync.__slots__ == other.__slots__
    assert SubagentHandle.__slots__ == tuple(name for name in AsyncSubagentHandle.__slots__ if name != "_checked")


def test_a_handle_binds_files_and_reads_them(store: Any, tmp_path: Path) -> None:
    frame = begin(store)
    path = tmp_path / "report.md"
    path.write_text("Three approaches.")
    handle = given(store, subagent, RUN, frame)
    bound = handle.bindings.bind_file("report", path, kind="output", source_statement="output report")
    assert (bound.execution_id, bound.kind, bound.source_statement) == (frame, "output", "output report")
    with handle.bindings.open_file("report") as stream:
        assert stream.read() == b"Three approaches."


@each("what", [None, "state.db", 3, object()])
@each("use", [subagent, audit, instructions_for_subagent])
def test_what_is_no_store_is_said(use: Any, what: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        use(what, RUN)
    assert caught.value.path == "store"
    assert type(what).__name__ in str(caught.value)


def test_a_handle_needs_its_run_and_frame(store: Any) -> None:
    with pytest.raises(NotFound):
        given(store, subagent, OTHER)
    with pytest.raises(NotFound):
        given(store, subagent, RUN, 999)


def test_what_the_library_did_is_clean(store: Any) -> None:
    outer = begin(store)
    inner = begin(store, parent=outer)
    bind(store, "x", "1", execution_id=inner)
    do(store, "agents", "start", RUN, "captain", resume=False)
    do(store, "agents", "add_segment", RUN, "captain", prompt="p", summary="s")
    do(store, "executions", "fail", RUN, inner, "no")
    do(store, "executions", "record_retry", RUN, inner, attempt=1, max_retries=1)
    do(store, "executions", "complete", RUN, inner)
    do(store, "executions", "update", RUN, outer, {"note": 1})
    do(store, "runs", "finish", RUN, "interrupted")
    do(store, "runs", "resume", RUN)
    assert given(store, audit, RUN) == []


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("statement", "code", "subject"),
    [
        ("UPDATE execution SET status = 'completed'", "status_not_ours", "execution {frame}"),
        ("UPDATE run SET status = 'completed'", "status_not_ours", f"run {RUN}"),
        ("UPDATE bindings SET kind = 'var'", "unknown_word", "binding x of execution {frame}"),
        ("UPDATE bindings SET execution_id = 77", "orphan", "binding x of execution 77"),
        ("UPDATE agents SET scope = 'world'", "unknown_word", "agent captain"),
        ("UPDATE agent_segments SET agent_name = NULL", "orphan", "segment {segment}"),
        ("UPDATE execution SET parent_id = id", "circle", "execution {frame}"),
    ],
)
def test_what_a_raw_writer_did_is_found(store: Any, raw: Any, statement: str, code: str, subject: str) -> None:
    frame = begin(store)
    bind(store, "x", "1", execution_id=frame)
    do(store, "agents", "start", RUN, "captain", resume=False)
    segment = do(store, "agents", "add_segment", RUN, "captain", prompt="p", summary="s").id
    raw.rows(statement)
    first, noted = given(store, audit, RUN)
    assert (first.code, first.subject, noted.code) == (code, subject.format(frame=frame, segment=segment), "raw_write")


@pytest.mark.one_server
def test_a_raw_execution_is_found(store: Any, raw: Any) -> None:
    scope = "" if raw.is_sqlite else RUN
    run = make(store, "own") if raw.is_sqlite else RUN
    raw.rows("INSERT INTO execution (run_id, statement_text, status) VALUES (?, 'x', 'executing')", scope or run)
    assert [one.code for one in given(store, audit, run)] == ["status_not_ours", "raw_write"]
    assert ask(store, "executions", "list", run)[0].status == "executing"


def test_a_raw_insert_without_a_scope_fails_on_the_server(postgres_url: str, open_raw: Callable[[str], Any]) -> None:
    raw = open_raw(postgres_url)
    for statement in (
        "INSERT INTO bindings (name, value) VALUES ('x', '1')",
        "INSERT INTO execution (statement_text) VALUES ('x')",
        "INSERT INTO agents (name) VALUES ('x')",
        "INSERT INTO imports (alias) VALUES ('x')",
    ):
        with pytest.raises(psycopg.errors.NotNullViolation):
            raw.rows(statement)
    raw.rows("SET persist.run_id = 'r1'")
    raw.rows("INSERT INTO bindings (name, value) VALUES ('x', '1')")
    assert raw.rows("SELECT run_id FROM bindings") == [("r1",)]
