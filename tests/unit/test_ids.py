"""Ids: the layout, and that order never depends on the clock's mood."""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest

from persist.db.concurrency.fork_count import PROCESS
from persist.db.observation import Counters, RecorderTally
from persist.db.values.clock import IdMinter, decode_ms
from persist.testing import FrozenClock
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
    start = threading.Barrier(8)

    def work(mine: list[str]) -> None:
        start.wait()
        mine.extend(minter.mint("ses") for _ in range(5000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in minted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
