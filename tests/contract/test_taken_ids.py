"""An id that is taken is refused before anything is written, so that the transaction goes on (decision: ON CONFLICT)."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Conflict
from tests.cases import each


def _run(tx: Any, id: str) -> object:
    return tx.workflows.runs.create("build", trigger_id="t", current_phase="p", id=id)


def _execution(tx: Any, id: str) -> object:
    return tx.workflows.executions.start(trigger_type="cli", trigger_id="t", skill="build:plan", id=id)


def _approval(tx: Any, id: str) -> object:
    run = tx.workflows.runs.create("build", trigger_id="t", current_phase="p")
    return tx.workflows.approvals.request(run.id, gate="g", summary="s", id=id)


def _session(tx: Any, id: str) -> object:
    return tx.chat.sessions.create(agent="agent", model={"providerID": "p", "modelID": "m"}, id=id)


@each("create", [_run, _execution, _approval, _session], ids=lambda verb: verb.__name__)
def test_a_taken_id_is_refused_and_the_transaction_goes_on(store: Any, create: Callable[[Any, str], object]) -> None:
    with store.begin() as tx:
        create(tx, "mine")
    with store.begin() as tx:
        before = tx.workflows.runs.create("before", trigger_id="t", current_phase="p")
        with pytest.raises(Conflict) as caught:
            create(tx, "mine")
        assert "'mine' is taken" in str(caught.value)
        assert (caught.value.constraint or "").startswith("pk_")
        after = tx.workflows.runs.create("after", trigger_id="t", current_phase="p")
    with store.read() as tx:
        assert [tx.workflows.runs.get(run.id).workflow_name for run in (before, after)] == ["before", "after"]
