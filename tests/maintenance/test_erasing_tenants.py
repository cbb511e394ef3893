"""Tenants in one schema, kept apart by row security: none finishes the erasure of another, or erases what another may name."""

import secrets
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from persist import Store
from persist.errors import NotPermitted
from persist.maintenance import doctor, erase, maintain, prune
from persist.schema.grants import tenant_script
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_server  # a cluster takes no such policies and triggers
FILE = {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{b64encode(b'shared ' * 20_000).decode()}"}


@pytest.fixture
def tenants(own_postgres_url: str) -> Iterator[list[str]]:
    """The URLs of two tenants of one schema, whose owner lets them write down what they erase."""
    with psycopg.connect(own_postgres_url, autocommit=True) as raw, ExitStack() as stack:
        urls = []
        for _ in range(2):
            name = f"persist-tenant-{secrets.token_hex(4)}"
            raw.execute(tenant_script(name, owner=str(make_url(own_postgres_url).username)))
            for script in ("DROP ROLE {}", "DROP OWNED BY {} CASCADE"):
                stack.callback(raw.execute, sql.SQL(script).format(sql.Identifier(name)))
            raw.execute("ALTER TABLE persist._meta DISABLE ROW LEVEL SECURITY")
            for table in ("_meta", "system_prompts", "blobs", "blob_pieces"):
                grant = sql.SQL("GRANT INSERT, UPDATE, DELETE ON persist.{} TO {}")
                raw.execute(grant.format(sql.Identifier(table), sql.Identifier(name)))
            urls.append(make_url(own_postgres_url).set(username=name).render_as_string(hide_password=False))
        yield urls


def test_a_tenant_by_the_script_erases_nothing(tenants: list[str], own_postgres_url: str, clock: FrozenClock) -> None:
    maria, _ = tenants
    role = sql.Identifier(str(make_url(maria).username))
    with psycopg.connect(own_postgres_url, autocommit=True) as raw:
        raw.execute(sql.SQL("REVOKE INSERT, UPDATE, DELETE ON persist._meta FROM {}").format(role))
    with Store.open(maria, clock=clock) as store:
        _, session = fill(store, "anna")
        with pytest.raises(NotPermitted):
            erase(store, owner="anna")
        assert store.chat.sessions.get(session).owner == "anna"


def test_a_tenant_does_not_see_whom_an_erasure_under_way_names(
    tenants: list[str], own_postgres_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tenants[0], clock=clock) as store:
        fill(store, "anna")
    with Store.open(own_postgres_url, clock=clock) as owner, monkeypatch.context() as patch:
        patch.setattr("persist.maintenance.erasing.Erasure.run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erase(owner, owner="anna")
    told = "SELECT count(*), count(*) FILTER (WHERE key LIKE 'erasure:%') FROM persist._meta"
    with psycopg.connect(own_postgres_url, autocommit=True) as raw:
        raw.execute("ALTER TABLE persist._meta ENABLE ROW LEVEL SECURITY")
        rest, waiting = raw.execute(told).fetchone() or (0, 0)
        assert waiting > 0
    with psycopg.connect(tenants[0]) as raw:
        assert raw.execute(told).fetchone() == (rest - waiting, 0)
    with Store.open(own_postgres_url, clock=clock) as owner:
        assert not maintain(owner).failed


def fill(store: Store, owner: str) -> tuple[str, str]:
    with store.begin() as tx:
        digest = tx.chat.prompts.put("You are helpful.")
        session = tx.chat.sessions.create(agent="a", model={}, owner=owner)
        tx.chat.messages.append(session.id, role="user", parts=[FILE], metadata={"system_prompt_digest": digest})
    return digest, session.id


def test_tenants_of_one_schema(
    tenants: list[str], own_postgres_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    maria, otto = tenants
    with Store.open(maria, clock=clock) as mine, Store.open(otto, clock=clock) as others:
        fill(mine, "anna")
        digest, session = fill(others, "bob")
        with monkeypatch.context() as patch:
            patch.setattr("persist.maintenance.erasing.Erasure.run", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                erase(mine, owner="anna")
        assert [one.code for one in doctor(mine) if one.code.startswith("erasure")] == ["erasure_unfinished"]
        assert not [one for one in doctor(others) if one.code.startswith("erasure")]
        clock.advance(delta=timedelta(days=3))
        for store in (others, mine):
            assert not maintain(store).failed
            erase(store, owner="nobody")
            prune(store, "chat", older_than=timedelta(days=365))
            prune(store, "blobs", older_than=timedelta(days=1))
        assert not [one for one in doctor(mine) if one.code.startswith("erasure")]
        assert mine.chat.sessions.list().items == []
        fill(mine, "anna")
        report = erase(mine, owner="anna")
        kept = sorted(reason.partition(":")[0] for reason in report.kept if "row security" in reason)
        assert kept == ["blobs", "system_prompts"]
        with others.read() as tx:
            assert tx.chat.prompts.get(digest) is not None
            assert tx.chat.messages.list(session)[0]["parts"][0]["url"]
        erase(others, owner="bob")
    with Store.open(own_postgres_url, clock=clock) as store:  # who sees all rows deletes what nobody names
        clock.advance(delta=timedelta(days=3))
        assert prune(store, "blobs", older_than=timedelta(days=1)).tables["blobs"] == 1
