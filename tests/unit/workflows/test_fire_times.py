"""When cron expressions fire, also where clocks are put forward or back."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.workflows.fire_times import check_schedule, fires_after, missed, next_fire
from tests.cases import each

BERLIN = "Europe/Berlin"


def at(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year, month, day, hour, minute


def fires(cron: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    return list(islice(fires_after(cron, timezone, after), count))


def test_a_time_that_the_clocks_skip_fires_after_the_gap() -> None:
    """On 29 March 2026 clocks in Berlin went from 2:00 to 3:00, which is 1:00 UTC."""
    assert fires("30 2 * * *", BERLIN, at(2026, 3, 28, 12), 2) == [at(2026, 3, 29, 1), at(2026, 3, 30, 0, 30)]
    told = fires("*/30 * * * *", BERLIN, at(2026, 3, 29, 0, 20), 3)
    assert told == [at(2026, 3, 29, 0, 30), at(2026, 3, 29, 1), at(2026, 3, 29, 1, 30)]


def test_a_time_that_comes_twice_fires_once() -> None:
    """On 25 October 2026 clocks in Berlin went from 3:00 back to 2:00, which is 1:00 UTC."""
    first = at(2026, 10, 25, 0, 30)
    assert fires("30 2 * * *", BERLIN, at(2026, 10, 24, 12), 2) == [first, at(2026, 10, 26, 1, 30)]
    assert next_fire("30 2 * * *", BERLIN, first) == at(2026, 10, 26, 1, 30)
    assert fires("0 * * * *", BERLIN, at(2026, 10, 24, 23, 30), 4) == [at(2026, 10, 25, hour) for hour in range(4)]


def test_seconds_change_no_rule() -> None:
    """Six fields fire where five do, in spring, in autumn, and from within the hour that comes twice."""
    assert fires("0 30 2 * * *", BERLIN, at(2026, 3, 28, 12), 2) == [at(2026, 3, 29, 1), at(2026, 3, 30, 0, 30)]
    assert fires("0,15 30 2 * * *", BERLIN, at(2026, 3, 28, 12), 2) == [at(2026, 3, 29, 1), at(2026, 3, 30, 0, 30)]
    assert fires("0 30 2 * * *", BERLIN, at(2026, 10, 24, 12), 2) == [at(2026, 10, 25, 0, 30), at(2026, 10, 26, 1, 30)]


def test_in_the_hour_that_comes_twice_no_fire_is_in_the_past() -> None:
    assert next_fire("30 2 * * *", BERLIN, at(2026, 10, 25, 1, 10)) == at(2026, 10, 26, 1, 30)
    assert next_fire("*/10 2 * * *", "Australia/Lord_Howe", at(2026, 4, 4, 15, 15)) == at(2026, 4, 4, 15, 30), "half an hour"


def test_at_an_end_of_the_calendar_nothing_fires_or_what_is_left_of_it() -> None:
    for zone in (BERLIN, "America/New_York"):
        assert next_fire("30 2 * * *", zone, datetime.max.replace(tzinfo=UTC)) is None
        assert fires("0 12 * * *", zone, datetime.min.replace(tzinfo=UTC), 1)[0].date() == datetime.min.date()


STEP = timedelta(seconds=15)
NEAR = timedelta(hours=3)
ZONES = (
    *("Europe/Berlin", "Europe/Dublin", "Atlantic/Azores", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Jerusalem"),
    *("America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "America/Nuuk", "Pacific/Easter"),
    *("Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Antarctica/Troll"),
)
DAYS_OF_CHANGE = (
    *((zone, datetime(2025, 1, 1, tzinfo=UTC), 365) for zone in ZONES),
    ("Pacific/Apia", at(2011, 12, 1), 31),  # a day was left out
    ("America/Caracas", at(2016, 5, 1), 2),
    ("Europe/Moscow", at(2014, 10, 1), 31),
    ("America/Sao_Paulo", at(2018, 11, 1), 30),
    ("Asia/Pyongyang", at(2018, 5, 1), 30),
)


def changes() -> list[tuple[str, datetime]]:
    """When clocks were put forward or back in those zones, by looking at each day and then at each step of some."""
    found = []
    for zone, begin, days in DAYS_OF_CHANGE:
        offsets = [(begin + timedelta(days=day)).astimezone(ZoneInfo(zone)).utcoffset() for day in range(days + 1)]
        for day in range(days):
            if offsets[day] != offsets[day + 1]:
                dawn, after = begin + timedelta(days=day), offsets[day + 1]
                steps = range(timedelta(days=1) // STEP)
                ahead = bisect_left(
                    steps,
                    True,
                    key=lambda count, dawn=dawn, zone=zone, after=after: (  # type: ignore[misc]  # bound per day
                        (dawn + count * STEP).astimezone(ZoneInfo(zone)).utcoffset() == after
                    ),
                )
                found.append((zone, dawn + ahead * STEP))
    return found


CHANGES = changes()


def walls(instants: list[datetime], zone: str) -> list[datetime]:
    """What the clocks of the zone show at these instants."""
    return [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]


def expected_fires(change: tuple[str, datetime], sets: tuple[set[int], set[int], set[int]], passing: bool) -> list[datetime]:
    """What the promised rules give around a change of clocks, by looking at every step of time."""
    zone, moment = change
    instants = [moment + count * STEP for count in range(-2 * NEAR // STEP, 2 * NEAR // STEP)]
    shown = walls(instants, zone)
    if passing:
        return [now for now, wall in zip(instants, shown, strict=True) if _matches(wall, sets)]
    first, last = min(shown), max(shown)
    times = (first + count * STEP for count in range((last - first) // STEP + 1))
    reached = {}  # what the clocks show first at or after each of these times
    highest = datetime.min
    for now, wall in zip(instants, shown, strict=True):
        if wall > highest:
            reached[wall] = now
            highest = wall
    known = sorted(reached)
    return sorted({reached[known[bisect_left(known, time)]] for time in times if _matches(time, sets)})


def _matches(wall: datetime, sets: tuple[set[int], set[int], set[int]]) -> bool:
    seconds, minutes, hours = sets
    return wall.second in seconds and wall.minute in minutes and wall.hour in hours


def test_there_are_changes_of_every_kind() -> None:
    """An hour, half an hour, two hours and a day, forward and back, at midnight and at a quarter to three."""
    assert len(CHANGES) >= 36
    by = {abs(int((walls([at], zone)[0] - walls([at - STEP], zone)[0] - STEP).total_seconds())) for zone, at in CHANGES}
    assert by >= {1800, 3600, 7200, 86400}


@given(
    change=st.sampled_from(CHANGES),
    seconds=st.sampled_from([None, {0}, {15, 45}, {0, 15, 30, 45}]),
    minutes=st.sampled_from(["*", "*/20", "*/30", {0}, {30}, {15, 45}, {0, 10, 50}]),
    hours=st.sampled_from(["*", "*/2", {-1}, {0}, {1}, {-2, 0, 2}, {-1, 0, 1}]),
    start=st.integers(-NEAR // STEP, NEAR // STEP),
    more=st.sampled_from([timedelta(), timedelta(milliseconds=1), timedelta(seconds=7)]),
)
@settings(max_examples=200)
def test_beside_every_change_of_clocks_the_rules_hold(
    change: tuple[str, datetime],
    seconds: set[int] | None,
    minutes: str | set[int],
    hours: str | set[int],
    start: int,
    more: timedelta,
) -> None:
    """Wherever one begins to ask: in a repeated hour, at its first or second time, or right before and after a gap."""
    zone, moment = change
    hour = walls([moment], zone)[0].hour
    hourly = {(hour + one) % 24 for one in hours} if isinstance(hours, set) else set(range(0, 24, 2 if "/" in hours else 1))
    minutely = minutes if isinstance(minutes, set) else set(range(0, 60, int(minutes[2:] or 1)))
    cron = f"{_field(minutes)} {hours if isinstance(hours, str) else _field(hourly)} * * *"
    if seconds is not None:
        cron = f"{_field(seconds)} {cron}"
    passing = isinstance(minutes, str) or isinstance(hours, str)
    after, end = moment + start * STEP + more, moment + 2 * NEAR - STEP
    expected = [fire for fire in expected_fires(change, (seconds or {0}, minutely, hourly), passing) if fire > after]
    assert list(takewhile(lambda fire: fire <= end, fires_after(cron, zone, after))) == expected, (cron, zone, after)


def _field(values: str | set[int]) -> str:
    return values if isinstance(values, str) else ",".join(map(str, sorted(values)))


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


@each(
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


GOOD = (
    "* * * * *",
    "0 9 * * 1-5",
    "*/5 0-23/2 1,15 jan-jun mon,wed,FRI",
    "30 0 9 * * *",
    "0 0 L * ?",
    "0 0 LW * *",
    "0 0 15W * *",
    "0 0 * * 5L",
    "0 0 * * fri#2",
    "0 0 * * 7",
    "  0   9 * * *  ",
    "@daily",
    "@Hourly",
)
BAD = {
    "": "no cron expression",
    "not a cron": "no cron expression",
    "* * * *": "no cron expression",
    "* * * * * * *": "no cron expression",
    "@never": "no cron expression",
    "60 * * * *": "minute",
    "* 24 * * *": "hour",
    "* * 0 * *": "day of month",
    "* * 32 * *": "day of month",
    "* * * 13 *": "month",
    "* * * foo *": "month",
    "* * * * 8": "day of week",
    "* * * * day": "day of week",
    "*/0 * * * *": "step",
    "*/60 * * * *": "step",
    "*/ * * * *": "step",
    "1-2-3 * * * *": "minute",
    "5-1 * * * *": "ends before",
    "1,,2 * * * *": "minute",
    "-1 * * * *": "minute",
    "\u0661 * * * *": "minute",
    "60 * * * * *": "second",
}


@each("schedule", GOOD)
def test_what_a_cron_reads_is_kept(schedule: str) -> None:
    assert check_schedule("schedule", schedule) == schedule


@each("schedule", BAD)
def test_what_no_cron_reads_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidValue, match=BAD[schedule]) as caught:
        check_schedule("schedule", schedule)
    assert caught.value.path == "schedule"
