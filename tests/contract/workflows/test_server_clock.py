"""On a server all leases go by its clock, whatever the clocks of the workers say."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.db.dialects.postgres import connections
from tests.contract.workflows.scenes import claim, do, held

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
