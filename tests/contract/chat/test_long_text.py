"""A text too long to be worth holding stays in the database while it grows; what is read is the same."""

import json
import os
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.chat.reducer import reduce
from persist.chat.reducer.parts import LONG
from persist.errors import PersistError
from persist.settings import Settings
from tests.contract.chat.scenes import Chunk, create, eventually, record, shown, text, words
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face

PLAIN = 'say "yes" \\ \n\t\x1b[1m — Grüße 😀 \u2028 {"a":[1]}. '
SIZE = 20_000
HIGH, LOW = "\ud83d", "\ude00"
"""The halves of a character."""

METADATA = {"provider": {"signature": "a1", "price": 0.5, "note": '"text":""'}}


def piece(number: int, what: str = PLAIN) -> str:
    """So much of it, and no two alike."""
    return f"{number}: " + what * (SIZE // len(what.encode("utf-8", "surrogatepass")))


LENGTH = 2 * LONG // SIZE  # pieces, of which the database folds the second half


def answer(*pieces: str, kind: str = "text") -> list[Chunk]:
    deltas = [{"type": f"{kind}-delta", "id": "t", "delta": piece} for piece in pieces]
    first, last = ({"type": f"{kind}-{edge}", "id": "t"} for edge in ("start", "end"))
    return [{"type": "start", "messageId": "m"}, first, *deltas, last]


def assert_recorded(store: Any, raw: Raw, session: str, chunks: list[Chunk]) -> None:
    """What the reducer makes of the chunks is what every reader sees."""
    expected = reduce(chunks)["parts"]
    assert shown(store, session)[0]["parts"] == expected
    assert json.loads(store.chat.messages.list_json(session))[0]["parts"] == expected
    assert raw.count("chat_part_deltas") == 0


@contextmanager
def broken(raw: Raw) -> Iterator[None]:
    """Nothing can be written meanwhile."""
    raw.rows("ALTER TABLE chat_part_deltas RENAME TO elsewhere")
    yield
    raw.rows("ALTER TABLE elsewhere RENAME TO chat_part_deltas")


@on_one_face
@pytest.mark.parametrize(
    "odd",
    [PLAIN, "\x00", "\ufdd0", HIGH, LOW, HIGH + LOW, "\\u0000 \\ud83d"],
    ids=["plain", "NUL", "lead", "high half", "low half", "pair of halves", "words like escapes"],
)
def test_any_text_reads_as_it_was_fed(store: Any, raw: Raw, session: str, odd: str) -> None:
    """The odd ones come where the database folds; the second half of a character often begins what is folded."""
    pieces = [piece(number, odd if number > LENGTH // 2 and number % 3 == 0 else PLAIN) for number in range(LENGTH)]
    if odd == HIGH:
        pieces = [LOW + each + HIGH for each in pieces]
    chunks = answer(*pieces)
    record(store, session, chunks)
    assert_recorded(store, raw, session, chunks)
    assert raw.json("SELECT data_json FROM chat_parts")["state"] == "done"


@pytest.mark.parametrize("options", [{"buffer_bytes": 3 * SIZE}, {"save_on": "step"}, {"save_on": "turn"}], ids=str)
def test_every_policy(store: Any, raw: Raw, session: str, options: dict[str, Any]) -> None:
    chunks = answer(*map(piece, range(LENGTH)))
    with store.record(session, **options) as recorder:
        for number, chunk in enumerate(chunks):
            recorder.feed(chunk)
            if number % 7 == 0:
                recorder.flush()
    assert_recorded(store, raw, session, chunks)


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_what_is_said_about_the_text_changes_around_it(store: Any, raw: Raw, session: str, kind: str) -> None:
    chunks = answer(*map(piece, range(LENGTH)), kind=kind)
    chunks[1] |= {"providerMetadata": {"provider": {"signature": None}}}
    chunks[-6] |= {"providerMetadata": METADATA}
    chunks[-4] |= {"providerMetadata": METADATA}
    chunks[-1] |= {"providerMetadata": {**METADATA, "other": {"more": "\x00\ud83d"}}}
    with store.record(session) as recorder:
        recorder.feed_many(chunks[:-6])
        for number in range(len(chunks) - 6, len(chunks) - 3):
            recorder.feed(chunks[number])
            assert shown(store, session)[0]["parts"] == reduce(chunks[: number + 1])["parts"]
        recorder.feed_many(chunks[-3:])
    assert_recorded(store, raw, session, chunks)


def test_two_long_parts_at_once(store: Any, raw: Raw, session: str) -> None:
    chunks = answer(*map(piece, range(LENGTH)))
    for number in range(len(chunks) - 1, 0, -1):
        chunks.insert(number, {**chunks[number], "id": "u"})
    record(store, session, chunks)
    assert_recorded(store, raw, session, chunks)


def test_what_fails_may_be_fed_again(store: Any, raw: Raw, session: str) -> None:
    chunks = answer(*map(piece, range(LENGTH)))
    with store.record(session) as recorder:
        for number, chunk in enumerate(chunks):
            if (number > 1 and number % 2) or number > LENGTH - 2:
                with broken(raw), pytest.raises(PersistError):
                    recorder.feed(chunk)
            recorder.feed(chunk)
    assert_recorded(store, raw, session, chunks)


def test_a_recorder_that_stops_leaves_all_of_it(store: Any, raw: Raw, session: str) -> None:
    chunks = answer(*map(piece, range(LENGTH)))[:-1]
    record(store, session, chunks)
    assert_recorded(store, raw, session, chunks)
    goes_on = [*chunks, *text("and more", id="u")]
    with store.record(session) as recorder:
        recorder.feed_many([chunks[0], *goes_on[len(chunks) :]])
    assert_recorded(store, raw, session, goes_on)


@pytest.mark.parametrize("writer", ["a fold", "another layout"])
def test_others_may_write_the_part_meanwhile(store: Any, raw: Raw, session: str, writer: str) -> None:
    chunks = answer(*map(piece, range(LENGTH)))
    with store.record(session) as recorder:
        for number, chunk in enumerate(chunks):
            recorder.feed(chunk)
            if number % 3 == 0 and number > LENGTH // 2:
                part = raw.json("SELECT data_json FROM chat_parts")
                if writer == "a fold":
                    part["text"] += "".join(row[0] for row in raw.rows("SELECT delta FROM chat_part_deltas ORDER BY seq"))
                    raw.rows("DELETE FROM chat_part_deltas")
                raw.rows("UPDATE chat_parts SET data_json = ?", json.dumps(dict(sorted(part.items()))))
                assert shown(store, session)[0]["parts"] == reduce(chunks[: number + 1])["parts"]
    assert_recorded(store, raw, session, chunks)


def test_a_long_one_that_stalls_waits_no_longer(open_store: Any, raw: Raw) -> None:
    """By the size of its folds alone it would wait for minutes."""
    store = open_store(settings=Settings(fold_ms=300))
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed_many(answer(*map(piece, range(3 * LENGTH)))[:-1])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "the last piece"})
        assert eventually(lambda: raw.count("chat_part_deltas") == 0)
        assert raw.json("SELECT data_json FROM chat_parts")["text"].endswith("the last piece")
        recorder.feed({"type": "text-delta", "id": "t", "delta": ", and one more"})
        assert eventually(lambda: raw.count("chat_part_deltas") == 0)
    assert raw.json("SELECT data_json FROM chat_parts") == shown(store, session)[0]["parts"][0]


def test_the_log_of_events_has_all_of_it(open_store: Any, raw: Raw) -> None:
    store = open_store(events=True)
    session = create(store)
    chunks = answer(*map(piece, range(LENGTH)))
    record(store, session, chunks)
    assert_recorded(store, raw, session, chunks)
    written = [event for event in store.events.read(session) if event.type == "part.written"]
    assert [change["row"]["data_json"] for change in written[-1].data["changes"]] == reduce(chunks)["parts"]


@pytest.mark.parametrize("face", ["sync"])
def test_no_more_is_held_of_a_longer_text(store: Store, session: str) -> None:
    def maximum(pieces: int) -> int:
        with store.record(session) as recorder:
            recorder.feed({"type": "text-start", "id": "t"})
            tracemalloc.start()
            for number in range(pieces):
                recorder.feed({"type": "text-delta", "id": "t", "delta": piece(number)})
            recorder.feed({"type": "text-end", "id": "t"})
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return peak

    short = maximum(60)
    assert short > LONG  # it was measured
    assert maximum(180) <= 1.25 * short


# What a long answer costs grows with its length, and not with its square.


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
    with Store.open(database_url) as store:
        create(store)
    raw = open_raw(database_url)
    keep_everything(raw)
    small, large = (cost(database_url, raw, statements, deltas) for deltas in (4_000, 8_000))
    assert small[0] > 20_000  # it was measured
    assert small[1] >= 4_000
    assert large[0] <= 2.5 * small[0]
    assert large[1] <= 2.5 * small[1]
