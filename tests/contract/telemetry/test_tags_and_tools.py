"""What agents say they work on, and the audit of their tool calls."""

from datetime import datetime
from typing import Any

import pytest

from persist.errors import InvalidValue, PayloadTooLarge
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.telemetry.scenes import read, t, write

# ---------------------------------------------------------------- tags


def test_a_tag_said_again_is_one_tag(store: Any, me: dict[str, str]) -> None:
    """9"""
    seen = []
    for second in (100, 150, 120, 95):
        tag = write(store, "tags", "record", "issue", "https://github.com/a/b/issues/1", at=t(second), **me)
        seen.append((tag.first_seen, tag.last_seen))
    assert seen == [(t(100), t(100)), (t(100), t(150)), (t(100), t(150)), (t(95), t(150))]
    assert [(tag.first_seen, tag.last_seen) for tag in read(store, "tags", "list", **me)] == [(t(95), t(150))]


def test_tags_are_told_apart_by_kind_and_value(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    for kind, value in (("repo", "b"), ("link", "a"), ("repo", "a"), ("pr", "Ä")):
        write(store, "tags", "record", kind, value, **me)
    found = read(store, "tags", "list", **me)
    assert [(tag.kind, tag.value) for tag in found] == [("link", "a"), ("pr", "Ä"), ("repo", "a"), ("repo", "b")]
    assert {tag.first_seen for tag in found} == {clock().replace(microsecond=0)}
    assert [tag.value for tag in read(store, "tags", "list", kind="repo", **me)] == ["a", "b"]
    assert read(store, "tags", "list", kind="issue", **me) == []


def test_tags_that_are_none_are_refused(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx:
        for kind, value in (("status", "x"), ("repo", ""), ("repo", "\x00"), ("repo", None)):
            with pytest.raises(InvalidValue):
                tx.telemetry.tags.record(kind, value, **me)
        with pytest.raises(PayloadTooLarge):
            tx.telemetry.tags.record("link", "ä" * 2048 + "x", **me)
        tx.telemetry.tags.record("link", "ä" * 2048, **me)
        with pytest.raises(InvalidValue):
            tx.telemetry.tags.list(kind="status", **me)


# ---------------------------------------------------------------- tools


def called(store: Any, me: dict[str, str]) -> list[Any]:
    calls = [("bash", 0), ("edit", None), ("bash", 1), ("edit", -9), ("bash", 0)]
    return [
        write(store, "tools", "record", key, exit_code=code, duration_ms=index, at=t(50 - index), **me)
        for index, (key, code) in enumerate(calls)
    ]


def test_the_last_calls_are_the_newest_first(store: Any, me: dict[str, str]) -> None:
    made = called(store, me)
    assert read(store, "tools", "last", **me) == made[::-1]
    assert read(store, "tools", "last", 2, **me) == made[:-3:-1]


def test_calls_of_one_tool_and_failures(store: Any, me: dict[str, str]) -> None:
    made = called(store, me)
    assert read(store, "tools", "last", tool_key="edit", **me) == [made[3], made[1]]
    assert read(store, "tools", "last", failures_only=True, **me) == [made[3], made[2]]
    assert read(store, "tools", "last", tool_key="bash", failures_only=True, **me) == [made[2]]
    assert read(store, "tools", "last", tool_key="other", **me) == []


def test_a_call_of_which_little_is_known(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    call = write(store, "tools", "record", "bash", **me)
    assert (call.exit_code, call.duration_ms, call.occurred_at) == (None, None, clock().replace(microsecond=0))


@each("wrong", [{"tool_key": ""}, {"exit_code": True}, {"exit_code": 2**63}, {"duration_ms": -1}, {"at": datetime(2026, 1, 1)}])
def test_calls_that_are_none_are_refused(store: Any, me: dict[str, str], wrong: dict[str, Any]) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.telemetry.tools.record(**({"tool_key": "bash"} | wrong), **me)
        with pytest.raises(InvalidValue):
            tx.telemetry.tools.last(0, **me)
        assert tx.telemetry.tools.last(**me) == []


def test_older_calls_are_reached_page_by_page(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx:
        for number in range(7):
            tx.telemetry.tools.record("read", exit_code=number % 2, **me)
        everything = tx.telemetry.tools.last(**me)
        found: list[Any] = []
        while page := tx.telemetry.tools.last(3, before=found[-1].id if found else None, **me):
            found += page
        assert found == everything
        failed = tx.telemetry.tools.last(failures_only=True, before=everything[1].id, **me)
    assert failed == [call for call in everything[2:] if call.exit_code]
