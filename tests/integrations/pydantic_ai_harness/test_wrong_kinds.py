"""Arguments of a wrong kind are refused by the framework's error."""

from typing import Any

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai_harness.step_persistence import RunRecord

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import InvalidInput, PersistStepStore
from tests.integrations.pydantic_ai_harness.conftest import Do
from tests.integrations.pydantic_ai_harness.scenes import AT, effect, event, grown
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors


def test_arguments_of_a_step_store(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    steps = PersistStepStore(store)
    do(steps.save_snapshot(grown("r", 1)))
    valid: dict[str, dict[str, Any]] = {
        "register_run": {"record": RunRecord(run_id="q", started_at=AT)},
        "get_run": {"run_id": "r"},
        "list_runs": {"parent_run_id": "p", "conversation_id": "c"},
        "append_event": {"event": event("r", 1)},
        "list_events": {"run_id": "r"},
        "save_snapshot": {"snapshot": grown("r", 2)},
        "latest_snapshot": {"run_id": "r", "include_interrupted": True},
        "list_snapshots": {"run_id": "r", "include_interrupted": True},
        "record_tool_effect": {"record": effect("r", 1)},
        "get_tool_effect": {"run_id": "r", "tool_call_id": "t"},
        "list_unresolved_tool_effects": {"run_id": "r"},
    }
    require_typed_errors(lambda: steps, valid, do=do, database_url=database_url, error=UserError)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a Store or an AsyncStore"):
        PersistStepStore(wrong)
