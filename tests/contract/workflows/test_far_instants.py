"""The first and the last instants that Python knows, on servers in any time zone."""

import io
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.postgres import connections
from persist.errors import InvalidValue
from persist.maintenance import export
from persist.testing import FrozenClock
from tests.contract.workflows.scenes import claim, do, held

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


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in New York."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_zone_of_the_machine_does_not_matter(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", id="r")
            tx.programs.runs.create(id="r")
        with store.read() as tx:
            assert tx.workflows.runs.get("r").started_at == clock()
        written = io.BytesIO()
        export(store, written)
    lines = map(json.loads, written.getvalue().splitlines())
    started = [line["row"]["started_at"] for line in lines if line.get("table") in ("workflow_runs", "run")]
    assert sorted(started) == ["2026-01-02 03:04:05", "2026-01-02T03:04:05.678Z"]


# On a server all leases go by its clock, whatever the clocks of the workers say.


FIVE_MINUTES = timedelta(minutes=5)
TEN_MINUTES_NS = 600_000_000_000


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("off", [TEN_MINUTES_NS, -TEN_MINUTES_NS])
def test_workers_whose_clocks_disagree(open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    store = open_store(clock=None)
    monkeypatch.setattr(connections, "wall_ns", lambda: time.time_ns() + off)
    other = open_store(clock=None)
    lease = held(store, "w1", lease=FIVE_MINUTES)
    assert claim(other, "w2") is None  # nobody takes what is held
    theirs = held(other, "w2", lease=FIVE_MINUTES)
    assert claim(store, "w1") is None
    assert abs(theirs.expires_at - lease.expires_at) < FIVE_MINUTES
    do(store, "complete", lease)
    do(other, "complete", theirs)
