"""A refused verb writes nothing, and its transaction goes on: on Postgres too, where its statements travel together."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, TransitionError
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.programs.scenes import RUN, begin, do, make

TABLES = ("run", "execution", "bindings", "agents", "agent_segments")

REFUSED: dict[str, tuple[type[Exception], Callable[[Any, int], Any]]] = {
    "begin": (NotFound, lambda p, e: p.executions.begin("none", statement_index=1, statement_text="x")),
    "begin below": (NotFound, lambda p, e: p.executions.begin(RUN, statement_index=1, statement_text="x", parent_id=e + 1)),
    "start": (TransitionError, lambda p, e: p.executions.complete(RUN, e) and p.executions.start(RUN, e)),
    "update": (NotFound, lambda p, e: p.executions.update(RUN, e + 1, {})),
    "finish": (NotFound, lambda p, e: p.runs.finish("none", "failed")),
    "resume": (TransitionError, lambda p, e: p.runs.finish(RUN, "completed") and p.runs.resume(RUN)),
    "finish as running": (InvalidValue, lambda p, e: p.runs.finish(RUN, "running")),
    "bind in no run": (NotFound, lambda p, e: p.bindings.bind("none", "name", "value")),
    "bind in no frame": (NotFound, lambda p, e: p.bindings.bind(RUN, "name", "value", execution_id=e + 1)),
    "bind a const": (Conflict, lambda p, e: p.bindings.bind(RUN, "fixed", "value")),
    "start an agent": (NotFound, lambda p, e: p.agents.start("none", "agent", resume=False)),
    "resume an agent": (NotFound, lambda p, e: p.agents.start(RUN, "agent", resume=True)),
    "remember": (NotFound, lambda p, e: p.agents.remember("none", "agent", "memory")),
    "segment of no agent": (NotFound, lambda p, e: p.agents.add_segment(RUN, "agent", prompt="p", summary="s")),
    "segment of no run": (NotFound, lambda p, e: p.agents.add_segment("none", "agent", prompt="p", summary="s")),
}


@on_one_face
def test_a_refused_verb_writes_nothing_and_the_transaction_goes_on(store: Any, raw: Raw) -> None:
    make(store)
    execution = begin(store)
    do(store, "bindings", "bind", RUN, "fixed", "value", kind="const")

    @each("name", REFUSED)
    def refuse(name: str) -> None:
        error, verb = REFUSED[name]
        before = {table: raw.count(table) for table in TABLES}
        with store.begin() as tx:
            with pytest.raises(error):
                verb(tx.programs, execution)
            tx.programs.runs.create(id=f"after {name}")
        assert {table: raw.count(table) for table in TABLES} == {**before, "run": before["run"] + 1}
        with pytest.raises(error):
            verb(store.programs, execution)
        assert {table: raw.count(table) for table in TABLES} == {**before, "run": before["run"] + 1}

    refuse()
