"""The first and the last instants that Python knows, on servers in any time zone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.testing import FrozenClock

LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("at", [LAST, datetime(9999, 12, 31, 18, 30, tzinfo=UTC), FIRST, datetime(1, 1, 1, 1, tzinfo=UTC)])
def test_an_instant_at_the_end_of_time_comes_back(open_store: Callable[..., Any], at: datetime) -> None:
    store = open_store(clock=FrozenClock(at))
    with store.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U")
        tx.programs.runs.create(id="r")
    with store.read() as tx:
        assert tx.workflows.runs.get(run.id) == run
        assert run.started_at == at.replace(microsecond=at.microsecond // 1000 * 1000)
        assert [one.id for one in tx.workflows.runs.list(since=at).items] == [run.id]
        assert tx.messaging.sessions.get(session.id) == session
        assert tx.programs.runs.get("r").started_at == at.replace(microsecond=0)


@pytest.mark.parametrize(
    "at", [LAST.replace(tzinfo=timezone(timedelta(hours=-1))), FIRST.replace(tzinfo=timezone(timedelta(hours=1)))]
)
def test_an_instant_beyond_it_is_refused(store: Any, at: datetime) -> None:
    with store.read() as tx, pytest.raises(InvalidValue):
        tx.workflows.runs.list(since=at)
