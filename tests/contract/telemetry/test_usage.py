"""Usage: one row for each second, sums that know what is not known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.telemetry.usage import FIGURES
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.telemetry.scenes import read, t, write

NOTHING = dict.fromkeys(FIGURES)


def sample(store: Any, second: float, me: dict[str, str], **used: int | None) -> dict[str, Any]:
    """Sample -> the row as the verb gave it, which is the row that is there."""
    made = write(store, "usage", "sample", at=t(second), **used, **me)
    total = read(store, "usage", "totals", made.occurred_at, made.occurred_at + timedelta(seconds=1), **me)
    assert total.samples == 1
    figures = {name: getattr(made, name) for name in FIGURES}
    assert figures == {name: getattr(total, name) for name in FIGURES}
    return {name: figure for name, figure in figures.items() if figure is not None}


def test_samples_of_one_second_add_up(store: Any, me: dict[str, str]) -> None:
    """7"""
    assert sample(store, 60, me, token_input=100) == {"token_input": 100}
    assert sample(store, 60.9, me, token_input=50, token_output=7) == {"token_input": 150, "token_output": 7}
    assert sample(store, 60, me, cost_usd_micros=1500) == {"token_input": 150, "token_output": 7, "cost_usd_micros": 1500}
    assert sample(store, 60, me) == {"token_input": 150, "token_output": 7, "cost_usd_micros": 1500}
    assert sample(store, 61, me, token_cache_read=0) == {"token_cache_read": 0}


def test_numbers_beyond_32_bits(store: Any, me: dict[str, str]) -> None:
    """7"""
    sample(store, 1, me, token_input=4_000_000_000, cost_usd_micros=2_147_483_648_000)
    assert sample(store, 1, me, token_input=1) == {"token_input": 4_000_000_001, "cost_usd_micros": 2_147_483_648_000}


def test_a_sum_beyond_64_bits_is_refused_and_nothing_is_lost(store: Any, me: dict[str, str]) -> None:
    sample(store, 1, me, token_input=2**63 - 1)
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.telemetry.usage.sample(at=t(1), token_input=1, **me)
        assert tx.telemetry.usage.sample(at=t(1), token_output=1, **me).token_input == 2**63 - 1


@each("wrong", [{"at": None}, {"at": datetime(2026, 1, 1)}, {"token_input": -1}, {"token_input": 1.5}])
def test_a_sample_needs_an_instant_and_whole_figures(store: Any, me: dict[str, str], wrong: dict[str, Any]) -> None:
    """8"""
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.telemetry.usage.sample(**({"at": t(1)} | wrong), **me)
        with pytest.raises(TypeError):
            tx.telemetry.usage.sample(token_input=1, **me)
    assert read(store, "usage", "totals", **me).samples == 0


def test_totals_of_a_range_include_its_beginning_and_not_its_end(store: Any, me: dict[str, str]) -> None:
    for second in (10, 20, 30):
        sample(store, second, me, token_input=second, cost_usd_micros=1)
    asked = {(10, 30): 30, (10.5, 30): 20, (10, 30.5): 60, (None, 20): 10, (20, None): 50, (None, None): 60, (31, None): None}
    found = {
        bounds: read(store, "usage", "totals", *(None if second is None else t(second) for second in bounds), **me).token_input
        for bounds in asked
    }
    assert found == asked


def test_totals_of_what_nobody_knows(store: Any, me: dict[str, str]) -> None:
    empty = read(store, "usage", "totals", **me)
    assert empty.model_dump() == {"samples": 0, **NOTHING}
    sample(store, 1, me, token_input=5)
    sample(store, 2, me)
    assert read(store, "usage", "totals", **me).model_dump() == {"samples": 2, **NOTHING, "token_input": 5}


def test_today_begins_at_midnight_where_we_are(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    midnight = clock().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None).astimezone(UTC)
    for offset in (-1, 0, 1):
        write(store, "usage", "sample", at=midnight + timedelta(seconds=offset), token_input=1, **me)
    assert read(store, "usage", "today", **me).samples == 2
    assert read(store, "usage", "totals", **me).samples == 3


def test_today_ends_at_the_next_midnight(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    """A clock that was ahead says nothing of today."""
    midnight = clock().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for day, offset in ((0, 0), (1, -1), (1, 0), (366, 0)):
        at = (midnight + timedelta(days=day)).astimezone(UTC) + timedelta(seconds=offset)
        write(store, "usage", "sample", at=at, token_input=1, **me)
    assert read(store, "usage", "today", **me).samples == 2


def test_figures_of_instances_do_not_mix(store: Any) -> None:
    for name in ("a", "b"):
        write(store, "usage", "sample", at=t(1), token_input=1, instance_id=name)
    assert read(store, "usage", "totals", instance_id="a").token_input == 1


def test_a_sum_that_does_not_fit_leaves_the_transaction_usable(store: Any, me: dict[str, str]) -> None:
    most = 2**63 - 1
    with store.begin() as tx:
        tx.telemetry.usage.sample(at=t(1), token_input=most, token_output=1, **me)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as refused:
            tx.telemetry.usage.sample(at=t(1), token_input=1, token_output=1, **me)
        assert refused.value.path == "token_input"
        grown = tx.telemetry.usage.sample(at=t(1), token_input=0, token_output=1, cost_usd_micros=most, **me)
    assert (grown.token_input, grown.token_output, grown.cost_usd_micros) == (most, 2, most)
    totals = read(store, "usage", "totals", **me)
    assert (totals.samples, totals.token_input, totals.token_output, totals.cost_usd_micros) == (1, most, 2, most)
