"""What a long answer costs grows with its length, and not with its square."""

import os
from pathlib import Path
from typing import Any

from persist.settings import Settings
from persist.store import Store
from tests.contract.chat.scenes import create, shown, words
from tests.contract.conftest import Raw


def written(url: str, raw: Raw) -> int:
    """Bytes of the write-ahead log so far."""
    if raw.is_sqlite:
        path = Path(url.removeprefix("sqlite:///") + "-wal")
        return os.path.getsize(path) if path.exists() else 0
    return int(raw.value("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def cost(url: str, raw: Raw, statements: list[str], deltas: int) -> tuple[int, int]:
    """Bytes and statements of one answer in so many pieces of five bytes, each durable by itself."""
    if not raw.is_sqlite:
        raw.rows("TRUNCATE chat_part_deltas")  # nothing but dead rows of the answer before, whose pages a server may log again
    settings = Settings(wal_autocheckpoint=0, fold_ms=600_000)  # folds by the clock depend on how fast the machine is
    with Store.open(url, settings=settings) as store:
        session = create(store)
        with store.record(session) as recorder:
            recorder.feed({"type": "text-start", "id": "t"})
            before, count = written(url, raw), len(statements)
            for _ in range(deltas):
                recorder.feed({"type": "text-delta", "id": "t", "delta": "five!"})
            recorder.feed({"type": "text-end", "id": "t"})
            spent = written(url, raw) - before, len(statements) - count
        assert words(shown(store, session)) == ["five!" * deltas]
    return spent


def test_twice_the_deltas_cost_twice_the_bytes_and_statements(statements: list[str], database_url: str, open_raw: Any) -> None:
    """(c) 25"""
    with Store.open(database_url) as store:
        create(store)
    raw = open_raw(database_url)
    if raw.is_sqlite:
        raw.rows("PRAGMA wal_autocheckpoint=0")
    # A server's log has the writes of its own housekeeping too, and the first answer in a table costs less than later ones:
    # one that does not count, then each in turn, and the lower of two measurements.
    rounds = 1 if raw.is_sqlite else 2
    cost(database_url, raw, statements, 10_000)
    measured = [[cost(database_url, raw, statements, deltas) for deltas in (10_000, 20_000)] for _ in range(rounds)]
    small, large = (min(answers) for answers in zip(*measured, strict=True))
    assert small[0] > 50_000  # it was measured
    assert small[1] >= 10_000
    assert large[0] <= 2.5 * small[0]
    assert large[1] <= 2.5 * small[1]
