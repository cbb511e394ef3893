"""When growing text is folded: by size as rarely as its length allows, by the clock once nothing more comes."""

import pytest

from persist.chat.recording.draft import Unfolded
from persist.chat.reducer.parts import LONG, PartState
from persist.db.values.json import JsonFrame
from persist.settings import Settings

SETTINGS = Settings()
FOLD = SETTINGS.fold_ms / 1000
PIECE = 20


class Time:
    """Monotonic seconds that a test counts."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr("persist.chat.recording.draft.time", fake)
    return fake


def part_of(base: int) -> PartState:
    """A stored part of so many bytes; a long one is held by the database alone."""
    part = PartState({"type": "text", "text": ""})
    part.id, part.base = "p", base
    part.frame = JsonFrame("", "") if base >= LONG else None
    return part


LENGTHS = [0, 10_000, 200_000, 2**20, 16 * 2**20]


@pytest.mark.parametrize("base", LENGTHS)
def test_a_stream_that_stalls_is_due_once_nothing_came_for_fold_ms(time: Time, base: int) -> None:
    unfolded, part = Unfolded(SETTINGS), part_of(base)
    for _ in range(5):
        unfolded.delta_stored(part, PIECE)
        time.now += FOLD / 10
    assert unfolded.due() <= time.now - FOLD / 10 + FOLD


@pytest.mark.parametrize("base", LENGTHS)
def test_what_keeps_coming_waits_no_longer_than_its_length_asks(time: Time, base: int) -> None:
    unfolded, part = Unfolded(SETTINGS), part_of(base)
    began = time.now
    unfolded.delta_stored(part, PIECE)
    while unfolded.due() > time.now:
        unfolded.delta_stored(part, 0)
        time.now += FOLD / 10
    share = 4 if part.frame else 8
    assert time.now - began == pytest.approx(FOLD * max(1, base / share / SETTINGS.fold_bytes), abs=FOLD / 5)


def cost(time: Time, pieces: int, seconds: float) -> int:
    """Bytes that folds write for a part of so many pieces, which come that far apart."""
    unfolded, part = Unfolded(SETTINGS), part_of(0)
    written = 0
    for _ in range(pieces):
        if unfolded and unfolded.due() <= time.now:
            unfolded.folded()
            written += part.base
        if unfolded.should_fold(part, PIECE):
            unfolded.part_stored(part)
            written += part.base + PIECE
        else:
            unfolded.delta_stored(part, PIECE)
        part.base += PIECE
        time.now += seconds
    return written


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.05, FOLD / 2])
def test_twice_the_length_costs_twice_the_bytes_while_it_keeps_coming(time: Time, seconds: float) -> None:
    assert cost(time, 20_000, seconds) <= 2.5 * cost(time, 10_000, seconds)
