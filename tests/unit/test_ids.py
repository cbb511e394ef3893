"""Ids: the layout, and that order never depends on the clock's mood. Cursors: what they carry, and what is none."""

import base64
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import RFC_4122, UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.db.concurrency.fork_count import PROCESS
from persist.db.observation import Counters, RecorderTally
from persist.db.values.ids import IdMinter, decode_ms
from persist.db.values.pages import Page, decode_cursor, encode_cursor
from persist.errors import InvalidValue
from persist.testing import FrozenClock
from tests.at_once import together
from tests.cases import each

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAYOUT = re.compile(r"(ses|msg|prt)_[0-9a-f]{14}[0-9A-Za-z]{12}")
PUBLISHED = re.compile(r"^(ses|msg|prt)_[0-9a-f]{12}[0-9A-Za-z]{14}$")


def at(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def test_ten_thousand_ids_in_one_frozen_millisecond() -> None:
    minter = IdMinter(FrozenClock())
    ids = [minter.mint("prt") for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 10_000
    assert {len(id) for id in ids} == {30}
    assert all(LAYOUT.fullmatch(id) and PUBLISHED.match(id) for id in ids)


def test_ten_thousand_uuids_in_one_frozen_millisecond() -> None:
    minter = IdMinter(FrozenClock())
    ids = [minter.mint_uuid() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len({id[:18] for id in ids}) == 10_000  # the stamp alone tells them apart
    assert {(UUID(id).version, UUID(id).variant, str(UUID(id)) == id) for id in ids} == {(7, RFC_4122, True)}


def test_uuids_ascend_with_the_clock_and_when_it_goes_back() -> None:
    clock = FrozenClock(at(1_786_706_395_136))
    minter = IdMinter(clock)
    first = minter.mint_uuid()
    assert int(first.replace("-", "")[:12], 16) == 1_786_706_395_136
    clock.advance(seconds=1)
    second = minter.mint_uuid()
    clock.advance(seconds=-3600)
    assert first < second < minter.mint_uuid()


def test_ids_ascend_where_48_bits_wrap() -> None:
    clock = FrozenClock(at(1_786_706_395_135))
    minter = IdMinter(clock)
    before = minter.mint("msg")
    clock.set(at(1_786_706_395_136))
    after = minter.mint("msg")
    assert before < after
    assert (decode_ms(before), decode_ms(after)) == (1_786_706_395_135, 1_786_706_395_136)


def test_ids_ascend_when_the_clock_goes_back() -> None:
    clock = FrozenClock()
    minter = IdMinter(clock)
    first = minter.mint("msg")
    clock.advance(seconds=-5)
    second = minter.mint("msg")
    clock.advance(seconds=5)
    third = minter.mint("msg")
    assert first < second < third
    assert decode_ms(first) == decode_ms(second)


def test_eight_threads_of_five_thousand() -> None:
    minter = IdMinter(FrozenClock())
    minted: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        mine.extend(minter.mint("ses") for _ in range(5000))

    together([partial(work, mine) for mine in minted])
    assert len({id for mine in minted for id in mine}) == 40_000
    assert all(mine == sorted(mine) for mine in minted)


def test_the_stamp_to_the_last_digit() -> None:
    minter = IdMinter(FrozenClock(at(1_763_650_000_123)))
    ids = minter.mint_many("ses", 8)
    assert ids[0][4:18] == "19aa1bb54fb000"
    assert ids[7][4:18] == "19aa1bb54fb007"
    assert decode_ms(ids[7]) == 1_763_650_000_123


def test_the_counter_overflows_into_the_next_millisecond() -> None:
    ms = 1_763_650_000_123
    ids = IdMinter(FrozenClock(at(ms))).mint_many("prt", 4097)
    assert decode_ms(ids[4095]) == ms
    assert decode_ms(ids[4096]) == ms + 1
    assert ids == sorted(ids)


def test_one_counter_for_all_prefixes() -> None:
    minter = IdMinter(FrozenClock())
    stamps = [minter.mint(prefix)[4:18] for prefix in ("ses", "msg", "prt", "ses")]
    assert stamps == sorted(set(stamps))


def test_an_instant_can_be_given() -> None:
    minter = IdMinter(FrozenClock(at(1000)))
    assert decode_ms(minter.mint("msg", at(5000))) == 5000
    assert decode_ms(minter.mint("msg")) == 5000  # never less than the one before


def test_ids_sort_until_2527() -> None:
    last = IdMinter(FrozenClock(datetime(2527, 6, 1, tzinfo=UTC))).mint("msg")
    assert IdMinter(FrozenClock()).mint("msg") < last
    assert len(last) == 30


def test_entropy_is_drawn_again_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def entropy(count: int) -> bytes:
        drawn.append(count)
        return os.urandom(count)

    minter = IdMinter(FrozenClock(), entropy=entropy)
    minter.mint_many("ses", 3)
    minter.mint_many("ses", 3)
    assert len(drawn) == 1
    monkeypatch.setattr(PROCESS, "forks", PROCESS.forks + 1)
    minter.mint_many("ses", 3)
    assert len(drawn) == 2


@each("source", [b"\xff", b"\x00", bytes(range(256))], ids=["unusable", "zeros", "all bytes"])
def test_any_source_of_entropy_gives_whole_ids(source: bytes) -> None:
    ids = IdMinter(FrozenClock(), entropy=lambda count: (source * count)[:count]).mint_many("msg", 1000)
    assert all(LAYOUT.fullmatch(id) for id in ids)
    assert ids == sorted(set(ids))


def test_every_letter_is_as_likely_as_the_others() -> None:
    """Bytes over 247 are thrown away; taken modulo 62 they would favour the first eight letters."""
    tails = "".join(
        id[18:] for id in IdMinter(FrozenClock(), entropy=lambda count: bytes(range(256)) * (count // 256)).mint_many("m", 330)
    )
    counts = {tails.count(letter) for letter in set(tails)}
    assert len(set(tails)) == 62
    assert max(counts) - min(counts) <= 8


# Numbers that several threads change at once, and recorders that come and go.


def test_nothing_is_lost_between_threads() -> None:
    counters = Counters()

    def count(number: int) -> None:
        for _ in range(500):
            counters.committed(1.0, 2.0)
            counters.transaction_ended("rolled_back", 0.0, 0.0)
            counters.retried("lock")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert (counters.commits, counters.waited, counters.committing) == (2000, 2000.0, 4000.0)
    assert (counters.outcomes["rolled_back"], counters.retries["lock"]) == (2000, 2000)


def test_ended_recorders_are_kept_as_sums_alone() -> None:
    counters = Counters()
    for number in range(100):
        tally = RecorderTally()
        tally.chunks, tally.bytes = 2, 10
        counters.recorder_began(tally)
        counters.recorder_ended(tally)
        if number % 2:
            counters.recorder_ended(tally)  # closed, then collected
    refused, withdrawn, running = RecorderTally(), RecorderTally(), RecorderTally()
    counters.recorder_ended(refused)  # it never began
    counters.recorder_began(withdrawn)
    counters.recorder_withdrawn(withdrawn)
    counters.recorder_began(running)
    running.chunks = 1
    recorders, ended, total = counters.recorders()
    assert (recorders, ended, total.chunks, total.bytes) == (1, 100, 201, 1000)
    assert len(vars(counters)["_recorders"]) == 1
    assert not vars(counters)["_over"]


FILTERS = {"agent": "build", "include_archived": False, "workspace_root": None}
KEY = [1_767_323_045_678, "ses_1"]
KINDS = (int, str)


def cursor() -> str:
    return encode_cursor("chat.sessions", FILTERS, KEY)


def decoded(
    text: str, name: str = "chat.sessions", filters: dict[str, Any] = FILTERS, kinds: tuple[type, ...] = KINDS
) -> list[Any]:
    return decode_cursor(text, name, filters, kinds)


def forged(*content: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([*content])).rstrip(b"=").decode()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_key_comes_back(key: list[Any]) -> None:
    text = encode_cursor("list", {}, key)
    assert decode_cursor(text, "list", {}, tuple(type(part) for part in key)) == key
    assert text.isascii()
    assert not set(text) & set("+/=&? ")


def test_filters_in_another_order_are_the_same_filters() -> None:
    assert decoded(cursor(), filters=dict(reversed(FILTERS.items()))) == KEY


@each("kinds", [(str, str), (int,), (int, str, str), (bool, str), (float, str)])
def test_a_key_of_another_shape(kinds: tuple[type, ...]) -> None:
    with pytest.raises(InvalidValue, match="not a cursor"):
        decoded(cursor(), kinds=kinds)


def test_a_flag_is_no_number() -> None:
    with pytest.raises(InvalidValue, match="not a cursor"):
        decoded(encode_cursor("chat.sessions", FILTERS, [True, "ses_1"]))


@each(
    "text",
    [
        "",
        "x",
        "not a cursor",
        "%%%",
        "é",
        "\x00",
        "\ud83d",
        forged(),
        forged(1, "chat.sessions"),
        forged(2, "chat.sessions", "0", KEY),
        forged(1, "chat.sessions", "0", KEY),
        forged(1, "chat.sessions", None, None),
        base64.urlsafe_b64encode(b"7").decode(),
        base64.urlsafe_b64encode(b'{"a":1,"b":2,"c":3,"d":4}').decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        decoded(text)
    assert caught.value.path == "after"


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        decoded(text)


@given(st.integers(0, len(cursor()) - 1), st.sampled_from("!\n =-_Az09"))
def test_a_changed_cursor_is_refused_or_is_another_key(position: int, letter: str) -> None:
    good = cursor()
    for changed in (good[:position] + letter + good[position:], good[:position] + good[position + 1 :]):
        try:
            key = decoded(changed)
        except InvalidValue:
            continue
        assert key != KEY
        assert [type(part) for part in key] == [int, str]


def test_pages_compare_by_what_they_hold() -> None:
    assert Page([1, 2], "c") == Page([1, 2], "c")
    assert Page([1, 2], "c") != Page([1, 2], None)
    assert Page([1], None) != [1]
    assert repr(Page([1], None)) == "Page(items=[1], cursor=None)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Page([], None))
