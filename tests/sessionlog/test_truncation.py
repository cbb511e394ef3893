"""The cap on tool results: 65,536 UTF-16 units of what is written, and nothing else is ever cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.sessionlog import truncate_tool_result
from tests.cases import each
from tests.sessionlog.scenes import call, contents, event, lines, message, text, writer

LIMIT = 65_536


def marker(dropped: int) -> str:
    return f"\n…[truncated {dropped} chars]"


@each(
    "whole",
    ["", "a" * LIMIT, "é" * 40_000, "é" * LIMIT, "😀" * (LIMIT // 2), "a" * (LIMIT - 2) + "😀", "\ud83d" * LIMIT],
    ids=["empty", "ascii", "40000 accents", "accents", "emoji", "emoji at the end", "halves"],
)
def test_up_to_the_limit_nothing_changes(whole: str) -> None:
    assert truncate_tool_result(whole) == whole


@each(
    ("whole", "kept", "dropped"),
    [
        ("a" * (LIMIT + 1), "a" * LIMIT, 1),
        ("é" * (LIMIT + 7), "é" * LIMIT, 7),
        ("😀" * 40_000, "😀" * 32_768, 80_000 - LIMIT),
        ("a" * (LIMIT - 1) + "😀", "a" * (LIMIT - 1), 2),
        ("a" + "😀" * 40_000, "a" + "😀" * 32_767, 80_001 - LIMIT + 1),
        ("a" * (LIMIT - 1) + "\ud83d\ude00", "a" * (LIMIT - 1), 2),
        ("a" * (LIMIT - 1) + "\ud83dz", "a" * (LIMIT - 1) + "\ud83d", 1),
        ("a" * LIMIT + "\ude00", "a" * LIMIT, 1),
    ],
    ids=["ascii", "accents", "emoji", "a split emoji", "emoji, shifted", "split halves", "a lone half stays", "a half too many"],
)
def test_over_the_limit_the_marker_counts_what_is_left_out(whole: str, kept: str, dropped: int) -> None:
    assert truncate_tool_result(whole) == kept + marker(dropped)


@given(st.lists(st.sampled_from(["a", "é", "😀", "\ud83d", "\ude00"]), max_size=12).map("".join), st.integers(1, 12))
def test_the_cut_is_the_longest_that_splits_no_character(whole: str, limit: int) -> None:
    def units(part: str) -> int:
        return len(part.encode("utf-16-le", "surrogatepass")) // 2

    cut = truncate_tool_result(whole, limit)
    if units(whole) <= limit:
        assert cut == whole
        return
    kept, _, said = cut.rpartition("\n…[truncated ")
    assert said == f"{units(whole) - units(kept)} chars]"
    joined = whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert joined.startswith(kept)
    assert limit - 1 <= units(kept) <= limit


@each("limit", [0, -1])
def test_a_limit_is_above_zero(limit: int) -> None:
    with pytest.raises(InvalidValue, match="limit"):
        truncate_tool_result("a", limit)


def test_results_are_cut_after_they_became_text(home: Path) -> None:
    result = ["x" * LIMIT]
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", result=result)])
    assert contents(home)[1][0]["content"] == '["' + "x" * (LIMIT - 2) + marker(4)


def test_errors_of_tools_are_cut_too(home: Path) -> None:
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", error="x" * (LIMIT + 1), isError=True)])
    assert contents(home)[1][0]["content"] == "x" * LIMIT + marker(1)


def test_text_prompts_arguments_and_errors_are_never_cut(home: Path) -> None:
    long = "😀" * 100_000
    log = writer(home, initial_prompt=long, keep_thinking=True)
    log.feed(text(long))
    log.feed(message({"type": "thinking", "thinking": long}))
    log.feed(call(arguments={"content": long}))
    log.finalize(result=long)
    *messages, result = lines(home)
    prompt, said, thought, called = (line["message"]["content"] for line in messages)
    assert prompt == long
    assert said[0]["text"] == long
    assert thought[0]["thinking"] == long
    assert called[0]["input"] == {"content": long}
    assert result["result"] == long
