"""What each save policy costs: an answer of 40 KB in 20-character chunks, whole, and what it writes ahead."""

from collections.abc import Iterator
from typing import Any

import persist
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from benchmarks.recording import CHUNK, CHUNKS, begin_text
from persist import Store

POLICIES: dict[str, dict[str, Any]] = {
    "every chunk (the default)": {},
    "at most 20 ms late": {"buffer_ms": 20},
    "at most 1 KB late": {"buffer_bytes": 1024},
    "every step": {"save_on": "step"},
    "every turn": {"save_on": "turn"},
}
ANSWERS = 5


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    answers = 2 if place.quick else ANSWERS
    yield from _in(place.file("policies"), "", answers)
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from _in(place.postgres, "Postgres: ", answers)


def _in(url: str, prefix: str, answers: int) -> Iterator[Row]:
    with Store.open(url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="bench", model={})

        def answer(options: dict[str, Any]) -> None:
            with store.record(session.id, **options) as recorder:
                begin_text(recorder)
                for _ in range(CHUNKS):
                    recorder.feed(CHUNK)
                recorder.feed({"type": "text-end", "id": "t"})
                recorder.feed({"type": "finish"})

        alternatives = {name: lambda given=options: answer(given) for name, options in POLICIES.items()}
        taken = {name: middle(seconds) for name, seconds in interleaved(alternatives, rounds=answers, warm=1).items()}
    default = next(iter(taken.values()))
    for name, seconds in taken.items():
        detail = f"{us(seconds / CHUNKS)} a chunk, {us(seconds)} the answer"
        yield Row(f"{prefix}saved {name}, vs the default", seconds / default, float("inf"), detail)
