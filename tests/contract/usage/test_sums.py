"""Sums of calls: equal to what adding up all calls gives, however they come."""

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue
from persist.settings import Settings
from persist.usage.writing import SUMS
from tests.cases import each
from tests.contract.usage.scenes import BOX, NOON, record, sums

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIGURES = ("token_input", "token_output", "cost_usd_micros")
SPANS = {"by_day": DAY, "by_hour": HOUR}

calls = st.fixed_dictionaries(
    {
        # clocks that jump: back and forth over midnight, and years
        "at": st.sampled_from(
            [NOON, NOON + HOUR, NOON + 13 * HOUR, NOON - DAY, NOON + 1000 * DAY, NOON + timedelta(microseconds=1)]
        ),
        "model": st.sampled_from(["large", "small"]),
        "owner": st.sampled_from(["maria", "tom", None]),
        "scope": st.sampled_from([BOX, {"session_id": "ses"}]),
        "key": st.sampled_from([None, None, "a", "b", "c"]),
        "error": st.sampled_from([None, "503"]),
        **{name: st.none() | st.integers(0, 2**53) for name in FIGURES},
    }
)


def expected(written: list[dict[str, Any]], length: timedelta | None, group: str | None) -> dict[tuple[Any, Any], Counter[str]]:
    """The sums of calls by the beginning of their hour or day and their group, added up one by one."""
    found: dict[tuple[Any, Any], Counter[str]] = defaultdict(Counter)
    for call in written:
        at = call["at"].replace(minute=0, second=0, microsecond=0)
        start = None if length is None else at.replace(hour=0) if length == DAY else at
        one = found[start, None if group is None else call[group] or ""]
        one.update({name: call[name] or 0 for name in FIGURES})
        one.update(calls=1, errors=call["error"] is not None, unpriced=call["cost_usd_micros"] is None)
    return found


@given(st.lists(calls, max_size=12))
def test_sums_equal_those_of_all_calls(told: list[dict[str, Any]]) -> None:
    """A window of two calls is trimmed all the while; what comes again within it is counted once."""
    with Store.open("sqlite:///:memory:", settings=Settings(usage_calls_keep=2, usage_calls_trim_every=1)) as store:
        written, windows = [], {"instance_id": [], "session_id": []}  # type: ignore[var-annotated]  # lists of keys
        for call in told:
            of = next(iter(call["scope"]))
            fresh = call["key"] is None or call["key"] not in windows[of]
            assert record(store, **{name: value for name, value in call.items() if name != "scope"}, **call["scope"]) is fresh
            if fresh:
                written.append(call)
                windows[of] = [*windows[of], call["key"]][-2:]
        for verb, group in ((verb, group) for verb in SPANS for group in (None, "model", "owner")):
            seen = {
                (one.starts_at, one.group): {name: getattr(one, name) for name in SUMS} for one in sums(store, verb, group=group)
            }
            known = expected(written, SPANS[verb], group)
            assert seen == {key: {name: counted[name] for name in SUMS} for key, counted in known.items()}
        by_owner = {(None, one.group): one.cost_usd_micros for one in sums(store, "by_group", "owner")}
        assert by_owner == {key: counted["cost_usd_micros"] for key, counted in expected(written, None, "owner").items()}


def test_ranges_filters_and_pages(store: Any) -> None:
    for hours, owner, cost in ((0, "maria", 5), (1, "tom", 7), (25, "maria", 9), (26, None, 9)):
        record(store, cost, at=NOON + hours * HOUR, owner=owner, model="large" if owner else "small")

    def costs(verb: str, *args: Any, **given: Any) -> list[int]:
        return [one.cost_usd_micros for one in sums(store, verb, *args, **given)]

    assert costs("by_day") == [18, 12]
    assert costs("by_day", NOON + 13 * HOUR) == [18]
    assert costs("by_day", until=NOON + 12 * HOUR) == [12]
    assert costs("by_day", owner="maria") == [9, 5]
    assert costs("by_day", owner="") == [9]
    assert costs("by_hour", NOON + HOUR, NOON + 26 * HOUR) == [9, 7]
    assert costs("by_model", NOON, NOON + 2 * HOUR) == [12]
    assert [one.group for one in sums(store, "by_group", "owner")] == ["maria", "", "tom"]
    assert costs("by_model", owner="tom", scope="instance:box") == [7]
    with store.read() as tx:
        for verb, args, group in (("by_day", (), "owner"), ("by_group", ("owner",), None)):
            more = {} if group is None else {"group": group}
            whole = getattr(tx.usage, verb)(*args, **more).items
            pages, after = [], None
            while True:
                page = getattr(tx.usage, verb)(*args, **more, limit=1, after=after)
                pages += page.items
                after = page.cursor
                if after is None:
                    break
            assert pages == whole


def test_the_last_day_of_the_calendar_has_a_sum(store: Any) -> None:
    record(store, 1, at=datetime.max.replace(tzinfo=UTC))
    assert [one.calls for verb in ("by_hour", "by_day", "by_model") for one in sums(store, verb)] == [1, 1, 1]


def test_a_sum_stops_at_what_64_bits_hold(store: Any) -> None:
    """A thousand absurd calls neither fail nor wrap."""
    with store.begin() as tx:
        for _ in range(1025):
            tx.usage.calls.record(model="large", at=NOON, token_input=2**53, **BOX)
    assert [one.token_input for one in sums(store, "by_day")] == [2**63 - 1]


@each(
    ("path", "given"),
    [
        ("group", {"group": "town"}),
        ("owner", {"owner": 7}),
        ("since", {"since": NOON.replace(tzinfo=None)}),
        ("limit", {"limit": 0}),
        ("after", {"after": "x"}),
    ],
)
def test_bad_questions_are_refused(store: Any, path: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        sums(store, "by_day", **given)
    assert refused.value.path == path
