"""How a page reads: a snapshot that nobody waits for, not for longer than a page may, with the rights of one who only looks."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from persist import Store
from persist.db.transactions.verb_frame import Verb
from persist.errors import StoreBusy
from persist.schema.subagent_roles import RoleKind
from persist.store.transaction import Transaction, work_of
from persist.ui import create_app
from persist.ui.pages import SECTIONS
from persist.ui.reading import AT_ONCE, Reader
from tests.faults.test_grants import granted as granted
from tests.faults.test_grants import role as role
from tests.ui.test_runs import made
from tests.ui.visitor import Visitor

ADDRESSES = [section.path for section in SECTIONS]
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000) b",
}


def test_a_page_that_takes_too_long_is_interrupted(state: Store, backend: str) -> None:
    def look(tx: Transaction) -> Any:
        with Verb(work_of(tx), "look", writes=False):
            return work_of(tx).select(text(ENDLESS[backend])).all()

    async def read() -> None:
        reader = Reader(state, seconds=0.2)
        with pytest.raises(StoreBusy, match="took too long"):
            await reader.read(look)
        assert await reader.read(lambda tx: tx.workflows.runs.count()) == 0

    asyncio.run(read())


def test_more_visitors_than_may_read_at_once_all_get_their_page(state: Store) -> None:
    async def read() -> list[Any]:
        reader = Reader(state)
        return await asyncio.gather(*(reader.read(lambda tx: tx.workflows.runs.count()) for _ in range(3 * AT_ONCE)))

    assert asyncio.run(read()) == [0] * 3 * AT_ONCE


def test_a_page_waits_for_no_writer_and_no_writer_for_it(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.workflows.runs.create("hidden", trigger_id="t", current_phase="plan")
        assert "hidden" not in visitor.get("/runs").main
    assert "hidden" in visitor.get("/runs").main


def test_a_cancelled_request_leaves_the_store_as_it_was(state: Store) -> None:
    async def leave() -> None:
        reader = Reader(state)
        task = asyncio.create_task(reader.read(lambda tx: time.sleep(0.05)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert made(state)


def test_a_role_that_may_only_read_sees_every_page(granted: dict[RoleKind, str]) -> None:
    with Store.open(granted[RoleKind.APP]) as store:
        id = made(store)
    with Store.open(granted[RoleKind.READ_ONLY], read_only=True) as store:
        visitor = Visitor(create_app(store))
        assert {path: visitor.get(path).status for path in ADDRESSES} == dict.fromkeys(ADDRESSES, 200)
        assert visitor.get(f"/runs/{id}").status == 200
        visitor.close()


def test_a_role_that_may_only_watch_sees_the_log_and_is_told_what_it_may_not(granted: dict[RoleKind, str]) -> None:
    with Store.open(granted[RoleKind.OWNER], events=True) as store:
        made(store)
    with Store.open(granted[RoleKind.WATCHER], read_only=True) as store:
        visitor = Visitor(create_app(store))
        assert "workflow" in visitor.get("/events").main
        refused = visitor.get("/runs")
        assert (refused.status, "denied" in refused.main) == (403, True), refused.main
        assert {visitor.get(path).status for path in ADDRESSES} == {200, 403}
        visitor.close()


def test_a_store_that_only_reads_serves_all_pages(state: Store, database_url: str, visit: Callable[..., Visitor]) -> None:
    id = made(state)
    with Store.open(database_url, read_only=True) as store:
        visitor = visit(store)
        assert [visitor.get(path).status for path in ADDRESSES] == [200] * len(ADDRESSES)
        assert visitor.get(f"/runs/{id}").status == 200
