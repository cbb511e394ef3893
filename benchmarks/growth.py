"""What a verb costs among many rows: each in a transaction by itself, in a database with 1,000,000 rows and in one with 1,000.

Rows are messages of one session, finished executions beside 20 that run, messaging sessions of other users, and usage samples of
one instance, of which 15 minutes are added up. A full day has a sample in every second.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

import persist
from benchmarks import filling
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Store

FEW, MANY, MANY_QUICKLY = 1_000, 1_000_000, 20_000
ROUNDS = 300
_FIRST = 1_735_689_600  # 2025-01-01
_FIRST_MS = _FIRST * 1000
_SPAN = timedelta(minutes=15)
_DAY = 86_400
_SESSION = "ses_growth"
_INSTANCE = "box"
_RUNNING = 20


@dataclass(frozen=True)
class Size:
    """A store with so many rows in each table."""

    store: Store
    rows: int


def rows(place: Place) -> Iterator[Row]:
    """On both databases; fewer rows for a quick look."""
    many = MANY_QUICKLY if place.quick else MANY
    with ExitStack() as stack:
        sizes = [_sized(stack, place.file(f"growth-{count}"), count) for count in (FEW, many)]
        yield from _compare(sizes[0], sizes[1], where="")
        yield _day(stack, place.file("growth-day"), None, where="")
    if place.postgres is not None:
        with ExitStack() as stack:
            sizes = [_sized(stack, place.postgres, count, f"growth_{count}") for count in (FEW, many)]
            yield from _compare(sizes[0], sizes[1], where="Postgres: ")
            yield _day(stack, place.postgres, "growth_day", where="Postgres: ")


def _compare(few: Size, many: Size, where: str) -> Iterator[Row]:
    less, more = _operations(few.store), _operations(many.store)
    for name in less:
        taken = interleaved({"few": less[name], "many": more[name]}, rounds=ROUNDS, warm=20)
        mine, other = middle(taken["many"]), middle(taken["few"])
        yield Row(f"{where}{name}, {many.rows:,} rows vs {few.rows:,}", mine / other, 1.2, f"{us(mine)} vs {us(other)}")


def _operations(store: Store) -> Mapping[str, Operation]:
    numbers, instance = count(), None if store.path else _INSTANCE
    said = [{"type": "text", "text": "word " * 20}]
    since = datetime.fromtimestamp(_FIRST, UTC)
    until = since + _SPAN

    def enqueue() -> float:
        """Only the enqueueing is timed; then the message leaves the queue, which stays as short as it was."""
        began = time.perf_counter()
        queued = store.chat.messages.enqueue(_SESSION, parts=said)
        took = time.perf_counter() - began
        store.chat.messages.cancel_queued(queued.id)
        return took

    return {
        "chat.messages.list(limit=20)": lambda: store.chat.messages.list(_SESSION, limit=20),
        "chat.messages.enqueue": enqueue,
        "workflows.executions.running": store.workflows.executions.running,
        "messaging.sessions.get_or_create": lambda: store.messaging.sessions.get_or_create(
            platform="slack", channel_id="C", user_id=f"u{next(numbers) % 7}"
        ),
        "telemetry.usage.totals of 15 minutes": lambda: store.telemetry.usage.totals(since, until, instance_id=instance),
    }


def _sized(stack: ExitStack, url: str, count: int, schema: str | None = None) -> Size:
    lite = schema is None
    statements = (*chat(count, lite=lite), *_others(count, lite=lite), _samples(count, lite=lite))
    return Size(_filled(stack, url, schema, _TABLES, statements), count)


def _day(stack: ExitStack, url: str, schema: str | None, where: str) -> Row:
    store = _filled(stack, url, schema, ("usage_samples",), (_samples(_DAY, lite=schema is None),))
    usage, instance = store.telemetry.usage, None if schema is None else _INSTANCE
    if usage.totals(instance_id=instance).samples != _DAY:
        raise AssertionError("a day has a sample in every second")
    took = middle(interleaved({"totals": lambda: usage.totals(instance_id=instance)}, rounds=ROUNDS // 3)["totals"])
    detail = f"{us(took)}, {us(took / _DAY * 1000)} for 1,000 samples"
    return Row(f"{where}telemetry.usage.totals of a full day, {_DAY:,} samples", took * 1000, 5.0, detail, unit=" ms")


def _filled(stack: ExitStack, url: str, schema: str | None, tables: Sequence[str], statements: Sequence[str]) -> Store:
    persist.upgrade(url, schema=schema)
    filling.fill(url, schema, tables, statements)
    return stack.enter_context(Store.open(url, schema=schema))


_TABLES = ("chat_sessions", "chat_messages", "chat_parts", "executions", "messaging_sessions", "usage_samples")


def chat(count: int, *, lite: bool) -> Iterator[str]:
    """One session, whose messages have a text each."""
    milliseconds, blob = f"{_FIRST_MS} + n * 1000", "" if lite else "::jsonb"
    message, part = (filling.id_of(prefix, "n", lite=lite) for prefix in ("msg", "prt"))
    yield f"""
INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at)
VALUES ('{_SESSION}', 'bench', '{{}}', {_FIRST_MS}, {_FIRST_MS})"""
    yield f"""
{filling.counted(count, lite=lite, insert="chat_messages (id, session_id, role, created_at, updated_at, metadata_json)")}
SELECT {message}, '{_SESSION}', CASE n % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, {milliseconds}, {milliseconds}, '{{}}'{blob}
FROM n"""
    data = f"""('{{"type":"text","text":"{"word " * 20}' || n || '"}}'){blob}"""
    columns = 'id, message_id, session_id, "index", type, created_at, updated_at, data_json'
    yield f"""
{filling.counted(count, lite=lite, insert=f"chat_parts ({columns})")}
SELECT {part}, {message}, '{_SESSION}', 0, 'text', {milliseconds}, {milliseconds}, {data} FROM n"""


def _others(count: int, *, lite: bool) -> Iterator[str]:
    """Finished executions, some that run, and sessions of as many users."""
    at, columns = (
        filling.instant(f"{_FIRST} + n", lite=lite),
        "id, trigger_type, trigger_id, skill, started_at, finished_at, success",
    )
    for prefix, many, finished in (("exe", count, at), ("exr", _RUNNING, "NULL")):
        success = "NULL" if finished == "NULL" else "TRUE"
        yield f"""
{filling.counted(many, lite=lite, insert=f"executions ({columns})")}
SELECT {filling.id_of(prefix, "n", lite=lite)}, 'github', 'issue/' || n % 50, 'build:plan', {at}, {finished}, {success} FROM n"""
    columns = "id, platform, channel_id, user_id, created_at, last_activity_at"
    yield f"""
{filling.counted(count, lite=lite, insert=f"messaging_sessions ({columns})")}
SELECT {filling.id_of("mse", "n", lite=lite)}, 'slack', 'C', 'u' || n, {at}, {at} FROM n"""


def _samples(count: int, *, lite: bool) -> str:
    owner, value = ("", "") if lite else ("instance_id, ", f"'{_INSTANCE}', ")
    columns = f"{owner}occurred_at, token_input, token_output, cost_usd_micros, seq"
    return f"""
{filling.counted(count, lite=lite, insert=f"usage_samples ({columns})")}
SELECT {value}{_FIRST} + n, 100, 7, 1500, n FROM n"""
