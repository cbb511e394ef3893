"""What a long answer costs grows with its length, and not with its square."""

import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.settings import Settings
from tests.contract.chat.scenes import create, shown, words
from tests.contract.conftest import Raw

TABLES = ("chat_sessions", "chat_messages", "chat_parts", "chat_part_deltas")


def written(url: str, raw: Raw) -> int:
    """Bytes so far: of the write-ahead log of a file, of a chat's tables on a server, whose log has others too."""
    if raw.is_sqlite:
        path = Path(url.removeprefix("sqlite:///") + "-wal")
        return os.path.getsize(path) if path.exists() else 0
    sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in TABLES)
    return int(raw.value(f"SELECT {sizes}"))


def keep_everything(raw: Raw) -> None:
    """Nothing is taken back while it is measured: the log of a file grows, the dead rows of a server stay where they are."""
    if raw.is_sqlite:
        raw.rows("PRAGMA wal_autocheckpoint=0")
        return
    for table in TABLES:
        raw.rows(f"ALTER TABLE {table} SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)")


def cost(url: str, raw: Raw, statements: list[str], deltas: int) -> tuple[int, int]:
    """Bytes and statements of an answer in so many pieces of five bytes, each durable by itself; no server can compress them."""
    pieces = [f"{zlib.crc32(n.to_bytes(4)):08x}"[:5] for n in range(deltas)]
    settings = Settings(wal_autocheckpoint=0, fold_ms=600_000)  # folds by the clock depend on how fast the machine is
    with Store.open(url, settings=settings) as store:
        session = create(store)
        with store.record(session) as recorder:
            recorder.feed({"type": "text-start", "id": "t"})
            before, count = written(url, raw), len(statements)
            for piece in pieces:
                recorder.feed({"type": "text-delta", "id": "t", "delta": piece})
            recorder.feed({"type": "text-end", "id": "t"})
            spent = written(url, raw) - before, len(statements) - count
        assert words(shown(store, session)) == ["".join(pieces)]
    return spent


@pytest.mark.one_server
def test_twice_the_deltas_cost_twice_the_bytes_and_statements(statements: list[str], database_url: str, open_raw: Any) -> None:
    """(c) 25"""
    with Store.open(database_url) as store:
        create(store)
    raw = open_raw(database_url)
    keep_everything(raw)
    small, large = (cost(database_url, raw, statements, deltas) for deltas in (4_000, 8_000))
    assert small[0] > 20_000  # it was measured
    assert small[1] >= 4_000
    assert large[0] <= 2.5 * small[0]
    assert large[1] <= 2.5 * small[1]
