"""Conversations: appending to long and short progressions, forking, and the history of deep forks, against raw statements.

Appending now and then folds the published array, so means are reported beside medians.
"""

import sqlite3
import statistics
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import orjson

import persist
from benchmarks.filling import Raw, connect
from benchmarks.goals import reached
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place

FEW, MANY = 500, 50_000
APPENDS = 3200
"""More than the 3,125 after which the array of 50,000 is folded."""

UNTIL_FOLD = 64
"""A progression of 500 is folded then; the next append goes to another one."""

DEPTH, MESSAGES = 10, 500
_MEMBERS = """
CREATE TABLE {name} (
    progression_id TEXT NOT NULL, ord BIGINT NOT NULL, message_id TEXT NOT NULL, PRIMARY KEY (progression_id, ord)
)
"""
_LOCK = "SELECT folded FROM progressions WHERE id = 'hand'"
_NEXT = "(SELECT max(ord) + 1 FROM progression_members WHERE progression_id = 'hand')"
_IS_THERE = "EXISTS (SELECT 1 FROM progression_members WHERE message_id = ? AND progression_id = 'hand')"
_APPEND = f"INSERT INTO progression_members (progression_id, ord, message_id) SELECT 'hand', {_NEXT}, ? WHERE NOT {_IS_THERE}"
_READ = """
SELECT m.id, m.created_at, m.node_metadata{text}, m.content{text}, m.sender, m.recipient, m.channel, m.role, t.lion_class
FROM progression_members p JOIN messages m ON m.id = p.message_id JOIN message_types t ON t.type_id = m.lion_class
WHERE p.progression_id = {mark} ORDER BY p.ord
"""


