"""When a parallel block is over: the table of strategies, and what holds for every block."""

import logging
from itertools import product

import pytest

from persist.errors import InvalidValue
from persist.programs import Joined, join
from tests.cases import each

STATES = {"c": "completed", "f": "failed", "s": "skipped", "e": "executing", "p": "pending"}


def states(letters: str) -> dict[str, str]:
    """Branches a, b, … in the states of the letters."""
    return {chr(ord("a") + number): STATES[letter] for number, letter in enumerate(letters)}


def outcome(strategy: str, count: int | None, on_fail: str, letters: str) -> str:
    """The outcome, and the branches to cancel."""
    joined = join(strategy, count, on_fail, states(letters))
    return " ".join([joined.outcome, *joined.cancel])


@each(
    ("strategy", "count", "letters", "fail_fast", "on_continue", "ignore"),
    [
        ("all", None, "ccc", "success", "success", "success"),
        ("all", None, "ccs", "success", "success", "success"),
        ("all", None, "cce", "wait", "wait", "wait"),
        ("all", None, "ccf", "failure", "failure", "success"),
        ("all", None, "cfe", "failure c", "wait", "wait"),
        ("all", None, "fep", "failure b c", "wait", "wait"),
        ("all", None, "fff", "failure", "failure", "success"),
        ("all", None, "", "success", "success", "success"),
        ("first", None, "eee", "wait", "wait", "wait"),
        ("first", None, "cep", "success b c", "success b c", "success b c"),
        ("first", None, "fee", "failure b c", "wait", "wait"),
        ("first", None, "fce", "success c", "success c", "success c"),
        ("first", None, "see", "wait", "wait", "wait"),
        ("first", None, "ffs", "failure", "failure", "success"),
        ("first", None, "sss", "failure", "failure", "success"),
        ("any", 1, "fee", "wait", "wait", "wait"),
        ("any", None, "fce", "success c", "success c", "success c"),
        ("any", 2, "ccf", "success", "success", "success"),
        ("any", 2, "cfe", "wait", "wait", "wait"),
        ("any", 2, "cce", "success c", "success c", "success c"),
        ("any", 2, "ffe", "failure c", "wait", "wait"),
        ("any", 2, "sse", "failure c", "wait", "wait"),
        ("any", 2, "cff", "failure", "failure", "success"),
        ("any", 3, "fee", "failure b c", "wait", "wait"),
        ("any", 5, "cc", "success", "success", "success"),
        ("any", 5, "ce", "wait", "wait", "wait"),
    ],
)
def test_the_table(strategy: str, count: int | None, letters: str, fail_fast: str, on_continue: str, ignore: str) -> None:
    """21"""
    found = [outcome(strategy, count, mode, letters) for mode in ("fail-fast", "continue", "ignore")]
    assert found == [fail_fast, on_continue, ignore]


def test_failed_branches_are_named_in_their_order() -> None:
    """21"""
    assert join("all", None, "continue", states("cffc")) == Joined("failure", [], ["b", "c"])
    assert join("all", None, "ignore", states("ccf")) == Joined("success", [], ["c"])
    assert join("any", 2, "fail-fast", states("ccf")) == Joined("success", [], ["c"])


def test_what_is_not_said_is_all_and_fail_fast() -> None:
    for letters in ("cc", "cf", "ef", "ce"):
        assert join(None, None, None, states(letters)) == join("all", None, "fail-fast", states(letters))


def test_words_of_raw_writers_are_waited_for() -> None:
    assert join("all", None, "continue", {"a": "completed", "b": "joined"}).outcome == "wait"


@each(
    ("strategy", "count", "on_fail"),
    [("maximum", None, None), ("all", 2, None), ("first", 1, None), ("any", 0, None), ("any", True, None), ("all", None, "stop")],
)
def test_other_words_are_refused(strategy: str, count: int | None, on_fail: str | None) -> None:
    with pytest.raises(InvalidValue):
        join(strategy, count, on_fail, states("ce"))


def test_a_count_over_the_branches_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="persist"):
        join("any", 2, None, states("ce"))
        assert caplog.text == ""
        join("any", 3, None, states("ce"))
    assert "3" in caplog.text


EVERY = [("all", None), ("first", None), ("any", 1), ("any", 2), ("any", 3)]


@each(("strategy", "count"), EVERY)
@each("on_fail", ["fail-fast", "continue", "ignore"])
def test_every_block_comes_to_one_end(strategy: str, count: int | None, on_fail: str) -> None:
    """Settled blocks never wait; a block that is over stays over, the same way, while cancelled branches become skipped."""
    for letters in map("".join, product("cfse", repeat=3)):
        joined = join(strategy, count, on_fail, states(letters))
        waiting = [name for name, state in states(letters).items() if state == "executing"]
        assert joined.failed == [name for name, state in states(letters).items() if state == "failed"]
        if joined.outcome == "wait":
            assert waiting
            assert joined.cancel == []
        else:
            assert joined.cancel == waiting
            cancelled = states(letters.replace("e", "s"))
            if not (on_fail == "ignore" or strategy == "all"):
                assert join(strategy, count, on_fail, cancelled).outcome == joined.outcome
        if on_fail == "ignore":
            assert joined.outcome != "failure"
