"""How often the step store waits for an answer of Postgres."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pydantic_ai_harness.step_persistence import RunRecord

from persist import Store
from persist.integrations.pydantic_ai import PersistStepStore
from tests.integrations.pydantic_ai_harness.conftest import Do
from tests.integrations.pydantic_ai_harness.scenes import effect, event, grown
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (
    Row("register_run", 2),
    Row("get_run", 1),
    Row("list_runs", 1),
    Row("append_event", 2),
    Row("list_events", 1),
    Row("save_snapshot", 2),
    Row("latest_snapshot", 2),
    Row("record_tool_effect", 2),
    Row("get_tool_effect", 1),
    Row("list_unresolved_tool_effects", 1),
)


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        steps, numbers = PersistStepStore(store), count(3)
        methods: dict[str, Callable[[], object]] = {
            "register_run": lambda: do(steps.register_run(RunRecord(run_id=f"r{next(numbers)}"))),
            "get_run": lambda: do(steps.get_run(run_id="r")),
            "list_runs": lambda: do(steps.list_runs()),
            "append_event": lambda: do(steps.append_event(event("r", next(numbers)))),
            "list_events": lambda: do(steps.list_events(run_id="r")),
            "save_snapshot": lambda: do(steps.save_snapshot(grown("r", next(numbers)))),
            "latest_snapshot": lambda: do(steps.latest_snapshot(run_id="r")),
            "record_tool_effect": lambda: do(steps.record_tool_effect(effect("r", next(numbers)))),
            "get_tool_effect": lambda: do(steps.get_tool_effect(run_id="r", tool_call_id="call1")),
            "list_unresolved_tool_effects": lambda: do(steps.list_unresolved_tool_effects(run_id="r")),
        }
        for number in (1, 2):
            do(steps.save_snapshot(grown("r", number)))
            do(steps.append_event(event("r", number)))
            do(steps.record_tool_effect(effect("r", number)))
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