class Bench:
    """A store, and a raw connection to the same database."""

    def __init__(self, url: str) -> None:
        self.store = persist.Store.open(url)
        self.raw: Raw = connect(url)
        self.lite = isinstance(self.raw, sqlite3.Connection)
        self.where = "" if self.lite else "Postgres: "
        self.ids = (f"msg_{number:026d}" for number in count())

    def close(self) -> None:
        """Both."""
        self.raw.close()
        self.store.close()

    def run(self, sql: str, *values: Any) -> Any:
        """A raw statement, with `?` for values."""
        return self.raw.execute(sql if self.lite else sql.replace("?", "%s"), values)

    def transaction(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        """These, in a transaction of their own."""
        self.raw.execute("BEGIN IMMEDIATE" if self.lite else "BEGIN")
        for sql, values in statements:
            cursor = self.run(sql, *values)
            if cursor.description is not None:
                cursor.fetchall()
        self.raw.execute("COMMIT")

    def settle(self) -> None:
        """What a database does of itself some time after it was filled."""
        if self.lite:
            self.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        else:
            self.raw.execute("VACUUM ANALYZE")


# ---------------------------------------------------------------- appending


def appending(bench: Bench) -> Iterator[Row]:
    """One append in a transaction of its own, with 500 members and with 50,000, beside a raw child row."""
    tables = {"indexed": "raw_indexed", "bare": "raw_bare"}
    for table in tables.values():
        bench.run(_MEMBERS.format(name=table) + ("WITHOUT ROWID" if bench.lite else ""))
    bench.run("CREATE INDEX raw_by_message ON raw_indexed (message_id, progression_id)")
    few = [f"few{number}" for number in range(APPENDS // UNTIL_FOLD + 1)]
    for id, size in [("many", MANY), ("hand", MANY), *((id, FEW) for id in few)]:
        ids = [next(bench.ids) for _ in range(size)]
        with bench.store.begin() as tx:
            tx.conversations.progressions.create(id, ids=ids)
        bench.raw.execute("BEGIN")
        cursor = bench.raw.cursor()
        marks = "?, ?, ?" if bench.lite else "%s, %s, %s"
        for table in tables.values():
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", [(id, place, one) for place, one in enumerate(ids)])
        bench.raw.execute("COMMIT")
    bench.settle()

    def ours(targets: Iterator[str]) -> Operation:
        def run() -> None:
            target = next(targets)
            with bench.store.begin() as tx:
                assert tx.conversations.progressions.append(target, next(bench.ids))

        return run

    def raw(table: str, targets: Iterator[str], first: int, *, places: int) -> Operation:
        turns = count()

        def run() -> None:
            place = first + next(turns) % places
            bench.transaction((f"INSERT INTO {table} VALUES (?, ?, ?)", (next(targets), place, next(bench.ids))))

        return run

    def at_few() -> Iterator[str]:
        return (few[number // UNTIL_FOLD] for number in count())

    def at_many() -> Iterator[str]:
        return iter(lambda: "many", None)

    operations = {"few": ours(at_few()), "many": ours(at_many())}
    for name, table in tables.items():
        operations[f"few {name}"] = raw(table, at_few(), FEW, places=UNTIL_FOLD)
        operations[f"many {name}"] = raw(table, at_many(), MANY, places=10**9)
    lock = _LOCK if bench.lite else f"{_LOCK} FOR UPDATE"

    def needed() -> None:
        """What several writers need: the place and whether it is there already are looked up under a lock."""
        message = next(bench.ids)
        bench.transaction((lock, ()), (_APPEND, (message, message)))

    operations["needed"] = needed
    seconds = interleaved(operations, rounds=APPENDS, warm=0)
    for kind, average in (("median", middle), ("mean", statistics.fmean)):
        took = {name: average(values) for name, values in seconds.items()}
        what = f"{bench.where}append, {kind}"
        ratio, detail = took["many"] / took["few"], f"{us(took['many'])} vs {us(took['few'])}"
        if bench.lite and kind == "median":
            mean = statistics.fmean(seconds["many"]) / statistics.fmean(seconds["few"])
            yield reached("append-growth", ratio, f"{detail}, medians; means {mean:.2f}x")
        else:
            yield Row(f"{what}, {MANY:,} members vs {FEW}", ratio, 1.5, detail)
        detail = f"{us(took['many'])} vs {us(took['needed'])}"
        yield Row(f"{what}, {MANY:,} members vs raw lock, look and insert", took["many"] / took["needed"], float("inf"), detail)
        for where, members in (("few", FEW), ("many", MANY)):
            mine, floor, bare = took[where], took[f"{where} indexed"], took[f"{where} bare"]
            yield Row(f"{what}, {members:,} members vs a raw child row", mine / floor, 2.0, f"{us(mine)} vs {us(floor)}")
            yield Row("  … and no index by message", mine / bare, float("inf"), f"{us(mine)} vs {us(bare)}")


# ---------------------------------------------------------------- forking


def forking(bench: Bench) -> Iterator[Row]:
    """A fork of a branch of 500 messages: two rows read and two written."""
    root = _talk(bench, MESSAGES)
    numbers = count()
    with bench.store.read() as tx:
        branch = tx.conversations.branches.get(root)
    metadata = orjson.dumps({"model": "m", "parent_branch_id": root, "forked_at_ord": MESSAGES}).decode()
    at = branch.created_at.timestamp()
    columns = "id, created_at, session_id, progression_id, parent_branch_id, forked_at_ord, node_metadata"

    def ours() -> None:
        with bench.store.begin() as tx:
            tx.conversations.branches.fork(root)

    def raw() -> None:
        number = next(numbers)
        made, pool = f"raw_branch_{number}", f"raw_pool_{number}"
        bench.transaction(
            (
                "SELECT session_id, progression_id, system_msg_id, node_metadata, forked_at_ord FROM branches WHERE id = ?",
                (root,),
            ),
            ("SELECT max(ord) FROM progression_members WHERE progression_id = ?", (branch.progression_id,)),
            ("INSERT INTO progressions (id, created_at, folded, collection) VALUES (?, ?, 0, '[]')", (pool, at)),
            (
                f"INSERT INTO branches ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (made, at, branch.session_id, pool, root, MESSAGES, metadata),
            ),
        )

    took = {name: middle(values) for name, values in interleaved({"ours": ours, "raw": raw}, rounds=500, warm=20).items()}
    detail = f"{us(took['ours'])} vs {us(took['raw'])}"
    if bench.lite:
        yield reached("fork", took["ours"] / took["raw"], detail)
    else:
        yield Row(f"{bench.where}fork of a branch vs the statements by hand", took["ours"] / took["raw"], 1.5, detail)


# ---------------------------------------------------------------- reading


def reading(bench: Bench) -> Iterator[Row]:
    """500 messages: flat, and at the end of a line of ten forks, beside a raw read of the flat ones."""
    flat, deep = _talk(bench, MESSAGES), _talk(bench, MESSAGES // DEPTH)
    for number in range(1, DEPTH):
        with bench.store.begin() as tx:
            deep = tx.conversations.branches.fork(deep).id
            for place in range(MESSAGES // DEPTH):
                tx.conversations.messages.record(deep, _message(next(bench.ids), number * 1000 + place))
    bench.settle()
    with bench.store.read() as tx:
        pool = tx.conversations.branches.get(flat).progression_id
        assert len(tx.conversations.branches.history(deep)) == MESSAGES
    query = _READ.format(text="" if bench.lite else "::text", mark="?")

    def raw() -> list[dict[str, Any]]:
        cursor = bench.run(query, pool)
        names = [column[0] for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        for message in found:
            message["content"] = orjson.loads(message["content"])
            message["node_metadata"] = orjson.loads(message["node_metadata"])
        return found

    def ours(branch: str) -> Operation:
        def run() -> object:
            with bench.store.read() as tx:
                return tx.conversations.branches.history(branch)

        return run

    alternatives = {"raw": raw, "flat": ours(flat), "deep": ours(deep)}
    took = {name: middle(values) for name, values in interleaved(alternatives, rounds=200, warm=10).items()}
    for name, what in (("deep", f"at fork depth {DEPTH}"), ("flat", "flat")):
        goal = 2.0 if name == "deep" else float("inf")
        detail = f"{us(took[name])} vs {us(took['raw'])}"
        yield Row(
            f"{bench.where}history of {MESSAGES} messages, {what}, vs a flat raw read", took[name] / took["raw"], goal, detail
        )


def _talk(bench: Bench, size: int) -> str:
    """A branch of that many messages -> its id."""
    with bench.store.begin() as tx:
        session = tx.conversations.sessions.create(status="running")
        branch = tx.conversations.branches.create(session.id, node_metadata={"model": "m"})
        for place in range(size):
            tx.conversations.messages.record(branch.id, _message(next(bench.ids), place))
    return branch.id


def _message(id: str, place: int) -> dict[str, Any]:
    content = {"text": "lorem ipsum dolor sit amet " * 12, "place": place, "parts": [{"kind": "note", "at": place}]}
    metadata = {"lion_class": "lionagi.protocols.messages.instruction.Instruction", "turn": place}
    return {"id": id, "created_at": 1_747_000_000.5 + place, "role": "user", "content": content, "node_metadata": metadata}


def rows(place: Place) -> Iterator[Row]:
    """On both databases; a quick look is at files alone."""
    yield from _everything(place.file("conversations"))
    if place.postgres is not None and not place.quick:
        persist.upgrade(place.postgres)
        yield from _everything(place.postgres)


def _everything(url: str) -> Iterator[Row]:
    with closing(Bench(url)) as bench:
        yield from forking(bench)
        yield from reading(bench)
        yield from appending(bench)
