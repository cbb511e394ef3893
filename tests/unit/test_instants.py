"""Instants in columns: cut to what the column keeps, alike on both databases, whatever the session's zone."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import select

from tests.cases import each
from tests.unit.laboratory import INSTANTS, Laboratory, specimens

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=11))])
instants = st.datetimes(datetime(1900, 1, 2), datetime(2199, 12, 30), timezones=ZONES)  # Hypothesis adds the zone


def cut(value: datetime, unit: timedelta) -> datetime:
    return EPOCH + (value - EPOCH) // unit * unit


@each("name", INSTANTS)
def test_instants_are_cut_to_their_column(laboratory: Laboratory, name: str) -> None:
    @given(instants)
    @example(datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC))
    @example(datetime(2026, 1, 2, 3, 4, 5, 678_500, tzinfo=timezone(timedelta(hours=5, minutes=30))))
    @example(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC))
    @example(EPOCH)
    @example(datetime(2107, 1, 1, microsecond=69, tzinfo=UTC))
    def check(value: datetime) -> None:
        backs = laboratory.round_trips(name, value)
        assert backs == [cut(value, INSTANTS[name])] * 6
        assert {back.tzinfo for back in backs} == {UTC}

    check()


@each("year", [1, 999, 1969, 9998])
def test_far_years(laboratory: Laboratory, year: int) -> None:
    value = datetime(year, 6, 7, 8, 9, 10, 123_000, tzinfo=UTC)
    assert laboratory.round_trips("iso", value) == [value] * 6
    assert laboratory.round_trips("ms", value) == [value] * 6


def test_instants_are_stored_in_their_published_form(laboratory: Laboratory, backend: str) -> None:
    value = datetime(2026, 1, 2, 8, 34, 5, 678_999, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    laboratory.put(1, prepared=True, **dict.fromkeys(INSTANTS, value))
    assert laboratory.stored("ms") == 1_767_323_045_678
    assert laboratory.stored("s") == 1_767_323_045
    assert laboratory.stored("real") == 1_767_323_045.678999
    iso = "to_char(iso AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')" if backend == "postgres" else "iso"
    assert laboratory.stored(iso) == ("2026-01-02T03:04:05.678000Z" if backend == "postgres" else "2026-01-02T03:04:05.678Z")


def test_instants_compare_in_the_database(laboratory: Laboratory) -> None:
    early = datetime(2026, 1, 2, 3, 4, 5, 1000, tzinfo=timezone(timedelta(hours=9)))
    late = datetime(2026, 1, 2, 3, 4, 5, 0, tzinfo=UTC)
    laboratory.put(1, prepared=False, **dict.fromkeys(INSTANTS, late))
    laboratory.put(2, prepared=False, **dict.fromkeys(INSTANTS, early))
    for name in INSTANTS:
        column = specimens.c[name]
        assert laboratory.connection.execute(select(specimens.c.id).order_by(column)).scalars().all() == [2, 1]
        assert laboratory.connection.execute(select(specimens.c.id).where(column < late)).scalars().all() == [2]


STRANGERS: list[Any] = [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1_767_323_045]


@each("value", STRANGERS, ids=["naive", "text", "number"])
@each("prepared", [False, True], ids=["core", "prepared"])
def test_what_is_no_instant_is_refused(laboratory: Laboratory, value: Any, prepared: bool) -> None:
    for name in INSTANTS:
        assert laboratory.refusal(name, value, prepared=prepared).path == "instant"
