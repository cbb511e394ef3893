"""When cron expressions fire, also where clocks are put forward or back."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.workflows.fire_times import fires_after, missed, next_fire

BERLIN = "Europe/Berlin"


def at(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year, month, day, hour, minute


def fires(cron: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    return list(islice(fires_after(cron, timezone, after), count))


def test_a_time_that_the_clocks_skip_fires_after_the_gap() -> None:
    """On 29 March 2026 clocks in Berlin went from 2:00 to 3:00, which is 1:00 UTC."""
    assert fires("30 2 * * *", BERLIN, at(2026, 3, 28, 12), 2) == [at(2026, 3, 29, 1), at(2026, 3, 30, 0, 30)]
    assert fires("*/30 * * * *", BERLIN, at(2026, 3, 29, 0, 20), 3) == [
        at(2026, 3, 29, 0, 30),
        at(2026, 3, 29, 1),
        at(2026, 3, 29, 1, 30),
    ]


def test_a_time_that_comes_twice_fires_once() -> None:
    """On 25 October 2026 clocks in Berlin went from 3:00 back to 2:00, which is 1:00 UTC."""
    first = at(2026, 10, 25, 0, 30)
    assert fires("30 2 * * *", BERLIN, at(2026, 10, 24, 12), 2) == [first, at(2026, 10, 26, 1, 30)]
    assert next_fire("30 2 * * *", BERLIN, first) == at(2026, 10, 26, 1, 30)
    assert fires("0 * * * *", BERLIN, at(2026, 10, 24, 23, 30), 4) == [at(2026, 10, 25, hour) for hour in range(4)]


@given(
    cron=st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 3 * * sun", "15 1,2,3 * * *", "0 0 L * *", "@hourly", "7 */5 ? * *"]),
    zone=st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    start=st.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 30)).map(lambda when: when.replace(tzinfo=UTC)),
)
def test_going_on_from_a_fire_gives_the_following_one(cron: str, zone: str, start: datetime) -> None:
    expected, after = fires(cron, zone, start, 12), start
    assert expected == sorted(set(expected))
    for fire in expected:
        following = next_fire(cron, zone, after)
        assert following == fire
        after = fire


def test_what_was_missed_ends_with_now() -> None:
    first, hour = at(2026, 1, 1, 1), timedelta(hours=1)
    assert missed("@hourly", "UTC", first, first, 10) == ([first], first + hour)
    assert missed("@hourly", "UTC", first, first + 2 * hour, 10) == ([first, first + hour, first + 2 * hour], first + 3 * hour)
    assert missed("@hourly", "UTC", first, first + 9 * hour, 2) == ([first, first + hour], first + 2 * hour)


@pytest.mark.parametrize(
    ("cron", "timezone", "path"),
    [
        ("* * * * *", "Europe/Atlantis", "timezone"),
        ("* * * * *", "../etc", "timezone"),
        ("0 0 31 2 *", "UTC", "cron"),
        ("@reboot", "UTC", "cron"),
        ("0 0 15W * *", "UTC", "cron"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(cron: str, timezone: str, path: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        next_fire(cron, timezone, at(2026, 1, 1))
    assert refused.value.path == path


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(InvalidValue, match=r"agent-persist\[schedules\]"):
        next_fire("* * * * *", "UTC", at(2026, 1, 1))
