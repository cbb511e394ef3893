"""What is stored stands in no error of the step store, nor in those that one comes from."""

import json
from collections.abc import Callable

import pytest

from persist.errors import StoreCorrupt
from persist.integrations.pydantic_ai import PersistStepStore
from tests.integrations.pydantic_ai_harness.conftest import Do
from tests.integrations.pydantic_ai_harness.scenes import grown
from tests.integrations.telling import SECRET, require_silence


def test_a_snapshot_that_cannot_be_read_is_not_told(steps: PersistStepStore, do: Do, execute: Callable[[str], int]) -> None:
    do(steps.save_snapshot(grown("r", 2)))
    bad = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": {"a": SECRET}, "timestamp": SECRET}]}
    assert execute(f"UPDATE history_entries SET message_json = '{json.dumps(bad)}'")
    with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
        do(steps.latest_snapshot(run_id="r"))
    require_silence(caught)
